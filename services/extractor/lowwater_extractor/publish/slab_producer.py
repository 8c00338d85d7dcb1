"""A transactional producer that accepts whole slabs and calls librdkafka's `rd_kafka_produce_batch` directly.

`produce_batch` of confluent-kafka needs a dict with six keys for each message, which costs more time than librdkafka
itself. Everything else (transactions, callbacks, threads) is done by confluent-kafka.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import confluent_kafka.cimpl
import structlog
from confluent_kafka import KafkaError

from lowwater.errors import BusFatalError
from lowwater.kafka.producer import TransactionalProducer
from lowwater.runtime.config import KafkaConfig
from lowwater.runtime.secrets import resolve
from lowwater_extractor._native.slab import Slab

_PLUGINS = "plugin.library.paths"
#: RD_KAFKA_MSG_F_COPY: librdkafka copies the message and keeps no pointer to it
_COPY = 2

_log = structlog.get_logger()


class _Library:
    """The librdkafka that confluent-kafka has loaded, and lowwater's plugin for it."""

    def __init__(self, path: str) -> None:
        client = ctypes.CDLL(confluent_kafka.cimpl.__file__)
        if b"plugins" not in _features(client):
            raise ValueError("this client was built without plugins")
        plugin = ctypes.CDLL(path)
        add = ctypes.cast(client.rd_kafka_conf_interceptor_add_on_new, ctypes.c_void_p)
        ctypes.c_void_p.in_dll(plugin, "lowwater_add_on_new").value = add.value
        self.path = path
        self.take_newest = plugin.lowwater_take_newest
        self.take_newest.restype = ctypes.c_void_p
        self.topic_new = client.rd_kafka_topic_new
        self.topic_new.restype = ctypes.c_void_p
        self.topic_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.topic_destroy = client.rd_kafka_topic_destroy
        self.topic_destroy.argtypes = [ctypes.c_void_p]
        self.produce_batch = client.rd_kafka_produce_batch
        self.produce_batch.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int, ctypes.c_void_p, ctypes.c_int]


def _features(client: ctypes.CDLL) -> list[bytes]:
    """Return the features that librdkafka was built with."""
    client.rd_kafka_conf_new.restype = ctypes.c_void_p
    conf = ctypes.c_void_p(client.rd_kafka_conf_new())
    found, size = ctypes.create_string_buffer(1024), ctypes.c_size_t(1024)
    client.rd_kafka_conf_get(conf, b"builtin.features", found, ctypes.byref(size))
    client.rd_kafka_conf_destroy(conf)
    return found.value.split(b",")


@cache
def _library() -> _Library | None:
    """Return None if slabs must be sent as single messages: no 64-bit little-endian machine, or no plugin support."""
    plugin = find_spec("lowwater_extractor._native.client_plugin")
    if plugin is None or plugin.origin is None or (struct.calcsize("P"), sys.byteorder) != (8, "little"):
        return None
    try:
        return _Library(plugin.origin)
    except (OSError, AttributeError, ValueError) as error:
        # the functions of this librdkafka cannot be accessed
        _log.warning("slabs are sent as single messages", why=str(error))
        return None


class SlabProducer(TransactionalProducer):
    def __init__(
        self,
        kafka: KafkaConfig,
        transactional_id: str,
        tick: Callable[[], None] = lambda: None,
        progressed: Callable[[], None] = lambda: None,
    ) -> None:
        self._library = _library()
        settings = {}
        if self._library is not None:
            others = resolve(kafka.client[_PLUGINS]).rstrip(";") + ";" if _PLUGINS in kafka.client else ""
            settings[_PLUGINS] = others + self._library.path
        super().__init__(kafka, transactional_id, tick, progressed, **settings)
        #: the `rd_kafka_t` of the Python client, valid as long as that
        self._client = None if self._library is None else self._library.take_newest()

    def produce_slab(self, topic: str, slab: Slab, partition: int) -> None:
        """Produce all messages of a slab, in order; waits while the queue is full."""
        if self._library is None or self._client is None:
            self.produce_batch(topic, slab.messages(), partition)
            return
        done = 0
        patience = None
        while done < slab.count:
            taken = self._hand_over(self._library, topic, slab, done, partition)
            done += taken
            self._taken += taken
            if done < slab.count:
                # once the queue is full it accepts no further message: the accepted ones are the first ones
                if slab.error(done) != KafkaError._QUEUE_FULL:
                    # with another error, any of the messages may be the rejected one
                    raise self._refused(KafkaError(next(filter(None, map(slab.error, range(slab.count))))), topic)
                patience = self._wait(topic, patience)

    def _hand_over(self, library: _Library, topic: str, slab: Slab, start: int, partition: int) -> int:
        place = library.topic_new(self._client, topic.encode(), None)
        if place is None:
            raise BusFatalError(f"produce to {topic}: the Kafka client rejects this topic")
        try:
            taken: int = library.produce_batch(place, partition, _COPY, slab.address(start), slab.count - start)
        finally:
            library.topic_destroy(place)
        return taken

    def close(self) -> None:
        # the Python client destroys the `rd_kafka_t`: nothing may be passed to it any more
        self._library = self._client = None
        super().close()
