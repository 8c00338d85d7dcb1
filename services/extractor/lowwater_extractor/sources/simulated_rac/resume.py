"""Where to read on: what a resume holds, and where a fresh capture begins."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from lowwater.errors import IncarnationError, SourceError, StartRefusedError
from lowwater_extractor.sources.simulated_rac.log import Control, Layout, Place
from lowwater_extractor.sources.simulated_rac.reader import log_there

_FORMAT = 1


@dataclass(slots=True)
class Resume:
    """One thread's: (sequence, offset, LWN SCN), twice.

    `start` is where reading begins again: at or before the first record of all that was open. Up to `read`
    everything has been processed and handed over, and `mark` is what the thread's log had proved by then.
    """

    incarnation: str
    start: Place
    read: Place
    mark: int
    #: the SCN at which capture began
    since: int
    #: the transactions that have records in this thread and are open at `read`
    open: list[int] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)

    def pack(self) -> bytes:
        raw = [
            _FORMAT,
            self.incarnation,
            self.start,
            self.read,
            self.mark,
            self.since,
            self.open,
            self.left_out,
        ]
        return json.dumps(raw, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Resume:
        try:
            number, incarnation, start, read, mark, since, opened, left_out = json.loads(data)
        except ValueError as error:
            raise SourceError(f"the saved resume is not one of simulated_rac: {error}") from error
        if number != _FORMAT:
            raise SourceError(f"the saved resume has format {number}, this version knows {_FORMAT}")
        return cls(incarnation, Place(*start), Place(*read), mark, since, opened, left_out)


def resumed(source: str, control: Control, resumes: dict[int, Resume]) -> dict[int, Resume]:
    """The saved resumes, and the beginning of threads that were added since."""
    for number, resume in resumes.items():
        if resume.incarnation != control.incarnation:
            raise IncarnationError(
                f"the position belongs to incarnation {resume.incarnation}, the database is {control.incarnation}",
                source=source,
                thread=number,
                hint="logs of two incarnations are never mixed: begin capture anew",
            )
        if number not in control.threads:
            raise IncarnationError(
                f"the position names thread {number}, which the database does not have",
                source=source,
                thread=number,
            )
    added = {number: added_thread(control, number) for number in control.threads if number not in resumes}
    return {**resumes, **added}


def added_thread(control: Control, number: int) -> Resume:
    """A thread that was not there at the last look is read from its first log, with all that is in it."""
    info = control.threads[number]
    first = Place(info.first_sequence, 0)
    return Resume(control.incarnation, first, first, info.enabled_scn - 1, 0)


def fresh(
    source: str, layout: Layout, control: Control, *, leave_out: bool
) -> tuple[dict[int, Resume], list[tuple[int, str, str]]]:
    """Capture begins now; each thread is read from the first record of its oldest open transaction.

    So each transaction that commits above the control file's current SCN is whole. Returns the resumes and
    what is left out: (thread, txid, why).
    """
    oldest = {number: _oldest_log(layout, control, number) for number in control.threads}
    gone = {entry.xid: entry for entry in control.open if entry.sequence < oldest[entry.thread]}
    if gone and not leave_out:
        entry = min(gone.values(), key=lambda each: each.scn)
        raise StartRefusedError(
            f"{len(gone)} open transactions began in logs that are gone; the oldest is {entry.xid:016x}, "
            f"which began in log {entry.sequence} of thread {entry.thread}",
            source=source,
            thread=entry.thread,
            position=str(Place(entry.sequence, entry.offset)),
            hint="restore the log, wait for them to end, or set open_at_start: leave_out",
        )
    resumes = {}
    for number, info in control.threads.items():
        read = Place(info.sequence, info.offset)
        opened = [entry for entry in control.open if entry.thread == number and entry.xid not in gone]
        resumes[number] = Resume(
            incarnation=control.incarnation,
            start=min([read, *(Place(entry.sequence, entry.offset) for entry in opened)]),
            read=read,
            mark=0,
            since=control.current_scn,
            open=[entry.xid for entry in opened],
            left_out=sorted(gone),
        )
    why = "it was open when capture began, and the log of its begin is gone"
    left_out = [(entry.thread, f"{xid:016x}", f"{why}: {entry.sequence}") for xid, entry in gone.items()]
    return resumes, left_out


def _oldest_log(layout: Layout, control: Control, number: int) -> int:
    """The first log from which on all of this thread's are there."""
    sequence = control.threads[number].sequence
    needed = min((entry.sequence for entry in control.open if entry.thread == number), default=sequence)
    while sequence > needed and log_there(layout, control.groups, number, sequence - 1):
        sequence -= 1
    return sequence
