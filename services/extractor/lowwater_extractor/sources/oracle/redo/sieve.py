"""What of the vectors matters, given which objects are captured. Works on one step of the scan at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowwater_extractor.sources.oracle.redo import codes, opcodes
from lowwater_extractor.sources.oracle.redo.layout import (
    COMMIT_ROLLED_BACK,
    SESSION_LOGMINER,
    SESSION_SPACE,
    TYP_ENCRYPTED,
    UNDO_PARTS,
    opcode_text,
)
from lowwater_extractor.sources.oracle.redo.opcodes import Kind
from lowwater_extractor.sources.oracle.redo.scan import Ints, Payload, Step, Words

_KINDS = opcodes.kinds()
_KIND_COUNT = len(Kind)

#: what a record's last vectors were, if not a captured 5.1 (which is ≥ 0)
_NONE, _OTHER_UNDO, _HIDDEN_UNDO = -1, -2, -3

#: an undo block holds no vector of 5.1 that is smaller
_UNDO_BYTES_MIN = 84

#: 24.1: kinds of statement that are about temporary objects
_DDL_TEMPORARY = np.array((4, 5, 6, 8, 9, 10))

_ENCRYPTED_HINT = "redo of an encrypted tablespace cannot be read: move the table, or capture it with LogMiner"
_REPORT_HINT = "nothing is passed over unread: report it with the log, or leave the table out of capture"


class Captured(NamedTuple):
    """What is captured: (container, object id) of tables and partitions, and (container, data object id) of both."""

    objects: frozenset[tuple[int, int]]
    data_objects: frozenset[tuple[int, int]]
    #: rows of objects above this number are taken, too: nobody knows yet who they are
    newest: int = (1 << 32) - 1

    @classmethod
    def of(cls, objects: Iterable[tuple[int, int]], data_objects: Iterable[tuple[int, int]] | None = None) -> Captured:
        """Without data objects: they have the objects' numbers, as long as a table was never moved or truncated."""
        chosen = frozenset(objects)
        return cls(chosen, chosen if data_objects is None else frozenset(data_objects))


class Problem(NamedTuple):
    """A vector that stops the source. `at` is its position in the payload."""

    at: int
    what: str
    hint: str


class Found(NamedTuple):
    """Events side by side, in no order."""

    record: Ints
    #: the vector that the event stands at, and the bytes that it carries
    place: Ints
    start: Ints
    stop: Ints
    container: Ints
    xid: Words
    code: Ints
    value: Ints
    flags: Ints
    split: Ints

    def at(self, which: Ints) -> Found:
        return Found(*(column[which] for column in self))  # type: ignore[arg-type]  # each keeps its own type


class _Keys:
    """A set of numbers that many are looked up in at once."""

    def __init__(self, keys: Iterable[int]) -> None:
        # the last one is never looked for: it makes every search end inside
        self._sorted = np.array([*sorted(set(keys)), 1 << 62], np.int64)

    def has(self, keys: Ints) -> NDArray[np.bool_]:
        return np.asarray(self._sorted[np.searchsorted(self._sorted, keys)] == keys)


