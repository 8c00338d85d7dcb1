"""Settings of all Kafka clients, and the conversion of KafkaError to lowwater's errors."""

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
#: error codes by which Kafka denies access, and what to check
_REFUSED = {
    KafkaError._AUTHENTICATION: "SASL: is kafka.client right (sasl.mechanism, sasl.username, sasl.password)?",
    KafkaError.SASL_AUTHENTICATION_FAILED: "SASL: is kafka.client right (sasl.username, sasl.password)?",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "SASL: the broker does not support sasl.mechanism of kafka.client",
    KafkaError._SSL: "TLS: is kafka.client right (ssl.ca.location, ssl.certificate.location), and the broker's name?",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "ACL: this user may not use that topic; see docs/operations/secure.md",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "ACL: this user may not use that group; see docs/operations/secure.md",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "ACL: this user may not do that; see docs/operations/secure.md",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "ACL: this user may not use that transactional id",
}
#: after this time without an error the client has recovered
_RECENT_SECONDS = 10.0


class ClientErrors:
    """The errors that a client reports (`error_cb`) while it retries.

    Not a method of the client's owner: a reference cycle through the callback would keep the client and its threads
    alive until the next garbage collection.
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
            # "all brokers are down" follows the errors of the single brokers, which have the cause
            self._last = (now, error)

    @property
    def text(self) -> str:
        """The last recent error, "" if there is none. Denied access takes precedence."""
        for met in (self._refused, self._last):
            if met is not None and time.monotonic() - met[0] < _RECENT_SECONDS:
                return str(met[1].str())
        return ""

    def check(self, doing: str) -> None:
        """Raises BusRefusedError if Kafka has denied access: waiting does not help then."""
        if self._refused is not None and time.monotonic() - self._refused[0] < _RECENT_SECONDS:
            raise as_bus_error(self._refused[1], doing)


def client_settings(kafka: KafkaConfig) -> dict[str, Any]:
    """The settings of every client; the operator's own (TLS, SASL, …) take precedence."""
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "message.max.bytes": MESSAGE_BYTES_MAX + MESSAGE_OVERHEAD_BYTES // 2,
        "log_level": 3,
        "logger": CLIENT_LOGGER,
        **{name: resolve(value) for name, value in kafka.client.items()},
    }


def as_bus_error(error: KafkaError | KafkaException, doing: str) -> BusError | DataGoneError:
    """Converts an error of Kafka to one of lowwater's classes."""
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
        return TopicMissingError(what, hint="its writer creates it at its first start")
    if cause.fatal():
        return BusFatalError(what, hint="the client cannot continue; a new client is created")
    if cause.txn_requires_abort() or cause.retriable() or code in (KafkaError._TIMED_OUT, KafkaError._STATE):
        return BusDoubtError(what, hint="a new session continues from the state in Kafka")
    return BusError(what)
