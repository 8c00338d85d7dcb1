/* A plugin of the Kafka client: librdkafka tells it of each client that it makes, so that SlabProducer knows the one below
 * its Producer. This is its public way (plugin.library.paths, rdkafka.h "Plugins" and "Interceptors").
 *
 * Not a module of Python's, and not linked to librdkafka: which one is loaded the Python side knows, and says where it
 * has the function that is needed here. */
#include <stddef.h>

typedef int on_new_f(void *client, const void *conf, void *opaque, char *error, size_t error_size);
typedef int add_on_new_f(void *conf, const char *name, on_new_f *on_new, void *opaque);

/* rd_kafka_conf_interceptor_add_on_new */
add_on_new_f *lowwater_add_on_new;

/* a client is made on the thread that asks for it, and asked for on the same one */
static __thread void *newest;

static int on_new(void *client, const void *conf, void *opaque, char *error, size_t error_size) {
    (void)conf, (void)opaque, (void)error, (void)error_size;
    newest = client;
    return 0;
}

/* the name that librdkafka looks for */
int conf_init(void *conf, void **opaque, char *error, size_t error_size) {
    (void)opaque, (void)error, (void)error_size;
    newest = NULL;
    return lowwater_add_on_new(conf, "lowwater", on_new, NULL);
}

/* The client that was made last on this thread, once. */
void *lowwater_take_newest(void) {
    void *found = newest;
    newest = NULL;
    return found;
}