class Sieve:
    """One slice's vectors, step after step; then `found()` and `problems`."""

    def __init__(self, captured: Captured, *, pass_idle: bool = False) -> None:
        self._pass_idle = pass_idle
        self._newest = captured.newest
        self._objects = _Keys(container << 32 | number for container, number in captured.objects)
        self._data_objects = _Keys(container << 32 | number for container, number in captured.data_objects)
        #: what a vector's header tells of its object: 16 bits of the data object id
        self._low = _Keys(container << 16 | number & 0xFFFF for container, number in captured.data_objects)
        self._containers = _Keys(container for container, _ in captured.objects | captured.data_objects)
        self._actions: dict[Kind, Callable[[Step, Ints], None]] = {
            Kind.BEGIN: self._begin,
            Kind.COMMIT: self._commit,
            Kind.STATE: self._prepare,
            Kind.SESSION: self._session_of,
            Kind.DDL: self._ddl,
            Kind.LOAD: self._load,
            Kind.UNKNOWN: self._unknown,
        }

    def begin(self, payload: Payload, records: int) -> None:
        self._payload = payload
        self._big = payload.form.order == ">"
        self.problems: list[Problem] = []
        self._found: list[Found] = []
        #: of each record: the captured 5.1 whose partner may come next, and the first of 11.x without a 5.1
        self._pair = np.full(records, _NONE, np.int64)
        self._lone = np.full(records, -1, np.int64)
        #: of each record: the flags of the session that began a transaction there
        self._session = np.zeros(records, np.int64)
        #: of each captured 5.1: where its partner ends, and the partner's opcode
        self._stop = np.empty(payload.size // _UNDO_BYTES_MIN + 1, np.int64)
        self._partner = np.zeros(len(self._stop), np.int64)
        self._count = 0
        self._undo_chunks: list[tuple[int, int]] = []
        #: 11.x that belong to no 5.1: good only if a 5.6 or 5.11 stands behind them
        self._suspects: list[tuple[Ints, Ints]] = []
        self._undone: list[tuple[Ints, Ints]] = []

    def see(self, step: Step) -> None:
        kind = _KINDS[step.opcode]
        counts = np.bincount(kind, minlength=_KIND_COUNT)
        if counts[Kind.ROW]:
            self._rows(step, np.flatnonzero(kind == Kind.ROW))
        if counts[Kind.UNDONE]:
            self._undo_of(step, np.flatnonzero(kind == Kind.UNDONE))
        if counts[Kind.ROW] < len(kind):
            behind = step.record[kind != Kind.ROW]
            self._pair[behind] = _NONE
            self._lone[behind] = -1
        if counts[Kind.UNDO]:
            self._undo(step, np.flatnonzero(kind == Kind.UNDO))
        for one, act in self._actions.items():
            if counts[one]:
                act(step, np.flatnonzero(kind == one))

    def found(self, lwn: Ints) -> Found | None:
        """All events, once all steps were seen; `lwn` is that of each record."""
        self._check_suspects()
        # what was only known later: the ends of pairs, the flags of sessions
        for chunk, first in self._undo_chunks:
            part = self._found[chunk]
            those = slice(first, first + len(part.record))
            partner = self._partner[those]
            split = np.where(partner, part.split, 0)
            self._found[chunk] = part._replace(stop=self._stop[those], code=codes.ROW | partner, split=split)
        if not self._found:
            return None
        whole = Found(*(np.concatenate(column) for column in zip(*self._found, strict=True)))
        if self._pass_idle and len(whole.record):
            whole = whole.at(np.flatnonzero(~_idle(whole, lwn[whole.record])))
        begins = np.flatnonzero(whole.code == codes.BEGIN)
        session = self._session[whole.record[begins]]
        whole.value[begins] = session
        whole.code[begins] |= np.where(session & (SESSION_SPACE | SESSION_LOGMINER), codes.FLAG_SYSTEM, 0)
        return whole

    # --- rows and their undo

    def _undo(self, step: Step, rows: Ints) -> None:
        """5.1: the object id is in its second field."""
        record, container = step.record[rows], _word(step, rows, 12)
        hidden = self._typ(step, rows) & TYP_ENCRYPTED != 0
        self._pair[record] = np.where(hidden, _HIDDEN_UNDO, _OTHER_UNDO)
        short = ~hidden & ((step.fields[rows] < 2) | (_size(step, rows, 0) < 20) | (_size(step, rows, 1) < 24))
        if short.any():
            self._stop_at(step, rows[short & self._containers.has(container)], "a 5.1 without its undo", _REPORT_HINT)
        ktub = step.first[rows] + (_size(step, rows, 0) + 3 & ~3)
        good = ~hidden & ~short
        number = self._payload.u32[np.where(good, ktub, 0) >> 2].astype(np.int64)
        known = good & self._objects.has(container << 32 | number)
        young = good & ~known & (number > self._newest) & self._containers.has(container)
        good = self._row_undo(step, rows, ktub, known, young)
        mine = np.flatnonzero(good)
        if not len(mine):
            return
        rows, ktub, record = rows[mine], ktub[mine], record[mine]
        index = np.arange(self._count, self._count + len(mine))
        self._pair[record] = index
        self._stop[index] = step.stop[rows]
        self._undo_chunks.append((len(self._found), self._count))
        self._count += len(mine)
        size = step.stop[rows] - step.at[rows]
        xid = self._xid(step.first[rows] + 8)
        self._add(step, rows, xid, codes.ROW, value=number[mine], split=size >> 2, whole=True)

    def _row_undo(
        self, step: Step, rows: Ints, ktub: Ints, known: NDArray[np.bool_], young: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Of undo of captured objects, that of rows. The rest is on the list of what is passed over, or stops us.

        A young object may as well be an index, or anything: only its rows are of interest.
        """
        mine = known | young
        if not mine.any():
            return mine
        at = np.where(mine, ktub, 0)
        opc = self._payload.raw[at + 16].astype(np.int64) << 8 | self._payload.raw[at + 17]
        mine &= ~young | (opc == opcodes.ROW_UNDO)
        other = mine & (opc != opcodes.ROW_UNDO)
        for which in np.flatnonzero(other):
            if not opcodes.undo_passed(int(opc[which])):
                what = f"undo of operation {opcode_text(int(opc[which]))} on a captured object"
                self._stop_at(step, rows[which : which + 1], what, _REPORT_HINT)
        return np.asarray(mine & ~other)

    def _rows(self, step: Step, rows: Ints) -> None:
        """11.x: of a captured object if the 5.1 before it is."""
        record = step.record[rows]
        pair = self._pair[record]
        partner = pair >= 0
        if partner.any():
            self._take(step, rows[partner], pair[partner])
        lone = pair == _NONE
        if lone.any():
            those = record[lone]
            self._lone[those] = np.where(self._lone[those] < 0, step.at[rows[lone]], self._lone[those])
        doubtful = np.flatnonzero(pair != _OTHER_UNDO)
        if not len(doubtful):
            return
        rows, pair = rows[doubtful], pair[doubtful]
        maybe = self._low.has(_word(step, rows, 12) << 16 | _word(step, rows, 11))
        hidden = (pair == _HIDDEN_UNDO) & maybe | (maybe | (pair >= 0)) & (self._typ(step, rows) & TYP_ENCRYPTED != 0)
        if hidden.any():
            self._stop_at(step, rows[hidden], "an encrypted change of a captured object", _ENCRYPTED_HINT)
        suspect = rows[maybe & (pair == _NONE) & ~hidden]
        if len(suspect):
            self._suspects.append((step.at[suspect], step.opcode[suspect]))

    def _take(self, step: Step, rows: Ints, pair: Ints) -> None:
        opcode = step.opcode[rows]
        self._stop[pair] = step.stop[rows]
        self._partner[pair] = np.where(self._partner[pair], self._partner[pair], opcode)
        strange = ~np.isin(opcode, _ROW_OPCODES)
        if strange.any():
            self._stop_at(step, rows[strange], "an unknown row operation on a captured object", _REPORT_HINT)

    def _undo_of(self, step: Step, rows: Ints) -> None:
        """5.6, 5.11: the 11.x before it took back a change."""
        record = step.record[rows]
        lone = self._lone[record]
        readable = self._typ(step, rows) & TYP_ENCRYPTED == 0
        rows, lone = rows[readable], lone[readable]
        ktub = step.first[rows]
        container = _word(step, rows, 12)
        at = step.at[rows]
        start = np.where(lone < 0, at, lone)
        self._undone.append((start, at))
        short = (_size(step, rows, 0) < 20) & self._containers.has(container)
        if short.any():
            self._stop_at(step, rows[short], "a rollback that does not name its object", _REPORT_HINT)
        number = self._payload.u32[ktub >> 2].astype(np.int64)
        known = self._objects.has(container << 32 | number) & ~short
        young = ~known & ~short & (number > self._newest) & self._containers.has(container)
        taken = np.flatnonzero(self._row_undo(step, rows, ktub, known, young))
        if not len(taken):
            return
        parts = taken[self._payload.u16[ktub[taken] + 20 >> 1] & UNDO_PARTS != 0]
        if len(parts):
            what = "rollback of a captured row whose undo is spread over several undo blocks"
            self._stop_at(step, rows[parts], what, _REPORT_HINT)
        rows, start, ktub, at, number = rows[taken], start[taken], ktub[taken], at[taken], number[taken]
        slot = self._payload.raw[ktub + 18].astype(np.uint64)
        xid = _usn(step, rows) << np.uint64(48) | slot << np.uint64(32)
        opcode = np.where(start < at, self._opcode_at(start), 0)
        split = at - start >> 2
        self._add(step, rows, xid, codes.UNDO | opcode, value=number, split=split, whole=True, start=start)

    def _check_suspects(self) -> None:
        if not self._suspects:
            return
        at = np.concatenate([part for part, _ in self._suspects])
        opcode = np.concatenate([part for _, part in self._suspects])
        good = np.zeros(len(at), np.bool_)
        if self._undone:
            start = np.concatenate([part for part, _ in self._undone])
            stop = np.concatenate([part for _, part in self._undone])
            order = np.argsort(start)
            start, stop = start[order], stop[order]
            which = np.searchsorted(start, at, "right") - 1
            good = (which >= 0) & (at < stop[which])
        # locks and links of blocks may stand alone; a row does not change without undo
        good |= ~np.isin(opcode, _ROW_CHANGES)
        for one in np.flatnonzero(~good):
            what = f"{opcode_text(int(opcode[one]))} without undo on a captured object, by 16 bits of its id"
            self.problems.append(Problem(int(at[one]), what, _REPORT_HINT))

    # --- transactions

    def _begin(self, step: Step, rows: Ints) -> None:
        rows = self._ours(step, rows)
        slot, sequence = self._slot(step, rows)
        # without a number it extends the undo of a transaction: not a begin
        real = np.flatnonzero(sequence)
        rows = rows[real]
        self._add(step, rows, _xid(_usn(step, rows), slot[real], sequence[real]), codes.BEGIN)

    def _commit(self, step: Step, rows: Ints) -> None:
        rows = self._ours(step, rows)
        slot, sequence = self._slot(step, rows)
        flags = self._payload.raw[step.first[rows] + 16].astype(np.int64)
        code = np.where(flags & COMMIT_ROLLED_BACK, codes.ROLLBACK, codes.COMMIT)
        # the time is the last field, if that has the size of one; 0: it is the LWN's
        last = np.minimum(step.fields[rows], len(step.sizes)) - 1
        timed = (step.fields[rows] > 1) & (step.sizes[last, rows] == 4) & (last + 1 == step.fields[rows])
        when = np.where(timed, self._payload.u32[step.stop[rows] - 4 >> 2], 0).astype(np.int64)
        self._add(step, rows, _xid(_usn(step, rows), slot, sequence), code, value=when, flags=flags)

    def _prepare(self, step: Step, rows: Ints) -> None:
        rows = self._ours(step, rows)
        slot, sequence = self._slot(step, rows)
        self._add(step, rows, _xid(_usn(step, rows), slot, sequence), codes.PREPARE, whole=True)

    def _session_of(self, step: Step, rows: Ints) -> None:
        """5.19 has its flags in field 11, 5.20 in field 3."""
        for opcode, before in ((opcodes.SESSION_START, 10), (opcodes.SESSION_ON, 2)):
            those = rows[(step.opcode[rows] == opcode) & (step.fields[rows] > before)]
            at = step.first[those] + step.padded_before(those, before)
            self._session[step.record[those]] = self._payload.u16[at >> 1]

    # --- the rest

    def _ddl(self, step: Step, rows: Ints) -> None:
        rows = self._ours(step, rows)
        kind = self._payload.u16[step.first[rows] + 16 >> 1]
        rows = rows[~np.isin(kind, _DDL_TEMPORARY)]
        good = step.fields[rows] >= 12
        at = step.first[rows] + step.padded_before(rows, 11)
        number = np.where(good, self._payload.u32[np.where(good, at, 0) >> 2], 0).astype(np.int64)
        self._add(step, rows, self._xid(step.first[rows] + 4), codes.DDL, value=number, whole=True)

    def _load(self, step: Step, rows: Ints) -> None:
        number = self._payload.u32[step.first[rows] >> 2].astype(np.int64)
        mine = self._data_objects.has(_word(step, rows, 12) << 32 | number)
        if mine.any():
            hint = "what is loaded as whole blocks is not in the redo as rows: copy the table anew after the load"
            self._stop_at(step, rows[mine], "a direct load into a captured table", hint)

    def _unknown(self, step: Step, rows: Ints) -> None:
        container = _word(step, rows, 12)
        mine = self._low.has(container << 16 | _word(step, rows, 11))
        mine |= self._containers.has(container) & (step.opcode[rows] >> 8 == 5)
        if mine.any():
            self._stop_at(step, rows[mine], "an unknown operation on a captured object or its undo", _REPORT_HINT)

    # --- fields

    def _ours(self, step: Step, rows: Ints) -> Ints:
        return rows[self._containers.has(_word(step, rows, 12))]

    def _typ(self, step: Step, rows: Ints) -> Ints:
        word = _word(step, rows, 10)
        return word & 0xFF if self._big else word >> 8

    def _slot(self, step: Step, rows: Ints) -> tuple[Words, Words]:
        """slt and sqn of a 5.2, 5.4, 5.12."""
        at = step.first[rows]
        return self._payload.u16[at >> 1].astype(np.uint64), self._payload.u32[at + 4 >> 2].astype(np.uint64)

    def _xid(self, at: Ints) -> Words:
        """Eight bytes: usn, slt, sqn."""
        words = self._payload.u16
        sequence = self._payload.u32[at + 4 >> 2].astype(np.uint64)
        return _xid(words[at >> 1].astype(np.uint64), words[at + 2 >> 1].astype(np.uint64), sequence)

    def _opcode_at(self, at: Ints) -> Ints:
        return self._payload.raw[at].astype(np.int64) << 8 | self._payload.raw[at + 1]

    def _add(
        self,
        step: Step,
        rows: Ints,
        xid: Words,
        code: Ints | int,
        *,
        value: Ints | int = 0,
        flags: Ints | int = 0,
        split: Ints | int = 0,
        whole: bool = False,
        start: Ints | None = None,
    ) -> None:
        at, count = step.at[rows], len(rows)
        begin = at if start is None else start
        if whole and self._big:
            flags = codes.FLAG_BIG_ENDIAN
        stop = step.stop[rows] if whole else begin
        columns = (_column(code, count), _column(value, count), _column(flags, count), _column(split, count))
        self._found.append(Found(step.record[rows], at, begin, stop, _word(step, rows, 12), xid, *columns))

    def _stop_at(self, step: Step, rows: Ints, what: str, hint: str) -> None:
        for row in rows.tolist():
            text = f"{what}: {opcode_text(int(step.opcode[row]))}"
            self.problems.append(Problem(int(step.at[row]), text, hint))


_ROW_OPCODES = np.array(sorted(opcodes.ROWS))
_ROW_CHANGES = np.array(sorted(opcodes.ROWS - {opcodes.LOCK}))


def _idle(found: Found, lwn: Ints) -> NDArray[np.bool_]:
    """Which events are of transactions of which there is a begin and an end in one LWN, and nothing else.

    Not of those in several LWNs: between these a reader can stop, and another begin there.
    """
    order = np.argsort(found.xid)
    xid, container, code = found.xid[order], found.container[order], found.code[order]
    # each transaction is one run, in any order inside; containers that share an xid cut it, and keep it
    cut = np.append(True, (xid[1:] != xid[:-1]) | (container[1:] != container[:-1]))
    ends = (code == codes.COMMIT) | (code == codes.ROLLBACK)
    # one up, one down; anything else cannot be made up for
    runs, lwn = np.flatnonzero(cut), lwn[order]
    balance = np.add.reduceat(np.where(code == codes.BEGIN, 1, np.where(ends, -1, len(order) + 1)), runs)
    together = np.minimum.reduceat(lwn, runs) == np.maximum.reduceat(lwn, runs)
    idle = np.empty(len(order), np.bool_)
    idle[order] = ((balance == 0) & together)[np.cumsum(cut) - 1]
    return idle


def _column(value: Ints | int, count: int) -> Ints:
    return np.full(count, value, np.int64) if isinstance(value, int) else value


def _word(step: Step, rows: Ints, at: int) -> Ints:
    """A 16-bit word of the vector's header."""
    return np.asarray(step.words[rows, at]).astype(np.int64)


def _size(step: Step, rows: Ints, field: int) -> NDArray[np.int32]:
    """Of the field with this number, counted from 0; 0 if there is none."""
    return np.asarray(step.sizes[field, rows])


def _usn(step: Step, rows: Ints) -> Words:
    """The undo segment, from the class of its header (odd) or block (even)."""
    return (_word(step, rows, 1) - 15 >> 1).astype(np.uint64)


def _xid(segment: Words, slot: Words, sequence: Words) -> Words:
    return segment << np.uint64(48) | slot << np.uint64(32) | sequence
