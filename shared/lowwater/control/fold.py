"""The control topic: what operators want, folded from a log in which the first writer of a version wins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError, Message, Producer

from lowwater.control.commands import Change
from lowwater.errors import ControlConflictError
from lowwater.kafka import topics
from lowwater.kafka.client import as_bus_error, client_settings
from lowwater.kafka.consumer import AssignedConsumer, read_to_end
from lowwater.records.codec import RecordCodec
from lowwater.records.types import Control, Wanted
from lowwater.runtime.config import KafkaConfig
from lowwater.runtime.times import now_us


@dataclass(frozen=True, slots=True)
class ControlState:
    """What is wanted of one source or group, and the version of that."""

    version: int
    control: Control


def initial(kind: str, name: str) -> ControlState:
    return ControlState(0, Control(name=name, kind=kind, changes_version=0, wanted=Wanted.RUNNING, config=""))


class ControlFold:
    """Pure: records in, states out. A write that names another version than the last is passed over."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], ControlState] = {}

    @property
    def states(self) -> dict[tuple[str, str], ControlState]:
        """By kind and name."""
        return dict(self._states)

    def get(self, kind: str, name: str) -> ControlState:
        return self._states.get((kind, name)) or initial(kind, name)

    def excluded(self, source: str) -> frozenset[int]:
        """The threads of a source that some group excludes."""
        exclusions = (e for state in self._states.values() for e in state.control.exclusions)
        return frozenset(e.thread for e in exclusions if e.source == source)

    def apply(self, record: Control) -> bool:
        last = self.get(record.kind, record.name)
        if record.changes_version != last.version:
            return False
        self._states[(record.kind, record.name)] = ControlState(last.version + 1, record)
        return True


class ControlReader:
    """Follows the topic for one process."""

    def __init__(self, kafka: KafkaConfig, codec: RecordCodec, on_wait: Callable[[str], None] | None = None) -> None:
        self._codec = codec
        self.fold = ControlFold()
        messages, end = read_to_end(kafka, topics.CONTROL, on_wait=on_wait)
        for message in messages:
            self._apply(message.value())
        self._consumer = AssignedConsumer(kafka, "lowwater.control", {(topics.CONTROL, 0): end})

    def _apply(self, value: bytes | None) -> None:
        self.fold.apply(self._codec.decode(value or b"", Control))

    def poll(self) -> bool:
        """Take what is new, without waiting; whether there was something."""
        messages = self._consumer.consume(1000, 0)
        for message in messages:
            self._apply(message.value())
        return bool(messages)

    def close(self) -> None:
        self._consumer.close()


def next_word(last: ControlState, kind: str, name: str, change: Change) -> Control:
    """The record that says it: it names the version that it changes."""
    return replace(change(last.control), kind=kind, name=name, changes_version=last.version, at_us=now_us())


def conflict(kind: str, name: str) -> ControlConflictError:
    return ControlConflictError(
        f"{kind} {name} was changed by somebody else at the same moment", hint="look at it again, then repeat"
    )


def commit_word(kafka: KafkaConfig, key: bytes, value: bytes) -> int:
    """The offset that it got; durable when it returns. Whether it counts is known once it is read back."""
    results: list[tuple[KafkaError | None, Message]] = []
    producer = Producer({"enable.idempotence": True, "acks": "all", **client_settings(kafka)})
    producer.produce(topics.CONTROL, key=key, value=value, on_delivery=lambda *result: results.append(result))
    producer.flush()
    error, message = results[0]
    if error is not None:
        raise as_bus_error(error, f"write to {topics.CONTROL}")
    return message.offset() or 0


def commit_control(kafka: KafkaConfig, codec: RecordCodec, kind: str, name: str, change: Change) -> ControlState:
    """Write a changed state and read it back: durable when it returns, else ControlConflictError."""
    fold = ControlFold()
    messages, _ = read_to_end(kafka, topics.CONTROL)
    for message in messages:
        fold.apply(codec.decode(message.value() or b"", Control))
    last = fold.get(kind, name)
    offset = commit_word(kafka, codec.key(name), codec.encode(next_word(last, kind, name, change)))
    fold = ControlFold()
    won = False
    for message in read_to_end(kafka, topics.CONTROL)[0]:
        accepted = fold.apply(codec.decode(message.value() or b"", Control))
        # by its place: another writer may have said the same at the same microsecond
        if message.offset() == offset:
            won = accepted
    if not won:
        raise conflict(kind, name)
    return fold.get(kind, name)
