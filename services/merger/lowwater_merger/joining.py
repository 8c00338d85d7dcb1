"""The start offsets of a source in its changes topic: when it joins, or when records that are needed were deleted.

Changes deleted before their release leave a gap. The source can only continue if it was captured from scratch since
then; records older than that generation are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lowwater.errors import DataGoneError, LowwaterError, TopicError
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.kafka.consumer import read_to_end
from lowwater.records.codec import RecordCodec
from lowwater.records.types import Position
from lowwater.runtime.config import KafkaConfig
from lowwater_merger.core.release import SourceState


@dataclass(frozen=True, slots=True)
class Start:
    topic_id: str
    offsets: Mapping[int, int]
    #: records of earlier generations are ignored
    generation: int = 0


class Joining:
    def __init__(self, kafka: KafkaConfig, admin: Admin, codec: RecordCodec, group: str) -> None:
        self._kafka, self._admin, self._codec, self._group = kafka, admin, codec, group

    def start_of(self, source: str, partitions: int, known: SourceState | None) -> Start | None:
        """Where to start reading the source; None: continue at the offsets of `known`.

        Raises TopicError or DataGoneError if changes are missing and the source must be reset first.
        """
        topic = topics.changes(source)
        topic_id = self._admin.topic_id(topic)
        offsets = self._admin.first_offsets(topic, partitions)
        error: type[LowwaterError] = DataGoneError
        if known is None:
            if not any(offsets.values()):
                return Start(topic_id, offsets)
            what = f"the first records of {topic} were deleted: another group has released a part of it"
        elif known.topic_id != topic_id:
            error = TopicError
            what = f"topic {topic} was deleted and made again: changes that were not released are lost"
        elif gone := [p for p, saved in known.saved.items() if saved.offset < offsets[p]]:
            place = f"{topic}[{gone[0]}] at {known.saved[gone[0]].offset}"
            what = f"{place}: changes that were not released were deleted; the first offset is {offsets[gone[0]]} now"
        else:
            return None
        position = last_position(self._kafka, self._codec, source)
        if position is None or not is_whole(position, topic_id, offsets, known.generation if known else -1):
            raise error(
                what,
                source=source,
                hint=f"`lowwater source reset {source} --yes --reason …` captures it from scratch, after all released "
                f"transactions; then `lowwater group retry {self._group}`",
            )
        return Start(topic_id, offsets, position.generation)


def is_whole(position: Position, topic_id: str, offsets: Mapping[int, int], generation: int) -> bool:
    """Whether the topic has all records of the position's generation, and that generation is later than `generation`.

    `offsets`: the first retained offset of each partition. A source that was reset and not started since has published
    nothing yet, so nothing is missing. Pure.
    """
    if position.generation <= generation:
        return False
    if not position.topic_id:
        return True
    starts = dict(enumerate(position.starts))
    return position.topic_id == topic_id and all(first <= starts.get(p, -1) for p, first in offsets.items())


def last_position(kafka: KafkaConfig, codec: RecordCodec, source: str) -> Position | None:
    """The extractor's last position; None if it has none."""
    values = [message.value() or b"" for message in read_to_end(kafka, topics.positions(source))[0]]
    positions = [codec.decode(value, Position) for value in values if codec.record_type(value) is Position]
    return positions[-1] if positions else None
