"""What of the vectors matters, given which objects are captured. Works on one step of the walk at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lowwater_extractor.sources.oracle.redo import codes, opcodes
from lowwater_extractor.sources.oracle.redo.found import Captured, Found, Keys, Problem, idle_events
from lowwater_extractor.sources.oracle.redo.layout import (
    COMMIT_ROLLED_BACK,
    OBJECT_MAX,
    SESSION_LOGMINER,
    SESSION_SPACE,
    TYP_ENCRYPTED,
    UNDO_PARTS,
    opcode_text,
)
from lowwater_extractor.sources.oracle.redo.opcodes import Kind
from lowwater_extractor.sources.oracle.redo.scan import Ints, Payload, Words
from lowwater_extractor.sources.oracle.redo.vector_walk import Step

#: one bit for each kind, by the opcode's two bytes as a 16-bit number, in either order
_KIND_BITS = {
    ">": (1 << opcodes.kinds().astype(np.uint16)),
    "<": (1 << opcodes.kinds().reshape(256, 256).T.astype(np.uint16)).reshape(-1).copy(),
}
#: of a word of 4 bytes: the low half, and what makes the high one of it
_LOW, _HALF = np.uint32(0xFFFF), np.uint32(16)
_ROUND, _QUARTER = np.uint32(3), np.uint32(2)
_ROW, _UNDO, _UNDONE = (np.uint16(1 << kind) for kind in (Kind.ROW, Kind.UNDO, Kind.UNDONE))

#: what the vectors before this one in its record were, if not a captured 5.1 (which is ≥ 0)
_NONE, _OTHER_UNDO, _HIDDEN_UNDO = -1, -2, -3
_NO_UNDO = np.int32(_NONE)
States = NDArray[np.int32]

#: an undo block holds no vector of 5.1 that is smaller
_UNDO_BYTES_MIN = 84

#: 24.1: kinds of statement that are about temporary objects
_DDL_TEMPORARY = np.array((4, 5, 6, 8, 9, 10))

_ENCRYPTED_HINT = "redo of an encrypted tablespace cannot be read: move the table, or capture it with LogMiner"
_REPORT_HINT = "nothing is passed over unread: report it with the log, or leave the table out of capture"


class Sieve:
    """One slice's vectors, step after step; then `found()` and `problems`."""

    def __init__(self, captured: Captured) -> None:
        self._newest = captured.newest
        self._objects = Keys(container << 32 | number for container, number in captured.objects)
        #: the last 16 bits of captured objects: nearly all others fail by them
        self._maybe = np.zeros(1 << 16, np.bool_)
        self._maybe[[number & 0xFFFF for _, number in captured.objects]] = True
        self._data_objects = Keys(container << 32 | number for container, number in captured.data_objects)
        #: what a vector's header tells of its object: 16 bits of the data object id
        self._low = Keys(container << 16 | number & 0xFFFF for container, number in captured.data_objects)
        self._containers = Keys(container for container, _ in captured.objects | captured.data_objects)
        self._actions: dict[int, Callable[[Step, Ints], None]] = {
            1 << Kind.BEGIN: self._begin,
            1 << Kind.COMMIT: self._commit,
            1 << Kind.STATE: self._prepare,
            1 << Kind.SESSION: self._session_of,
            1 << Kind.DDL: self._ddl,
            1 << Kind.LOAD: self._load,
            1 << Kind.UNKNOWN: self._unknown,
        }

    def begin(self, payload: Payload, records: int) -> None:
        self._payload = payload
        self._big = payload.form.order == ">"
        self._kind_bits = _KIND_BITS[payload.form.order]
        self.problems: list[Problem] = []
        self._found: list[Found] = []
        #: of each vector of the last step: the captured 5.1 whose partner may come next, or why there is none
        self._state: States | None = None
        #: the same: the first of 11.x without a 5.1. None: there has been none
        self._lone: Ints | None = None
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
        #: by kind: what is looked at when all steps were seen
        self._picked: dict[int, list[Step]] = {bit: [] for bit in self._actions}

    def see(self, step: Step) -> None:
        bits = self._kind_bits.take(self._payload.twos.take(step.at >> 2) & _LOW)
        present = int(np.bitwise_or.reduce(bits))
        state = self._carried(step)
        is_row = bits == _ROW
        # nearly all belong to a 5.1 of an object that is not captured
        doubtful = np.flatnonzero(is_row & (state != _OTHER_UNDO))
        if len(doubtful):
            self._rows(step, doubtful, state.take(doubtful))
        if present & _UNDONE:
            self._undo_of(step, np.flatnonzero(bits == _UNDONE))
        if self._lone is not None:
            self._lone[~is_row] = -1
        following = np.where(is_row, state, _NO_UNDO)
        if present & _UNDO:
            rows = np.flatnonzero(bits == _UNDO)
            following[rows] = self._undo(step, rows)
        self._state = following
        for bit, picked in self._picked.items():
            if present & bit:
                picked.append(step.at_rows(np.flatnonzero(bits == bit)))

    def _act(self) -> None:
        """On what was picked in all steps, each kind at once."""
        for bit, picked in self._picked.items():
            if picked:
                columns = zip(*((s.record, s.at, s.stop, s.first, s.fields) for s in picked), strict=True)
                record, at, stop, first, fields = map(np.concatenate, columns)
                step = Step(self._payload, record, None, at, stop, first, fields)
                self._actions[bit](step, np.arange(len(at)))

    def _carried(self, step: Step) -> States:
        """What was before the vectors of this step."""
        if self._state is None:
            return np.full(len(step.at), _NONE, np.int32)
        if step.kept is None:
            return self._state
        if self._lone is not None:
            self._lone = self._lone.take(step.kept)
        return self._state.take(step.kept)

    def found(self, lwn: Ints) -> Found | None:
        """All events, once all steps were seen; `lwn` is that of each record."""
        self._act()
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
        if len(whole.record):
            whole = whole.at(np.flatnonzero(~idle_events(whole, lwn[whole.record])))
        begins = np.flatnonzero(whole.code == codes.BEGIN)
        session = self._session[whole.record[begins]]
        whole.value[begins] = session
        whole.code[begins] |= np.where(session & (SESSION_SPACE | SESSION_LOGMINER), codes.FLAG_SYSTEM, 0)
        return whole

    # --- rows and their undo

    def _undo(self, step: Step, rows: Ints) -> States:
        """5.1: the object id is in its second field. Returns the state behind each."""
        state = np.full(len(rows), _OTHER_UNDO, np.int32)
        word = step.at.take(rows) >> 2
        first_size = self._payload.twos.take(word + 8) >> _HALF
        second_size = self._payload.twos.take(word + 9) & _LOW
        ktub = (step.first.take(rows) >> 2) + (first_size + _ROUND >> _QUARTER)
        # of one without fields it may lie anywhere
        number = self._payload.u32.take(ktub, mode="clip")
        maybe = self._maybe.take(number & _LOW)
        if self._newest < OBJECT_MAX:
            maybe |= number > self._newest
        fields = step.fields.take(rows)
        if fields.min() < 2 or first_size.min() < 20 or second_size.min() < 24 or self._is_any_hidden(step, rows):
            hidden = step.typ(rows) & TYP_ENCRYPTED != 0
            state[hidden] = _HIDDEN_UNDO
            short = ~hidden & ((fields < 2) | (first_size < 20) | (second_size < 24))
            mine = rows[short]
            mine = mine[self._containers.has(step.word(mine, 12))]
            self._stop_at(step, mine, "a 5.1 without its undo", _REPORT_HINT)
            maybe &= ~hidden & ~short
        some = np.flatnonzero(maybe)
        if len(some):
            mine, index = self._captured_undo(step, rows[some], ktub[some] << 2, number[some].astype(np.int64))
            state[some[mine]] = index
        return state

    def _is_any_hidden(self, step: Step, rows: Ints) -> bool:
        return bool(np.bitwise_or.reduce(step.typ(rows)) & TYP_ENCRYPTED)

    def _captured_undo(self, step: Step, rows: Ints, ktub: Ints, number: Ints) -> tuple[Ints, Ints]:
        """Which of these are captured, and the numbers that they get."""
        container = step.word(rows, 12)
        known = self._objects.has(container << 32 | number)
        young = ~known & (number > self._newest) & self._containers.has(container)
        mine = np.flatnonzero(self._row_undo(step, rows, ktub, known, young))
        rows = rows[mine]
        index = np.arange(self._count, self._count + len(mine))
        if len(mine):
            self._stop[index] = step.stop[rows]
            self._undo_chunks.append((len(self._found), self._count))
            self._count += len(mine)
            size = step.stop[rows] - step.at[rows]
            xid = self._xid(step.first[rows] + 8)
            self._add(step, rows, xid, codes.ROW, value=number[mine], split=size >> 2, whole=True)
        return mine, index

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

    def _rows(self, step: Step, rows: Ints, pair: States) -> None:
        """11.x that do not belong to a 5.1 of another object: of a captured one if the 5.1 before it is."""
        partner = pair >= 0
        if partner.any():
            self._take(step, rows[partner], pair[partner])
        lone = rows[pair == _NONE]
        if len(lone):
            if self._lone is None:
                self._lone = np.full(len(step.at), -1, np.int64)
            self._lone[lone] = np.where(self._lone[lone] < 0, step.at[lone], self._lone[lone])
        maybe = self._low.has(step.word(rows, 12) << 16 | step.word(rows, 11))
        hidden = (pair == _HIDDEN_UNDO) & maybe | (maybe | partner) & (step.typ(rows) & TYP_ENCRYPTED != 0)
        if hidden.any():
            self._stop_at(step, rows[hidden], "an encrypted change of a captured object", _ENCRYPTED_HINT)
        suspect = rows[maybe & (pair == _NONE) & ~hidden]
        if len(suspect):
            self._suspects.append((step.at[suspect], step.opcodes(suspect)))

    def _take(self, step: Step, rows: Ints, pair: States) -> None:
        opcode = step.opcodes(rows)
        self._stop[pair] = step.stop[rows]
        self._partner[pair] = np.where(self._partner[pair], self._partner[pair], opcode)
        strange = ~_IS_ROW[opcode]
        if strange.any():
            self._stop_at(step, rows[strange], "an unknown row operation on a captured object", _REPORT_HINT)

    def _undo_of(self, step: Step, rows: Ints) -> None:
        """5.6, 5.11: the 11.x before it took back a change."""
        lone = np.full(len(rows), -1, np.int64) if self._lone is None else self._lone[rows]
        readable = step.typ(rows) & TYP_ENCRYPTED == 0
        rows, lone = rows[readable], lone[readable]
        ktub = step.first[rows]
        container = step.word(rows, 12)
        at = step.at[rows]
        start = np.where(lone < 0, at, lone)
        self._undone.append((start, at))
        short = (step.size(rows, 0) < 20) & self._containers.has(container)
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
        good |= ~_IS_ROW[opcode] | (opcode == opcodes.LOCK)
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
        # the time is the last of its few fields, if that has the size of one; 0: it is the LWN's
        fields = step.fields[rows]
        last = self._payload.u16[(step.at[rows] >> 1) + 16 + fields]
        timed = (fields > 1) & (fields <= _COMMIT_FIELDS_MAX) & (last == 4)
        when = np.where(timed, self._payload.u32[step.stop[rows] - 4 >> 2], 0).astype(np.int64)
        self._add(step, rows, _xid(_usn(step, rows), slot, sequence), code, value=when, flags=flags)

    def _prepare(self, step: Step, rows: Ints) -> None:
        rows = self._ours(step, rows)
        slot, sequence = self._slot(step, rows)
        self._add(step, rows, _xid(_usn(step, rows), slot, sequence), codes.PREPARE, whole=True)

    def _session_of(self, step: Step, rows: Ints) -> None:
        """5.19 has its flags in field 11, 5.20 in field 3."""
        opcode = step.opcodes(rows)
        for wanted, before in ((opcodes.SESSION_START, 10), (opcodes.SESSION_ON, 2)):
            those = rows[(opcode == wanted) & (step.fields[rows] > before)]
            self._session[step.record[those]] = self._payload.u16[step.field(those, before) >> 1]

    # --- the rest

    def _ddl(self, step: Step, rows: Ints) -> None:
        rows = self._ours(step, rows)
        kind = self._payload.u16[step.first[rows] + 16 >> 1]
        rows = rows[~np.isin(kind, _DDL_TEMPORARY)]
        good = step.fields[rows] >= 12
        number = np.where(good, self._payload.u32[np.where(good, step.field(rows, 11), 0) >> 2], 0).astype(np.int64)
        self._add(step, rows, self._xid(step.first[rows] + 4), codes.DDL, value=number, whole=True)

    def _load(self, step: Step, rows: Ints) -> None:
        number = self._payload.u32[step.first[rows] >> 2].astype(np.int64)
        mine = self._data_objects.has(step.word(rows, 12) << 32 | number)
        if mine.any():
            hint = "what is loaded as whole blocks is not in the redo as rows: copy the table anew after the load"
            self._stop_at(step, rows[mine], "a direct load into a captured table", hint)

    def _unknown(self, step: Step, rows: Ints) -> None:
        container = step.word(rows, 12)
        mine = self._low.has(container << 16 | step.word(rows, 11))
        mine |= self._containers.has(container) & (step.opcodes(rows) >> 8 == 5)
        if mine.any():
            self._stop_at(step, rows[mine], "an unknown operation on a captured object or its undo", _REPORT_HINT)

    # --- fields

    def _ours(self, step: Step, rows: Ints) -> Ints:
        return rows[self._containers.has(step.word(rows, 12))]

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
        self._found.append(Found(step.record[rows], at, begin, stop, step.word(rows, 12), xid, *columns))

    def _stop_at(self, step: Step, rows: Ints, what: str, hint: str) -> None:
        for row, opcode in zip(rows.tolist(), step.opcodes(rows).tolist(), strict=True):
            self.problems.append(Problem(int(step.at[row]), f"{what}: {opcode_text(opcode)}", hint))


_IS_ROW = np.zeros(1 << 16, np.bool_)
_IS_ROW[list(opcodes.ROWS)] = True
#: a 5.4 has no more than these
_COMMIT_FIELDS_MAX = 4


def _column(value: Ints | int, count: int) -> Ints:
    return np.full(count, value, np.int64) if isinstance(value, int) else value


def _usn(step: Step, rows: Ints) -> Words:
    """The undo segment, from the class of its header (odd) or block (even)."""
    return (step.word(rows, 1) - 15 >> 1).astype(np.uint64)


def _xid(segment: Words, slot: Words, sequence: Words) -> Words:
    return segment << np.uint64(48) | slot << np.uint64(32) | sequence
