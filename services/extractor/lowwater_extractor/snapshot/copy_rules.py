"""Rules for `copies.py`: which tables must be copied, and which chunks have landed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Protocol

from lowwater.codec.table import TableSchema
from lowwater.kafka import topics
from lowwater.kafka.consumer import AssignedConsumer, read_to_end
from lowwater.records.codec import RecordCodec
from lowwater.records.types import Landed, TableCopy
from lowwater.runtime.config import KafkaConfig
from lowwater.runtime.recovery import Next, Saved, decide, step_of

#: type changes that readers apply themselves: rows of the old version remain valid
WIDENINGS = {("int", "long"), ("float", "double"), ("int", "double")}


class LandedSet(Protocol):
    def poll(self) -> None: ...

    def has_all(self, copy: TableCopy) -> bool: ...

    def close(self) -> None: ...


class LandedChunks:
    """The chunks that have landed, read from the ledger topic."""

    def __init__(self, kafka: KafkaConfig, codec: RecordCodec, group: str) -> None:
        self._codec = codec
        self._by_copy: dict[str, set[int]] = {}
        topic = topics.ledger(group)
        messages, end = read_to_end(kafka, topic)
        self._take(messages)
        self._consumer = AssignedConsumer(kafka, "lowwater.copies", {(topic, 0): end})

    def _take(self, messages: Sequence[Any]) -> None:
        for message in messages:
            value = message.value() or b""
            if self._codec.record_type(value) is Landed:
                for chunk in self._codec.decode(value, Landed).chunks:
                    self._by_copy.setdefault(chunk.copy, set()).add(chunk.chunk)

    def poll(self) -> None:
        self._take(self._consumer.consume(1_000, 0.0))

    def has_all(self, copy: TableCopy) -> bool:
        return len(self._by_copy.get(copy.copy, ())) >= copy.chunks

    def close(self) -> None:
        self._consumer.close()


def next_of(table: str, copy: TableCopy | None, landed: LandedSet, wanted: Set[str]) -> Next[str]:
    """Return what to do with a table's copy at a start. The view of an incomplete copy ended with its process."""
    saved: Saved[str] = Saved(None)
    if copy is not None:
        saved = Saved(copy.copy) if copy.is_over else Saved(None, step_of(copy.copy, table))
    is_whole = copy is not None and landed.has_all(copy)
    return decide(saved, {table} if is_whole else frozenset(), wanted)


def wanted_tables(tables: Sequence[TableSchema], copies: Mapping[str, TableCopy], landed: LandedSet) -> list[str]:
    """Return the tables that must be copied, for the first time or again."""
    names = [table.full_name for table in tables]
    return [name for name in names if next_of(name, copies.get(name), landed, {name}).start is None]


def given_up_tables(tables: Sequence[TableSchema], copies: Mapping[str, TableCopy], landed: LandedSet) -> list[str]:
    """Return the tables with an incomplete copy that were dropped or removed from the config."""
    wanted = {table.full_name for table in tables}
    gone = [copy for name, copy in copies.items() if next_of(name, copy, landed, wanted).gone]
    return [copy.table for copy in gone if not landed.has_all(copy)]


def needs_copy(old: Mapping[str, Any], new: Mapping[str, Any], filled: Set[str]) -> bool:
    """Return whether the table must be copied again because its rows changed with the columns, without log records.

    `old`, `new`: column → Avro type. `filled`: columns that have a value also in rows older than the column.
    """
    added, removed = new.keys() - old.keys(), old.keys() - new.keys()
    if added and removed:
        return True  # a column may have been renamed
    if added & filled:
        return True
    changed = [(old[name], new[name]) for name in old.keys() & new.keys() if old[name] != new[name]]
    return any((str(before), str(after)) not in WIDENINGS for before, after in changed)
