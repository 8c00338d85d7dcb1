"""Where a source begins in its changes topic when it joins, or when what the merger needs of that topic is gone.

Changes that were deleted before they were released leave a gap. Only a source that was captured from scratch since then
has no gap: of such a topic nothing counts that is older than that generation.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from lowwater import topics
from lowwater.bus.admin import Admin
from lowwater.bus.consumer import AssignedConsumer, read_to_end
from lowwater.config import KafkaConfig
from lowwater.errors import DataGoneError, LowwaterError, TopicError
from lowwater.record_codec import RecordCodec, decode_mark
from lowwater.records import Mark, Position
from lowwater_merger.release import SourceState

#: every partition is marked about once a second
_MARK_SECONDS_MAX = 20.0


@dataclass(frozen=True, slots=True)
class Start:
    topic_id: str
    offsets: Mapping[int, int]
    #: nothing of an earlier one counts
    generation: int = 0


class Joining:
    def __init__(self, kafka: KafkaConfig, admin: Admin, codec: RecordCodec, group: str) -> None:
        self._kafka, self._admin, self._codec, self._group = kafka, admin, codec, group

    def start_of(self, source: str, partitions: int, known: SourceState | None) -> Start | None:
        """None: it goes on where `known` is. TopicError, DataGoneError: it must be reset first."""
        topic = topics.changes(source)
        topic_id = self._admin.topic_id(topic)
        offsets = self._admin.first_offsets(topic, partitions)
        if known is None:
            is_whole = not any(offsets.values())
            return Start(topic_id, offsets, 0 if is_whole else self._generation_after_others(source, offsets))
        if known.topic_id != topic_id:
            what = f"topic {topic} was deleted and made again: changes that were not released are gone"
            return Start(topic_id, offsets, self._generation_after(known, TopicError, what))
        gone = [p for p, saved in known.saved.items() if saved.offset < offsets[p]]
        if not gone:
            return None
        place = f"{topic}[{gone[0]}] at {known.saved[gone[0]].offset}"
        what = f"{place}: changes that were not released were deleted; it begins at {offsets[gone[0]]} now"
        return Start(topic_id, offsets, self._generation_after(known, DataGoneError, what))

    def _generation_after(self, known: SourceState, error: type[LowwaterError], what: str) -> int:
        """Of a reset that came after what the merger knows."""
        position = last_position(self._kafka, self._codec, known.name)
        if position is None or position.generation <= known.generation:
            raise error(what, source=known.name, hint=self._reset(known.name))
        return position.generation

    def _generation_after_others(self, source: str, offsets: Mapping[int, int]) -> int:
        """Another group has released a part, and its merger has deleted that: a reset must have followed."""
        position = last_position(self._kafka, self._codec, source)
        first = self._first_generation(source, offsets)
        if position is None or first is None or position.generation <= first:
            what = f"{topics.changes(source)} does not begin at its beginning: another group has released a part of it"
            raise DataGoneError(what, source=source, hint=self._reset(source))
        return position.generation

    def _reset(self, source: str) -> str:
        return (
            f"`lowwater source reset {source} --yes --reason …` captures it from scratch, after all that was released; "
            f"then `lowwater group retry {self._group}`"
        )

    def _first_generation(self, source: str, offsets: Mapping[int, int]) -> int | None:
        """The oldest one that is left in the topic; None if it holds no mark."""
        header, topic = self._codec.headers[Mark.__name__], topics.changes(source)
        found: dict[int, int] = {}
        consumer = AssignedConsumer(self._kafka, "lowwater.state", {(topic, p): at for p, at in offsets.items()})
        deadline = time.monotonic() + _MARK_SECONDS_MAX
        try:
            while len(found) < len(offsets) and time.monotonic() < deadline:
                for message in consumer.consume(10_000, 0.5):
                    value = message.value() or b""
                    if value.startswith(header):
                        found.setdefault(message.partition() or 0, decode_mark(value).generation)
        finally:
            consumer.close()
        return min(found.values(), default=None)


def last_position(kafka: KafkaConfig, codec: RecordCodec, source: str) -> Position | None:
    """Where the extractor was; None if it has no position."""
    values = [message.value() or b"" for message in read_to_end(kafka, topics.positions(source))[0]]
    positions = [codec.decode(value, Position) for value in values if codec.record_type(value) is Position]
    return positions[-1] if positions else None
