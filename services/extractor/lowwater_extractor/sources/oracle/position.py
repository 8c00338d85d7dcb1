"""The position of a redo thread: its saved form, and where a new capture begins."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from lowwater.errors import IncarnationError, LogGapError, SourceError, StartRefusedError
from lowwater_extractor.sources.oracle.redo.file_header import LogHeader
from lowwater_extractor.sources.oracle.redo.files import LogFiles, read_header
from lowwater_extractor.sources.oracle.redo.layout import Place
from lowwater_extractor.sources.oracle.scn import LOWEST, Scn
from lowwater_extractor.sources.oracle.thread_snapshot import OpenTransaction, Start, ThreadSnapshot, txid_text

_FORMAT = 1
_HINT = "logs of two incarnations are never mixed: start capture again"

#: (thread, txid, why)
LeftOut = tuple[int, str, str]


@dataclass(slots=True)
class Resume:
    """The saved position of one thread: two places (sequence, offset, record in the LWN) and the mark.

    `start` is where reading begins after a restart: at or before the first record of all open transactions. All records
    before `read` have been processed and their transactions emitted; `mark` is the thread's mark at `read`.
    """

    incarnation: str
    start: Place
    read: Place
    mark: Scn
    #: the SCN at which capture began
    since: Scn
    #: transactions that began below this SCN had ended at `since`; their end may be in a log that is not read
    low: Scn = LOWEST
    #: the transactions that have records in this thread and are open at `read`
    open: list[int] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)

    def pack(self) -> bytes:
        places = [list(self.start), list(self.read), self.mark, self.since, self.low]
        raw = [_FORMAT, self.incarnation, *places, self.open, self.left_out]
        return json.dumps(raw, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Resume:
        try:
            number, incarnation, start, read, mark, since, low, opened, left_out = json.loads(data)
        except ValueError as error:
            raise SourceError(f"the saved resume is not one of a redo thread: {error}") from error
        if number != _FORMAT:
            raise SourceError(f"the saved resume has format {number}, this version supports {_FORMAT}")
        return cls(incarnation, Place(*start), Place(*read), mark, since, low, opened, left_out)


def resumed(
    source: str, incarnation: str, look: ThreadSnapshot, resumes: dict[int, Resume], files: LogFiles
) -> dict[int, Resume]:
    """The saved resumes, and resumes for threads that were added since."""
    for number, resume in resumes.items():
        if resume.incarnation != incarnation:
            raise IncarnationError(
                f"the position belongs to incarnation {resume.incarnation}, the database is {incarnation}",
                source=source,
                thread=number,
                hint=_HINT,
            )
        if number not in look.threads:
            raise IncarnationError(
                f"the position names thread {number}, which the database does not have", source=source, thread=number
            )
    since = max(resume.since for resume in resumes.values())
    added = look.threads.keys() - resumes.keys()
    return {**resumes, **{number: added_thread(source, incarnation, look, number, since, files) for number in added}}


def added_thread(
    source: str, incarnation: str, look: ThreadSnapshot, number: int, since: Scn, files: LogFiles
) -> Resume:
    """The resume of a thread that was not in the last snapshot: it is read from its first log."""
    enabled = look.threads[number].enabled_scn
    sequence, first_scn = log_with(files, number, look, enabled)
    if first_scn > max(enabled, since):
        raise LogGapError(
            f"thread {number} was enabled at SCN {enabled}, but its oldest log, {sequence}, begins at {first_scn}",
            source=source,
            thread=number,
            position=str(Place(sequence, 0)),
            hint=f"restore the logs of thread {number} before sequence {sequence} to the archive",
        )
    first = Place(sequence, 0)
    return Resume(incarnation, first, first, Scn(enabled - 1), since)


def fresh(
    source: str, incarnation: str, look: ThreadSnapshot, start: Start, files: LogFiles, *, leave_out: bool
) -> tuple[dict[int, Resume], list[LeftOut]]:
    """The resumes of a new capture: each thread is read from the log in which the oldest open transaction began.

    So each transaction that commits above `start.since` is complete. Returns the resumes and the transactions that are
    left out because the log of their begin is gone; raises StartRefusedError if there are any and not `leave_out`.
    """
    logs = {number: log_with(files, number, look, start.first_scn) for number in look.threads}
    gone = {each.xid: each for each in start.open if _is_gone(each, logs)}
    if gone and not leave_out:
        raise _refused(source, min(gone.values(), key=lambda each: each.start_scn), len(gone))
    # from this SCN on all threads are read, so the end of a transaction that begins at or above it is not missed
    low = min([start.first_scn, max(first_scn for _, first_scn in logs.values())])
    resumes = {}
    for number, (sequence, _) in logs.items():
        first = Place(sequence, 0)
        resumes[number] = Resume(
            incarnation, first, first, Scn(0), start.since, Scn(low), [], sorted({*gone, *start.dead})
        )
    why = "it was open when capture began, and the log of its begin is gone"
    return resumes, [(each.thread, txid_text(xid), f"{why}: SCN {each.start_scn}") for xid, each in gone.items()]


def _is_gone(each: OpenTransaction, logs: dict[int, tuple[int, int]]) -> bool:
    """Whether the log of its begin is gone, or its begin is unknown."""
    if not each.thread or not each.start_scn:
        return True
    return each.thread in logs and each.start_scn < logs[each.thread][1]


def log_with(files: LogFiles, thread: int, look: ThreadSnapshot, scn: Scn) -> tuple[int, int]:
    """Sequence and first SCN of the log that contains `scn`, or of the oldest log after which none is missing."""
    sequence = look.threads[thread].sequence
    # a closed thread whose last log is gone is read from its next log, which is above all open transactions
    found = (sequence + 1, 0)
    while sequence > 0:
        path = files.find_online(thread, sequence) or files.find_archived(thread, sequence)
        head = None if path is None else read_header(path)
        if not isinstance(head, LogHeader) or head.sequence != sequence:
            break
        found = (sequence, head.first_scn)
        if head.first_scn <= scn:
            break
        sequence -= 1
    return found


def _refused(source: str, oldest: OpenTransaction, count: int) -> StartRefusedError:
    return StartRefusedError(
        f"{count} open transactions began in logs that are gone; the oldest is {txid_text(oldest.xid)}, "
        f"which began at SCN {oldest.start_scn or 'unknown'} in thread {oldest.thread or 'unknown'}",
        source=source,
        thread=oldest.thread or None,
        position=str(oldest.start_scn),
        hint="restore the log, wait for them to end, or set open_at_start: leave_out",
    )
