"""Filters the picked vectors of a slice by the captured objects, and converts them to events."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lowwater_extractor.sources.oracle.redo import codes, opcodes
from lowwater_extractor.sources.oracle.redo._native.vector_filter_fast import list_usual
from lowwater_extractor.sources.oracle.redo.filter_results import (
    Captured,
    CapturedKeys,
    Found,
    Keys,
    Problem,
    idle_events,
)
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
from lowwater_extractor.sources.oracle.redo.opcodes import VectorKind
from lowwater_extractor.sources.oracle.redo.scan import Ints, Records, Words
from lowwater_extractor.sources.oracle.redo.vector_columns import VectorColumns, Wanted

#: what precedes a row in its record, if not a captured 5.1 (whose index is ≥ 0)
_NONE, _OTHER_UNDO, _HIDDEN_UNDO = -1, -2, -3

#: 24.1: kinds of statement on temporary objects
_DDL_TEMPORARY = np.array((4, 5, 6, 8, 9, 10))

#: a data object of all ones: none
_NO_OBJECT = 0xFFFF_0000

_ENCRYPTED_HINT = "redo of an encrypted tablespace cannot be read: move the table, or capture it with LogMiner"
_REPORT_HINT = "unknown records are never skipped: report it with the log, or leave the table out of capture"


class VectorFilter:
    """Converts the picked vectors of one slice after the other to events."""

    def __init__(self, captured: Captured) -> None:
        self._newest = captured.newest
        self._objects = Keys(container << 32 | number for container, number in captured.objects)
        self._data_objects = Keys(container << 32 | number for container, number in captured.data_objects)
        #: a vector's header has 16 bits of the data object id
        self._low = Keys(container << 16 | number & 0xFFFF for container, number in captured.data_objects)
        self._containers = Keys(container for container, _ in captured.objects | captured.data_objects)
        is_row = _IS_ROW.view(np.uint8)
        self._keys = CapturedKeys(self._objects, self._low, self._containers, self._newest, is_row)
        maybe = np.zeros(1 << 16, np.uint8)
        maybe[[number & 0xFFFF for _, number in captured.objects]] = 1
        self.wanted = Wanted(opcodes.kinds(), maybe, captured.newest)
        self._actions: dict[VectorKind, Callable[[VectorColumns, Ints], None]] = {
            VectorKind.BEGIN: self._begin,
            VectorKind.COMMIT: self._commit,
            VectorKind.STATE: self._prepare,
            VectorKind.DDL: self._ddl,
            VectorKind.LOAD: self._load,
            VectorKind.UNKNOWN: self._unknown,
        }

    def find(self, picks: VectorColumns, records: Records) -> Found | None:
        """All events, in payload order; sets `problems` to the vectors that stop the source."""
        self._payload = picks.payload
        self.problems: list[Problem] = []
        if not len(picks.at):
            return None
        if records.ordered.all() and (usual := self._usual(picks)) is not None:
            return usual
        found = self._unusual(picks, records)
        return None if found is None else found.at(np.argsort(found.place))

    def _usual(self, picks: VectorColumns) -> Found | None:
        """The fast path. None: the slow path is needed."""
        payload, room = picks.payload, picks.payload.event_room
        count = list_usual(payload, self._keys, picks, room)
        if count < 0:
            return None
        of = room.before(count)
        # an event's bytes begin at its own vector
        return Found(
            of.record, of.place, of.place, of.stop, of.container, of.xid, of.code, of.value, of.flags, of.split
        )  # fmt: skip

    def _unusual(self, picks: VectorColumns, records: Records) -> Found | None:
        self._found: list[Found] = []
        self._changes(picks)
        for kind, action in self._actions.items():
            rows = np.flatnonzero(picks.kind == kind)
            if len(rows):
                action(picks, rows)
        if not self._found:
            return None
        whole = Found(*(np.concatenate(column) for column in zip(*self._found, strict=True)))
        # if the records are in order, `pick_vectors` has already skipped idle transactions
        if not records.ordered.all():
            whole = whole.at(np.flatnonzero(~idle_events(whole, records.lwn_of(whole.record))))
        begins = np.flatnonzero(whole.code == codes.BEGIN)
        session = self._sessions(picks, whole.record[begins])
        whole.value[begins] = session
        whole.code[begins] |= np.where(session & (SESSION_SPACE | SESSION_LOGMINER), codes.FLAG_SYSTEM, 0)
        return whole

    # --- rows and their undo

    def _changes(self, picks: VectorColumns) -> None:
        undo = np.flatnonzero(picks.kind == VectorKind.UNDO)
        #: by vector: the value for rows that follow it
        state = np.full(len(picks.at), _OTHER_UNDO, np.int64)
        taken, number = self._undo(picks, undo, state)
        state[taken] = np.arange(len(taken))
        rows = np.flatnonzero(picks.kind == VectorKind.ROW)
        before = picks.before[rows]
        pair = np.where(before < 0, _NONE, state[before])
        doubtful = np.flatnonzero(pair != _OTHER_UNDO)
        rows, pair = rows[doubtful], pair[doubtful]
        suspects = self._rows(picks, rows, pair)
        undone = self._undo_of(picks, np.flatnonzero(picks.kind == VectorKind.UNDONE))
        if len(suspects):
            self._check_suspects(picks, suspects, undone)
        if len(taken):
            self._add_pairs(picks, taken, number, rows[pair >= 0], pair[pair >= 0])

    def _undo(self, picks: VectorColumns, rows: Ints, state: Ints) -> tuple[Ints, Ints]:
        """The 5.1 of captured rows, and their objects. The object id is in the second field."""
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

    def _add_pairs(self, picks: VectorColumns, taken: Ints, number: Ints, rows: Ints, pair: Ints) -> None:
        """Add an event for each captured 5.1 with the rows after it; its opcode is that of the first row."""
        stop, partner = picks.stop[taken], np.zeros(len(taken), np.int64)
        stop[pair] = picks.stop[rows]
        partner[pair[::-1]] = picks.opcode[rows[::-1]]
        split = np.where(partner, picks.stop[taken] - picks.at[taken] >> 2, 0)
        xid = self._xid(picks.first[taken] + 8)
        self._add(picks, taken, xid, codes.ROW | partner, value=number, split=split, stop=stop)

    def _row_undo(
        self, picks: VectorColumns, rows: Ints, ktub: Ints, known: NDArray[np.bool_], young: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Which undo of captured objects is undo of rows. Other undo is in `opcodes.PASSED_UNDO`, or stops the source.

        `young`: objects that are newer than the dictionary, which may be indexes or anything else: only undo of rows is
        relevant.
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

    def _rows(self, picks: VectorColumns, rows: Ints, pair: Ints) -> Ints:
        """Check 11.x that do not belong to a 5.1 of another object. Return those without a 5.1 that may be captured."""
        partner = pair >= 0
        opcode = picks.opcode[rows]
        strange = partner & ~_IS_ROW[opcode]
        if strange.any():
            self._stop_at(picks, rows[strange], "an unknown row operation on a captured object", _REPORT_HINT)
        maybe = self._low.has(picks.container[rows] << 16 | picks.word(rows, 11))
        hidden = (pair == _HIDDEN_UNDO) & maybe | (maybe | partner) & (picks.typ(rows) & TYP_ENCRYPTED != 0)
        if hidden.any():
            self._stop_at(picks, rows[hidden], "an encrypted change of a captured object", _ENCRYPTED_HINT)
        # locks and block links may have no undo; a row change always has
        alone = _IS_ROW[opcode] & (opcode != opcodes.LOCK)
        return np.asarray(rows[alone & maybe & (pair == _NONE) & ~hidden])

    def _undo_of(self, picks: VectorColumns, rows: Ints) -> tuple[Ints, Ints]:
        """Add events for 5.6 and 5.11: the 11.x before them undid a change. Return start and end of those 11.x."""
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

    def _check_suspects(self, picks: VectorColumns, rows: Ints, undone: tuple[Ints, Ints]) -> None:
        """Stop at 11.x that belong to no 5.1, unless they are followed by a 5.6 or 5.11."""
        at, (start, stop) = picks.at[rows], undone
        good = np.zeros(len(at), np.bool_)
        if len(start):
            which = np.searchsorted(start, at, "right") - 1
            good = (which >= 0) & (at < stop[which])
        self._stop_at(picks, rows[~good], "a row without undo on a captured object, by 16 bits of its id", _REPORT_HINT)

    # --- transactions

    def _begin(self, picks: VectorColumns, rows: Ints) -> None:
        rows = self._ours(picks, rows)
        slot, sequence = self._slot(picks, rows)
        # without a sequence it is not a begin: it extends the undo of a transaction
        real = np.flatnonzero(sequence)
        rows = rows[real]
        self._add(picks, rows, _xid(_usn(picks, rows), slot[real], sequence[real]), codes.BEGIN)

    def _commit(self, picks: VectorColumns, rows: Ints) -> None:
        rows = self._ours(picks, rows)
        slot, sequence = self._slot(picks, rows)
        flags = self._payload.raw[picks.first[rows] + 16].astype(np.int64)
        code = np.where(flags & COMMIT_ROLLED_BACK, codes.ROLLBACK, codes.COMMIT)
        # the time is the last field, if there are at most 4 and it has 4 bytes; 0: the LWN's time is used
        fields = picks.fields[rows]
        last = self._payload.u16[(picks.at[rows] >> 1) + 16 + fields]
        timed = (fields > 1) & (fields <= _COMMIT_FIELDS_MAX) & (last == 4)
        when = np.where(timed, self._payload.u32[picks.stop[rows] - 4 >> 2], 0).astype(np.int64)
        self._add(picks, rows, _xid(_usn(picks, rows), slot, sequence), code, value=when, flags=flags)

    def _prepare(self, picks: VectorColumns, rows: Ints) -> None:
        rows = self._ours(picks, rows)
        slot, sequence = self._slot(picks, rows)
        self._add(picks, rows, _xid(_usn(picks, rows), slot, sequence), codes.PREPARE, stop=picks.stop[rows])

    def _sessions(self, picks: VectorColumns, records: Ints) -> Ints:
        """The session flags in each of these records; 0 if there are none."""
        rows = np.flatnonzero(picks.kind == VectorKind.SESSION)
        if not len(rows):
            return np.zeros(len(records), np.int64)
        flags = np.zeros(int(picks.record[-1]) + 1, np.int64)
        opcode = picks.opcode[rows]
        for wanted, before in ((opcodes.SESSION_START, 10), (opcodes.SESSION_ON, 2)):
            those = rows[(opcode == wanted) & (picks.fields[rows] > before)]
            if len(those):
                flags[picks.record[those]] = self._payload.u16[picks.field(those, before) >> 1]
        return flags[records]

    # --- DDL, loads, unknown vectors

    def _ddl(self, picks: VectorColumns, rows: Ints) -> None:
        rows = self._ours(picks, rows)
        kind = self._payload.u16[picks.first[rows] + 16 >> 1]
        rows = rows[~np.isin(kind, _DDL_TEMPORARY)]
        good = picks.fields[rows] >= 12
        number = np.where(good, self._payload.u32[np.where(good, picks.field(rows, 11), 0) >> 2], 0).astype(np.int64)
        self._add(picks, rows, self._xid(picks.first[rows] + 4), codes.DDL, value=number, stop=picks.stop[rows])

    def _load(self, picks: VectorColumns, rows: Ints) -> None:
        """Layer 19: rows that were loaded as whole blocks, which are not in the redo as rows.

        With a database connection the table is determined later: a table that was truncated or moved has a data object
        that is newer than the dictionary.
        """
        container = picks.container[rows]
        # the data object in the vector's header: high half and low half
        number = picks.word(rows, 3) << 16 | picks.word(rows, 11)
        low = self._low.has(container << 16 | picks.word(rows, 11))
        whole = picks.size(rows, 0) >= 4
        loaded = (picks.opcode[rows] == opcodes.DIRECT_LOAD) & whole
        named = self._payload.u32[np.where(whole, picks.first[rows], 0) >> 2].astype(np.int64)
        number = np.where(loaded, named, number)
        mine = np.where(loaded, self._data_objects.has(container << 32 | number), low)
        if self._newest == OBJECT_MAX:
            hint = "rows that are loaded as whole blocks are not in the redo as rows: reset the source after the load"
            self._stop_at(picks, rows[mine], "a direct load into a captured table", hint)
            return
        young = (number > self._newest) & (number < _NO_OBJECT) & self._containers.has(container)
        taken = np.flatnonzero(mine | young)
        rows = rows[taken]
        # only the vector's header is needed, not the blocks
        stop = picks.at[rows] + VECTOR_HEAD
        self._add(picks, rows, np.zeros(len(rows), np.uint64), codes.LOAD, value=number[taken], stop=stop)

    def _unknown(self, picks: VectorColumns, rows: Ints) -> None:
        container = picks.container[rows]
        mine = self._low.has(container << 16 | picks.word(rows, 11))
        mine |= self._containers.has(container) & (picks.opcode[rows] >> 8 == 5)
        if mine.any():
            self._stop_at(picks, rows[mine], "an unknown operation on a captured object or its undo", _REPORT_HINT)

    # --- fields

    def _ours(self, picks: VectorColumns, rows: Ints) -> Ints:
        return rows[self._containers.has(picks.container[rows])]

    def _slot(self, picks: VectorColumns, rows: Ints) -> tuple[Words, Words]:
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
        picks: VectorColumns,
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
        """Add events. `start`, `stop`: the bytes that they contain; without `stop` none."""
        at, count = picks.at[rows], len(rows)
        begin = at if start is None else start
        if stop is not None and self._payload.big:
            flags = codes.FLAG_BIG_ENDIAN
        columns = (_column(code, count), _column(value, count), _column(flags, count), _column(split, count))
        self._found.append(
            Found(picks.record[rows], at, begin, begin if stop is None else stop, picks.container[rows], xid, *columns)
        )

    def _stop_at(self, picks: VectorColumns, rows: Ints, what: str, hint: str) -> None:
        for row, opcode in zip(rows.tolist(), picks.opcode[rows].tolist(), strict=True):
            self.problems.append(Problem(int(picks.at[row]), f"{what}: {opcode_text(opcode)}", hint))


_IS_ROW = np.zeros(1 << 16, np.bool_)
_IS_ROW[list(opcodes.ROWS)] = True
#: maximum number of fields of a 5.4
_COMMIT_FIELDS_MAX = 4


def _column(value: Ints | int, count: int) -> Ints:
    return np.full(count, value, np.int64) if isinstance(value, int) else value


def _usn(picks: VectorColumns, rows: Ints) -> Words:
    """The undo segment, from the class of its header (odd) or block (even)."""
    return (picks.word(rows, 1) - 15 >> 1).astype(np.uint64)


def _xid(segment: Words, slot: Words, sequence: Words) -> Words:
    return segment << np.uint64(48) | slot << np.uint64(32) | sequence
