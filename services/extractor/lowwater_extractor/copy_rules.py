"""What must be copied, and what has landed: the decisions behind `copies.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any, Protocol

from lowwater import topics
from lowwater.bus.consumer import AssignedConsumer, read_to_end
from lowwater.codec.table import TableSchema
from lowwater.config import KafkaConfig
from lowwater.record_codec import RecordCodec
from lowwater.records import Landed, TableCopy

#: readers widen these by themselves: rows of the old version stay what they were
WIDENINGS = {("int", "long"), ("float", "double"), ("int", "double")}


class LandedSet(Protocol):
    def poll(self) -> None: ...

    def has_all(self, copy: TableCopy) -> bool: ...

    def close(self) -> None: ...


class LandedChunks:
    """Which chunks have landed, as the ledger topic tells it."""

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


def wanted_tables(tables: Sequence[TableSchema], copies: Mapping[str, TableCopy], landed: LandedSet) -> list[str]:
    """Those that must be copied, or copied anew: the view of a copy that is not whole is gone with its process."""
    found = []
    for table in tables:
        copy = copies.get(table.full_name)
        if copy is None or not (copy.is_copied or landed.has_all(copy)):
            found.append(table.full_name)
    return found


def given_up_tables(tables: Sequence[TableSchema], copies: Mapping[str, TableCopy], landed: LandedSet) -> list[str]:
    """Those whose copy is not whole, and is not wanted any more: they were dropped, or taken out of the config."""
    wanted = {table.full_name for table in tables}
    unfinished = [c.table for c in copies.values() if not (c.is_copied or landed.has_all(c))]
    return [table for table in unfinished if table not in wanted]


def needs_copy(old: Mapping[str, Any], new: Mapping[str, Any], filled: Set[str]) -> bool:
    """Whether the rows must be copied anew, because the log does not tell what became of them with the columns.

    Column → Avro type. `filled`: columns that also have a value in rows which are older than they are.
    """
    added, removed = new.keys() - old.keys(), old.keys() - new.keys()
    if added and removed:
        return True  # it may be a new name for an old column
    if added & filled:
        return True
    changed = [(old[name], new[name]) for name in old.keys() & new.keys() if old[name] != new[name]]
    return any((str(before), str(after)) not in WIDENINGS for before, after in changed)


def avro_columns(schema: str) -> dict[str, Any]:
    """Column → type, of the Avro schema of a table version's changes."""
    row = next(f for f in json.loads(schema)["fields"] if f["name"] == "before")["type"][1]
    return {field.get("lowwater_column", field["name"]): field["type"][1] for field in row["fields"]}
