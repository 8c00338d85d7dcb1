"""The position of capture with LogMiner: its saved form, and where a new capture begins.

A session mines all threads at once, so the resumes of all threads are equal; they are written in one Kafka transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from lowwater.errors import IncarnationError, SourceError, StartRefusedError
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.thread_snapshot import Start, txid_text

_FORMAT = "logminer 1"


@dataclass(frozen=True, slots=True)
class Resume:
    incarnation: str
    #: mining begins here: at the begin of the oldest open transaction
    start: int
    #: commits up to this SCN have been emitted; it is the mark of all threads
    read: int
    #: the SCN at which capture began
    since: Scn
    #: open at `read`, with changes: they must be found again
    open: list[int] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)
    #: closed threads that have been mined completely: they may disappear from the database
    finished: list[int] = field(default_factory=list)

    def pack(self) -> bytes:
        raw = [
            _FORMAT, self.incarnation, self.start, self.read, self.since, self.open, self.left_out, self.finished
        ]  # fmt: skip
        return json.dumps(raw, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Resume:
        try:
            name, incarnation, start, read, since, opened, left_out, finished = json.loads(data)
        except (ValueError, TypeError) as error:
            raise SourceError(f"the saved resume is not one of LogMiner: {error}", hint=_RESET) from error
        if name != _FORMAT:
            raise SourceError(f"the saved resume is {name!r}, this is {_FORMAT!r}", hint=_RESET)
        return cls(incarnation, start, read, since, opened, left_out, finished)


_RESET = "the `capture` setting of an existing source cannot be changed: reset the source to start capture again"


def resumed(source: str, incarnation: str, saved: Mapping[int, bytes]) -> Resume:
    """The position in the resumes of all threads."""
    resumes = {number: Resume.unpack(data) for number, data in saved.items()}
    for number, resume in resumes.items():
        if resume.incarnation != incarnation:
            raise IncarnationError(
                f"the position belongs to incarnation {resume.incarnation}, the database is {incarnation}",
                source=source,
                thread=number,
                hint="logs of two incarnations are never mixed: start capture again",
            )
    # a thread that was added later may have been registered with another position
    return min(resumes.values(), key=lambda resume: (resume.read, resume.start))


def fresh(
    source: str, incarnation: str, start: Start, *, oldest_scn: Scn, leave_out: bool
) -> tuple[Resume, list[tuple[int, str, str]]]:
    """The resume of a new capture, which begins at the oldest open transaction, and the left-out transactions.

    `oldest_scn`: no log is missing from this SCN on. Left-out transactions are (thread, txid, why).
    """
    # 0: the begin is unknown
    gone = [each for each in start.open if not each.start_scn or each.start_scn < oldest_scn]
    if gone and not leave_out:
        first = min(gone, key=lambda each: each.start_scn)
        raise StartRefusedError(
            f"{len(gone)} open transactions began in logs that are gone; the oldest is {txid_text(first.xid)}, "
            f"which began at SCN {first.start_scn or 'unknown'}",
            source=source,
            thread=first.thread or None,
            position=f"SCN {oldest_scn}",
            hint="restore the logs, wait for them to end, or set open_at_start: leave_out",
        )
    why = "it was open when capture began, and the log of its begin is gone"
    left_out = [(each.thread, txid_text(each.xid), f"{why}: SCN {each.start_scn}") for each in gone]
    first_scn = max(start.first_scn, oldest_scn) if gone else start.first_scn
    unread = sorted({*(each.xid for each in gone), *start.dead})
    return Resume(incarnation, first_scn, start.since, start.since, [], unread), left_out
