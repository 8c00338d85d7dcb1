"""Client settings, and the one place where a KafkaError becomes an error of ours."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from lowwater.errors import (
    BusDoubtError,
    BusError,
    BusFatalError,
    BusRefusedError,
    DataGoneError,
    FencedError,
    TopicMissingError,
)
from lowwater.kafka.client_log import CLIENT_LOGGER
from lowwater.kafka.topics import MESSAGE_BYTES_MAX, MESSAGE_OVERHEAD_BYTES
from lowwater.runtime.config import KafkaConfig
from lowwater.runtime.secrets import resolve

_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}
_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
#: how Kafka says who may not come in, and what to look at; the last are ACLs
_REFUSED = {
    KafkaError._AUTHENTICATION: "SASL: is kafka.client right (sasl.mechanism, sasl.username, sasl.password)?",
    KafkaError.SASL_AUTHENTICATION_FAILED: "SASL: is kafka.client right (sasl.username, sasl.password)?",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "SASL: the broker knows other mechanisms than kafka.client's sasl.mechanism",
    KafkaError._SSL: "TLS: is kafka.client right (ssl.ca.location, ssl.certificate.location), and the broker's name?",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "ACL: this user may not use that topic; see docs/operations/secure.md",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "ACL: this user may not use that group; see docs/operations/secure.md",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "ACL: this user may not do that; see docs/operations/secure.md",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "ACL: this user may not use that transactional id",
}
#: a client that met nothing worse for this long is getting on by itself
_RECENT_SECONDS = 10.0


class ClientErrors:
    """What a client met, by its own account (`error_cb`); the client goes on trying meanwhile.

    Apart from the client's owner: a client that its own callbacks lead back to would live on, with its threads, until
    the garbage collector comes by.
    """

    def __init__(self) -> None:
        self.count = 0
        self._last: tuple[float, KafkaError] | None = None
        self._refused: tuple[float, KafkaError] | None = None

    def __call__(self, error: KafkaError) -> None:
        self.count += 1
        now = time.monotonic()
        if error.code() in _REFUSED:
            self._refused = (now, error)
        elif error.code() != KafkaError._ALL_BROKERS_DOWN or self._last is None:
            # "all brokers are down" comes behind what is the matter with each of them
            self._last = (now, error)

    @property
    def text(self) -> str:
        """The last thing that it met, if that is not long ago; of all the worst."""
        for met in (self._refused, self._last):
            if met is not None and time.monotonic() - met[0] < _RECENT_SECONDS:
                return str(met[1].str())
        return ""

    def check(self, doing: str) -> None:
        """Raises BusRefusedError where Kafka does not take us: that does not pass by waiting."""
        if self._refused is not None and time.monotonic() - self._refused[0] < _RECENT_SECONDS:
            raise as_bus_error(self._refused[1], doing)


def client_settings(kafka: KafkaConfig) -> dict[str, Any]:
    """What every client has; the operator's own settings (TLS, SASL, …) come last."""
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "message.max.bytes": MESSAGE_BYTES_MAX + MESSAGE_OVERHEAD_BYTES // 2,
        "log_level": 3,
        "logger": CLIENT_LOGGER,
        **{name: resolve(value) for name, value in kafka.client.items()},
    }


def as_bus_error(error: KafkaError | KafkaException, doing: str) -> BusError | DataGoneError:
    """The named exception for what Kafka said."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    what = f"{doing}: {cause.str()}"
    code = cause.code()
    if code in _FENCED:
        return FencedError(what, hint="another process took over this transactional id; this one must end")
    if code in _REFUSED:
        return BusRefusedError(what, hint=_REFUSED[code])
    if code in _GONE:
        return DataGoneError(what, hint="the offsets that are needed were deleted; see docs/operations.md, data gone")
    if code in _MISSING:
        return TopicMissingError(what, hint="its writer makes it when it starts for the first time")
    if cause.fatal():
        return BusFatalError(what, hint="the client cannot go on; a new one does")
    if cause.txn_requires_abort() or cause.retriable() or code in (KafkaError._TIMED_OUT, KafkaError._STATE):
        return BusDoubtError(what, hint="a new session goes on from what Kafka holds")
    return BusError(what)
