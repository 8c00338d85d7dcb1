/* A librdkafka plugin: librdkafka calls it for each client that it creates, so that SlabProducer gets the rd_kafka_t of
 * its Producer. It uses the public API (plugin.library.paths, rdkafka.h "Plugins" and "Interceptors").
 *
 * It is not a Python module, and is not linked to librdkafka: the Python side knows which librdkafka is loaded, and
 * sets the address of the function that is needed here. */
#include <stddef.h>

typedef int on_new_f(void *client, const void *conf, void *opaque, char *error, size_t error_size);
typedef int add_on_new_f(void *conf, const char *name, on_new_f *on_new, void *opaque);

/* rd_kafka_conf_interceptor_add_on_new */
add_on_new_f *lowwater_add_on_new;

/* a client is created on the thread that requests it, and lowwater_take_newest is called on the same thread */
static __thread void *newest;

static int on_new(void *client, const void *conf, void *opaque, char *error, size_t error_size) {
    (void)conf, (void)opaque, (void)error, (void)error_size;
    newest = client;
    return 0;
}

/* the entry point that librdkafka looks up by name */
int conf_init(void *conf, void **opaque, char *error, size_t error_size) {
    (void)opaque, (void)error, (void)error_size;
    newest = NULL;
    return lowwater_add_on_new(conf, "lowwater", on_new, NULL);
}

/* Returns the client that was created last on this thread; NULL at the next call. */
void *lowwater_take_newest(void) {
    void *found = newest;
    newest = NULL;
    return found;
}
