"""The control topic: its records folded to the desired state. The first writer of a version wins."""

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
    """The desired state of one source or group, and its version."""

    version: int
    control: Control


def initial(kind: str, name: str) -> ControlState:
    return ControlState(0, Control(name=name, kind=kind, changes_version=0, wanted=Wanted.RUNNING, config=""))


class ControlFold:
    """The state by kind and name. Pure. A record whose `changes_version` is not the last version is ignored."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], ControlState] = {}

    @property
    def states(self) -> dict[tuple[str, str], ControlState]:
        """By kind and name."""
        return dict(self._states)

    def get(self, kind: str, name: str) -> ControlState:
        return self._states.get((kind, name)) or initial(kind, name)

    def excluded(self, source: str) -> frozenset[int]:
        """The threads of a source that any group excludes."""
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
        """Applies new records, without waiting; returns whether there were any."""
        messages = self._consumer.consume(1000, 0)
        for message in messages:
            self._apply(message.value())
        return bool(messages)

    def close(self) -> None:
        self._consumer.close()


def next_command(last: ControlState, kind: str, name: str, change: Change) -> Control:
    """The record for this change of the last version."""
    return replace(change(last.control), kind=kind, name=name, changes_version=last.version, at_us=now_us())


def conflict(kind: str, name: str) -> ControlConflictError:
    return ControlConflictError(
        f"{kind} {name} was changed by another writer at the same time", hint="read its state again, then repeat"
    )


def commit_command(kafka: KafkaConfig, key: bytes, value: bytes) -> int:
    """Writes a control record; it is durable when this returns. Returns its offset.

    Whether it was accepted is known once it has been read back.
    """
    results: list[tuple[KafkaError | None, Message]] = []
    producer = Producer({"enable.idempotence": True, "acks": "all", **client_settings(kafka)})
    producer.produce(topics.CONTROL, key=key, value=value, on_delivery=lambda *result: results.append(result))
    producer.flush()
    error, message = results[0]
    if error is not None:
        raise as_bus_error(error, f"write to {topics.CONTROL}")
    return message.offset() or 0


def commit_control(kafka: KafkaConfig, codec: RecordCodec, kind: str, name: str, change: Change) -> ControlState:
    """Writes a changed state and reads it back; it is durable when this returns. Raises ControlConflictError."""
    fold = ControlFold()
    messages, _ = read_to_end(kafka, topics.CONTROL)
    for message in messages:
        fold.apply(codec.decode(message.value() or b"", Control))
    last = fold.get(kind, name)
    offset = commit_command(kafka, codec.key(name), codec.encode(next_command(last, kind, name, change)))
    fold = ControlFold()
    won = False
    for message in read_to_end(kafka, topics.CONTROL)[0]:
        accepted = fold.apply(codec.decode(message.value() or b"", Control))
        # identified by its offset: another writer may have written an equal record in the same microsecond
        if message.offset() == offset:
            won = accepted
    if not won:
        raise conflict(kind, name)
    return fold.get(kind, name)
