"""Reads a source's position from its topic, and describes the effects of a change of it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from lowwater.errors import TopicMissingError
from lowwater.kafka import topics
from lowwater.kafka.consumer import read_to_end
from lowwater.records.codec import RecordCodec
from lowwater.records.positions import Order
from lowwater.records.types import Position, TableCopies, TableCopy
from lowwater.runtime.config import KafkaConfig
from lowwater_control.models import Positions, ThreadPlace
from lowwater_control.problems import FieldProblem, InvalidError


def read_position(kafka: KafkaConfig, codec: RecordCodec, source: str) -> tuple[Position | None, Sequence[TableCopy]]:
    """The last position and the copies of the source's tables; None and no copies before the first start."""
    try:
        messages, _ = read_to_end(kafka, topics.positions(source))
    except TopicMissingError:
        return None, ()
    values = [message.value() or b"" for message in messages]
    found = [codec.decode(v, Position) for v in values if codec.record_type(v) is Position]
    copies = [codec.decode(v, TableCopies) for v in values if codec.record_type(v) is TableCopies]
    return (found[-1] if found else None), (copies[-1].copies if copies else ())


def shown(position: Position) -> Positions:
    open_ = position.in_progress
    threads: list[dict[str, Any]] = [
        {
            "thread": t.thread,
            "state": t.state,
            "published": str(t.published),
            "mark": str(t.mark),
            "resume": base64.b64encode(t.resume).decode(),
        }
        for t in position.threads
    ]
    progress = None if open_ is None else {"thread": open_.thread, "txid": open_.txid, "changes": open_.changes}
    return Positions(
        source=position.source,
        incarnation=position.incarnation,
        epoch=position.epoch,
        clock_us=position.clock_us,
        in_progress=progress,
        threads=threads,
    )


def move_effects(position: Position, places: Sequence[ThreadPlace]) -> list[str]:
    """Describes which commits would be lost or read again. Raises InvalidError with the invalid field. Pure."""
    known = {t.thread: t for t in position.threads}
    effects = []
    for number, place in enumerate(places):
        thread = known.get(place.thread)
        if thread is None:
            names = ", ".join(map(str, sorted(known))) or "none"
            raise _invalid(number, "thread", f"there is no thread {place.thread}: known: {names}")
        try:
            mark, resume = Order.parse(place.mark), base64.b64decode(place.resume, validate=True)
        except (ValueError, binascii.Error) as error:
            raise _invalid(number, "mark or resume", str(error)) from None
        effects.append(
            f"thread {place.thread}: " + _effect(thread.mark, thread.published, mark, resume == thread.resume)
        )
    if len({place.thread for place in places}) < len(places):
        raise _invalid(len(places) - 1, "thread", "the same thread is given twice")
    return effects


def _effect(now: Order, published: Order, mark: Order, is_same: bool) -> str:
    if mark > now:
        return f"LOST: commits between {now} and {mark} are never read"
    if mark == now and is_same:
        return "nothing changes"
    return f"read again from {mark}; commits already published, up to {published}, are not published again"


def _invalid(number: int, field: str, what: str) -> InvalidError:
    return InvalidError(what, errors=[FieldProblem(field=f"threads.{number}.{field}", detail=what)])


def reset_effects(position: Position | None, copies: Sequence[TableCopy]) -> list[str]:
    if position is None:
        return ["nothing: there is no position yet"]
    effects = [
        f"thread {t.thread}: LOST: commits between {t.mark} and the next start, except rows that new copies contain"
        for t in position.threads
    ]
    if copies:
        effects.append(f"{len(copies)} tables are copied again")
    if position.in_progress is not None:
        effects.append(f"transaction {position.in_progress.txid}, which is partly published, is abandoned")
    return effects
