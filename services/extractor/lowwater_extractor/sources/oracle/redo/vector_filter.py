"""What of the vectors matters, given which objects are captured. Works on all that the walk has picked of a slice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lowwater_extractor.sources.oracle.redo import codes, opcodes
from lowwater_extractor.sources.oracle.redo._native.vector_filter_fast import list_usual
from lowwater_extractor.sources.oracle.redo.filter_results import Captured, Found, Keys, Problem, idle_events
from lowwater_extractor.sources.oracle.redo.layout import (
    COMMIT_ROLLED_BACK,
    OBJECT_MAX,
    SESSION_LOGMINER,
    SESSION_SPACE,
    TYP_ENCRYPTED,
    UNDO_PARTS,
    VECTOR_HEAD,
    opcode_text,
)
from lowwater_extractor.sources.oracle.redo.opcodes import Kind
from lowwater_extractor.sources.oracle.redo.scan import Ints, Records, Words
from lowwater_extractor.sources.oracle.redo.vector_columns import Picks, Wanted

#: what the vectors before a row in its record were, if not a captured 5.1 (which is ≥ 0)
_NONE, _OTHER_UNDO, _HIDDEN_UNDO = -1, -2, -3

#: 24.1: kinds of statement that are about temporary objects
_DDL_TEMPORARY = np.array((4, 5, 6, 8, 9, 10))

#: a data object of all ones: none
_NO_OBJECT = 0xFFFF_0000

_ENCRYPTED_HINT = "redo of an encrypted tablespace cannot be read: move the table, or capture it with LogMiner"
_REPORT_HINT = "nothing is passed over unread: report it with the log, or leave the table out of capture"


class Sieve:
    """Takes what was picked of one slice after the other."""

    def __init__(self, captured: Captured) -> None:
        self._newest = captured.newest
        self._objects = Keys(container << 32 | number for container, number in captured.objects)
        self._data_objects = Keys(container << 32 | number for container, number in captured.data_objects)
        #: what a vector's header tells of its object: 16 bits of the data object id
        self._low = Keys(container << 16 | number & 0xFFFF for container, number in captured.data_objects)
        self._containers = Keys(container for container, _ in captured.objects | captured.data_objects)
        maybe = np.zeros(1 << 16, np.uint8)
        maybe[[number & 0xFFFF for _, number in captured.objects]] = 1
        self.wanted = Wanted(opcodes.kinds(), maybe, captured.newest)
        self._actions: dict[Kind, Callable[[Picks, Ints], None]] = {
            Kind.BEGIN: self._begin,
            Kind.COMMIT: self._commit,
            Kind.STATE: self._prepare,
            Kind.DDL: self._ddl,
            Kind.LOAD: self._load,
            Kind.UNKNOWN: self._unknown,
        }

    def find(self, picks: Picks, records: Records) -> Found | None:
        """All events, in the order of the payload; `problems` has what stops the source."""
        self._payload = picks.payload
        self.problems: list[Problem] = []
        if not len(picks.at):
            return None
        if records.ordered.all() and (usual := self._usual(picks)) is not None:
            return usual
        found = self._unusual(picks, records)
        return None if found is None else found.at(np.argsort(found.place))

    def _usual(self, picks: Picks) -> Found | None:
        """None: the columns have to be gone through."""
        payload, room = picks.payload, picks.payload.event_room
        count = list_usual(
            payload.view, payload.words.data, payload.longs.data, payload.big, self._objects.sorted.data,
            self._low.sorted.data, self._containers.sorted.data, self._newest, _IS_ROW.view(np.uint8).data,
            *(column.data for column in picks[1:]), *(column.data for column in room),
        )  # fmt: skip
        if count < 0:
            return None
        of = room.before(count)
        # what an event carries begins at its own vector
        return Found(
            of.record, of.place, of.place, of.stop, of.container, of.xid, of.code, of.value, of.flags, of.split
        )  # fmt: skip

    def _unusual(self, picks: Picks, records: Records) -> Found | None:
        self._found: list[Found] = []
        self._changes(picks)
        for kind, action in self._actions.items():
            rows = np.flatnonzero(picks.kind == kind)
            if len(rows):
                action(picks, rows)
        if not self._found:
            return None
        whole = Found(*(np.concatenate(column) for column in zip(*self._found, strict=True)))
        # where the records are in order the walk has done it
        if not records.ordered.all():
            whole = whole.at(np.flatnonzero(~idle_events(whole, records.lwn_of(whole.record))))
        begins = np.flatnonzero(whole.code == codes.BEGIN)
        session = self._sessions(picks, whole.record[begins])
        whole.value[begins] = session
        whole.code[begins] |= np.where(session & (SESSION_SPACE | SESSION_LOGMINER), codes.FLAG_SYSTEM, 0)
        return whole

    # --- rows and their undo

    def _changes(self, picks: Picks) -> None:
        undo = np.flatnonzero(picks.kind == Kind.UNDO)
        #: of each pick: what a row sees that it stands behind
        state = np.full(len(picks.at), _OTHER_UNDO, np.int64)
        taken, number = self._undo(picks, undo, state)
        state[taken] = np.arange(len(taken))
        rows = np.flatnonzero(picks.kind == Kind.ROW)
        before = picks.before[rows]
        pair = np.where(before < 0, _NONE, state[before])
        doubtful = np.flatnonzero(pair != _OTHER_UNDO)
        rows, pair = rows[doubtful], pair[doubtful]
        suspects = self._rows(picks, rows, pair)
        undone = self._undo_of(picks, np.flatnonzero(picks.kind == Kind.UNDONE))
        if len(suspects):
            self._check_suspects(picks, suspects, undone)
        if len(taken):
            self._add_pairs(picks, taken, number, rows[pair >= 0], pair[pair >= 0])

    def _undo(self, picks: Picks, rows: Ints, state: Ints) -> tuple[Ints, Ints]:
        """5.1: the object id is in its second field. Which are of captured rows, and their objects."""
        ktub = picks.before[rows]
        if ktub.min(initial=0) < 0:
            unseen, seen = rows[ktub < 0], np.flatnonzero(ktub >= 0)
            hidden = picks.typ(unseen) & TYP_ENCRYPTED != 0
            state[unseen[hidden]] = _HIDDEN_UNDO
            self._stop_at(picks, self._ours(picks, unseen[~hidden]), "a 5.1 without its undo", _REPORT_HINT)
            rows, ktub = rows[seen], ktub[seen]
        number = self._payload.u32[ktub >> 2].astype(np.int64)
        container = picks.container[rows]
        known = self._objects.has(container << 32 | number)
        young = ~known & (number > self._newest) & self._containers.has(container)
        mine = np.flatnonzero(self._row_undo(picks, rows, ktub, known, young))
        return rows[mine], number[mine]

    def _add_pairs(self, picks: Picks, taken: Ints, number: Ints, rows: Ints, pair: Ints) -> None:
        """Each captured 5.1 with the rows behind it: the event ends with the last, and has the first one's opcode."""
        stop, partner = picks.stop[taken], np.zeros(len(taken), np.int64)
        stop[pair] = picks.stop[rows]
        partner[pair[::-1]] = picks.opcode[rows[::-1]]
        split = np.where(partner, picks.stop[taken] - picks.at[taken] >> 2, 0)
        xid = self._xid(picks.first[taken] + 8)
        self._add(picks, taken, xid, codes.ROW | partner, value=number, split=split, stop=stop)

    def _row_undo(
        self, picks: Picks, rows: Ints, ktub: Ints, known: NDArray[np.bool_], young: NDArray[np.bool_]
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
                self._stop_at(picks, rows[which : which + 1], what, _REPORT_HINT)
        return np.asarray(mine & ~other)

    def _rows(self, picks: Picks, rows: Ints, pair: Ints) -> Ints:
        """11.x that do not belong to a 5.1 of another object. Returns those that look captured and have no 5.1."""
        partner = pair >= 0
        opcode = picks.opcode[rows]
        strange = partner & ~_IS_ROW[opcode]
        if strange.any():
            self._stop_at(picks, rows[strange], "an unknown row operation on a captured object", _REPORT_HINT)
        maybe = self._low.has(picks.container[rows] << 16 | picks.word(rows, 11))
        hidden = (pair == _HIDDEN_UNDO) & maybe | (maybe | partner) & (picks.typ(rows) & TYP_ENCRYPTED != 0)
        if hidden.any():
            self._stop_at(picks, rows[hidden], "an encrypted change of a captured object", _ENCRYPTED_HINT)
        # locks and links of blocks may stand alone; a row does not change without undo
        alone = _IS_ROW[opcode] & (opcode != opcodes.LOCK)
        return np.asarray(rows[alone & maybe & (pair == _NONE) & ~hidden])

    def _undo_of(self, picks: Picks, rows: Ints) -> tuple[Ints, Ints]:
        """5.6, 5.11: the 11.x before it took back a change. Returns from where to where those stand."""
        if not len(rows):
            return rows, rows
        rows = rows[picks.typ(rows) & TYP_ENCRYPTED == 0]
        ktub, at = picks.first[rows], picks.at[rows]
        container = picks.container[rows]
        start = np.where(picks.before[rows] < 0, at, picks.before[rows])
        undone = start, at
        short = (picks.size(rows, 0) < 20) & self._containers.has(container)
        if short.any():
            self._stop_at(picks, rows[short], "a rollback that does not name its object", _REPORT_HINT)
        number = self._payload.u32[ktub >> 2].astype(np.int64)
        known = self._objects.has(container << 32 | number) & ~short
        young = ~known & ~short & (number > self._newest) & self._containers.has(container)
        taken = np.flatnonzero(self._row_undo(picks, rows, ktub, known, young))
        if not len(taken):
            return undone
        parts = taken[self._payload.u16[ktub[taken] + 20 >> 1] & UNDO_PARTS != 0]
        if len(parts):
            what = "rollback of a captured row whose undo is spread over several undo blocks"
            self._stop_at(picks, rows[parts], what, _REPORT_HINT)
        rows, start, ktub, at, number = rows[taken], start[taken], ktub[taken], at[taken], number[taken]
        slot = self._payload.raw[ktub + 18].astype(np.uint64)
        xid = _usn(picks, rows) << np.uint64(48) | slot << np.uint64(32)
        opcode = np.where(start < at, self._opcode_at(start), 0)
        split = at - start >> 2
        stop = picks.stop[rows]
        self._add(picks, rows, xid, codes.UNDO | opcode, value=number, split=split, start=start, stop=stop)
        return undone

    def _check_suspects(self, picks: Picks, rows: Ints, undone: tuple[Ints, Ints]) -> None:
        """11.x that belong to no 5.1: good only if a 5.6 or 5.11 stands behind them."""
        at, (start, stop) = picks.at[rows], undone
        good = np.zeros(len(at), np.bool_)
        if len(start):
            which = np.searchsorted(start, at, "right") - 1
            good = (which >= 0) & (at < stop[which])
        self._stop_at(picks, rows[~good], "a row without undo on a captured object, by 16 bits of its id", _REPORT_HINT)

    # --- transactions

    def _begin(self, picks: Picks, rows: Ints) -> None:
        rows = self._ours(picks, rows)
        slot, sequence = self._slot(picks, rows)
        # without a number it extends the undo of a transaction: not a begin
        real = np.flatnonzero(sequence)
        rows = rows[real]
        self._add(picks, rows, _xid(_usn(picks, rows), slot[real], sequence[real]), codes.BEGIN)

    def _commit(self, picks: Picks, rows: Ints) -> None:
        rows = self._ours(picks, rows)
        slot, sequence = self._slot(picks, rows)
        flags = self._payload.raw[picks.first[rows] + 16].astype(np.int64)
        code = np.where(flags & COMMIT_ROLLED_BACK, codes.ROLLBACK, codes.COMMIT)
        # the time is the last of its few fields, if that has the size of one; 0: it is the LWN's
        fields = picks.fields[rows]
        last = self._payload.u16[(picks.at[rows] >> 1) + 16 + fields]
        timed = (fields > 1) & (fields <= _COMMIT_FIELDS_MAX) & (last == 4)
        when = np.where(timed, self._payload.u32[picks.stop[rows] - 4 >> 2], 0).astype(np.int64)
        self._add(picks, rows, _xid(_usn(picks, rows), slot, sequence), code, value=when, flags=flags)

    def _prepare(self, picks: Picks, rows: Ints) -> None:
        rows = self._ours(picks, rows)
        slot, sequence = self._slot(picks, rows)
        self._add(picks, rows, _xid(_usn(picks, rows), slot, sequence), codes.PREPARE, stop=picks.stop[rows])

    def _sessions(self, picks: Picks, records: Ints) -> Ints:
        """The flags of the session that speaks in each of these records; 0 if none does."""
        rows = np.flatnonzero(picks.kind == Kind.SESSION)
        if not len(rows):
            return np.zeros(len(records), np.int64)
        flags = np.zeros(int(picks.record[-1]) + 1, np.int64)
        opcode = picks.opcode[rows]
        for wanted, before in ((opcodes.SESSION_START, 10), (opcodes.SESSION_ON, 2)):
            those = rows[(opcode == wanted) & (picks.fields[rows] > before)]
            if len(those):
                flags[picks.record[those]] = self._payload.u16[picks.field(those, before) >> 1]
        return flags[records]

    # --- the rest

    def _ddl(self, picks: Picks, rows: Ints) -> None:
        rows = self._ours(picks, rows)
        kind = self._payload.u16[picks.first[rows] + 16 >> 1]
        rows = rows[~np.isin(kind, _DDL_TEMPORARY)]
        good = picks.fields[rows] >= 12
        number = np.where(good, self._payload.u32[np.where(good, picks.field(rows, 11), 0) >> 2], 0).astype(np.int64)
        self._add(picks, rows, self._xid(picks.first[rows] + 4), codes.DDL, value=number, stop=picks.stop[rows])

    def _load(self, picks: Picks, rows: Ints) -> None:
        """Layer 19: rows that are not in the redo as rows. Where the database can be asked, who it is about is decided
        later: a table that was truncated or moved has a data object that is younger than the dictionary."""
        container = picks.container[rows]
        # in the vector's header: the data object, its high half and its low one
        number = picks.word(rows, 3) << 16 | picks.word(rows, 11)
        low = self._low.has(container << 16 | picks.word(rows, 11))
        whole = picks.size(rows, 0) >= 4
        loaded = (picks.opcode[rows] == opcodes.DIRECT_LOAD) & whole
        named = self._payload.u32[np.where(whole, picks.first[rows], 0) >> 2].astype(np.int64)
        number = np.where(loaded, named, number)
        mine = np.where(loaded, self._data_objects.has(container << 32 | number), low)
        if self._newest == OBJECT_MAX:
            hint = "what is loaded as whole blocks is not in the redo as rows: reset the source after the load"
            self._stop_at(picks, rows[mine], "a direct load into a captured table", hint)
            return
        young = (number > self._newest) & (number < _NO_OBJECT) & self._containers.has(container)
        taken = np.flatnonzero(mine | young)
        rows = rows[taken]
        # of the vector only its header is kept: the blocks themselves are of no use
        stop = picks.at[rows] + VECTOR_HEAD
        self._add(picks, rows, np.zeros(len(rows), np.uint64), codes.LOAD, value=number[taken], stop=stop)

    def _unknown(self, picks: Picks, rows: Ints) -> None:
        container = picks.container[rows]
        mine = self._low.has(container << 16 | picks.word(rows, 11))
        mine |= self._containers.has(container) & (picks.opcode[rows] >> 8 == 5)
        if mine.any():
            self._stop_at(picks, rows[mine], "an unknown operation on a captured object or its undo", _REPORT_HINT)

    # --- fields

    def _ours(self, picks: Picks, rows: Ints) -> Ints:
        return rows[self._containers.has(picks.container[rows])]

    def _slot(self, picks: Picks, rows: Ints) -> tuple[Words, Words]:
        """slt and sqn of a 5.2, 5.4, 5.12."""
        at = picks.first[rows]
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
        picks: Picks,
        rows: Ints,
        xid: Words,
        code: Ints | int,
        *,
        value: Ints | int = 0,
        flags: Ints | int = 0,
        split: Ints | int = 0,
        start: Ints | None = None,
        stop: Ints | None = None,
    ) -> None:
        """`stop`: the event carries the bytes up to there."""
        at, count = picks.at[rows], len(rows)
        begin = at if start is None else start
        if stop is not None and self._payload.big:
            flags = codes.FLAG_BIG_ENDIAN
        columns = (_column(code, count), _column(value, count), _column(flags, count), _column(split, count))
        self._found.append(
            Found(picks.record[rows], at, begin, begin if stop is None else stop, picks.container[rows], xid, *columns)
        )

    def _stop_at(self, picks: Picks, rows: Ints, what: str, hint: str) -> None:
        for row, opcode in zip(rows.tolist(), picks.opcode[rows].tolist(), strict=True):
            self.problems.append(Problem(int(picks.at[row]), f"{what}: {opcode_text(opcode)}", hint))


_IS_ROW = np.zeros(1 << 16, np.bool_)
_IS_ROW[list(opcodes.ROWS)] = True
#: a 5.4 has no more than these
_COMMIT_FIELDS_MAX = 4


def _column(value: Ints | int, count: int) -> Ints:
    return np.full(count, value, np.int64) if isinstance(value, int) else value


def _usn(picks: Picks, rows: Ints) -> Words:
    """The undo segment, from the class of its header (odd) or block (even)."""
    return (picks.word(rows, 1) - 15 >> 1).astype(np.uint64)


def _xid(segment: Words, slot: Words, sequence: Words) -> Words:
    return segment << np.uint64(48) | slot << np.uint64(32) | sequence
