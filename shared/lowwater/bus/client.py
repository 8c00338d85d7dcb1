"""Client settings, and the one place where a KafkaError becomes an error of ours."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException

from lowwater.config import KafkaConfig
from lowwater.errors import BusDoubtError, BusError, BusFatalError, DataGoneError, FencedError, TopicMissingError
from lowwater.secrets import resolve
from lowwater.topics import MESSAGE_BYTES_MAX, MESSAGE_OVERHEAD_BYTES

_FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}
_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


def client_settings(kafka: KafkaConfig) -> dict[str, Any]:
    """What every client has; the operator's own settings (TLS, SASL, …) come last."""
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "message.max.bytes": MESSAGE_BYTES_MAX + MESSAGE_OVERHEAD_BYTES // 2,
        "log_level": 3,
        **{name: resolve(value) for name, value in kafka.client.items()},
    }


def as_bus_error(error: KafkaError | KafkaException, doing: str) -> BusError | DataGoneError:
    """The named exception for what Kafka said."""
    cause = error.args[0] if isinstance(error, KafkaException) else error
    what = f"{doing}: {cause.str()}"
    code = cause.code()
    if code in _FENCED:
        return FencedError(what, hint="another process took over this transactional id; this one must end")
    if code in _GONE:
        return DataGoneError(what, hint="the offsets that are needed were deleted; see docs/operations.md, data gone")
    if code in _MISSING:
        return TopicMissingError(what, hint="its writer makes it when it starts for the first time")
    if cause.fatal():
        return BusFatalError(what, hint="the client cannot go on; it is started anew")
    if cause.txn_requires_abort() or cause.retriable() or code in (KafkaError._TIMED_OUT, KafkaError._STATE):
        return BusDoubtError(what, hint="started anew from what Kafka holds")
    return BusError(what)
