# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
"""Fast path of `VectorFilter`: events of rows with their undo, begins and commits. Compiled with C types.

It handles one vector after the other, where `VectorFilter` works on whole columns. If a slice contains anything else (a
rollback, DDL, an encrypted vector, a row without undo, a new object), `list_usual` returns -1 and `VectorFilter`
processes the whole slice on its slow path, and reports problems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lowwater_extractor.sources.oracle.redo.filter_results import CapturedKeys
    from lowwater_extractor.sources.oracle.redo.scan import EventRoom, Payload
    from lowwater_extractor.sources.oracle.redo.vector_columns import VectorColumns

Buffer = memoryview

#: constants of the format, the same as in `layout` and `opcodes`
_VECTOR_HEAD: Final = 32
_TYP_ENCRYPTED: Final = 0x80
_ROW_UNDO: Final = 0x0B01
_LOCK: Final = 0x0B04
_SESSION_START: Final = 0x0513
_SESSION_ON: Final = 0x0514
_SESSION_SYSTEM: Final = 0x0A
_ROLLED_BACK: Final = 0x04
#: maximum number of fields of a 5.4
_COMMIT_FIELDS_MAX: Final = 4

#: kinds of a vector, the same as in `opcodes.VectorKind`
_PASSED: Final = 0
_UNDO: Final = 1
_ROW: Final = 2
_BEGIN: Final = 3
_COMMIT: Final = 4
_SESSION: Final = 7
_UNKNOWN: Final = 10

#: codes of events, the same as in `codes`
_CODE_ROW: Final = 0x8000_0000
_CODE_BEGIN: Final = 0x52 << 16
_CODE_COMMIT: Final = 0x54 << 16
_CODE_ROLLBACK: Final = 0x55 << 16
_FLAG_SYSTEM: Final = 1
_FLAG_BIG_ENDIAN: Final = 1

#: the index of the field with a session's flags
_START_FIELD: Final = 10
_ON_FIELD: Final = 2


def _has(keys: Buffer, key: int) -> bool:
    """Whether a sorted column contains `key`; its last key must be greater than any `key`."""
    low: int = 0
    high: int = len(keys) - 1
    while low < high:
        middle: int = low + high >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return keys[low] == key


def _field(words: Buffer, at: int, first: int, number: int) -> int:
    """The position of field `number`, counted from 0; the field must exist."""
    for place in range(number):
        first += words[(at + _VECTOR_HEAD + 2 >> 1) + place] + 3 & ~3
    return first


def _xid(segment: int, slot: int, sequence: int) -> int:
    high: int = segment & 0xFFFF
    return high << 48 | slot << 32 | sequence


def _tell(code: Buffer, value: Buffer, start: int, stop: int, session: int) -> None:
    """Set the session flags of the begins among these events, which are in one record."""
    for event in range(start, stop):
        if code[event] == _CODE_BEGIN:
            value[event] = session
            if session & _SESSION_SYSTEM:
                code[event] = _CODE_BEGIN | _FLAG_SYSTEM


def list_usual(payload: Payload, captured: CapturedKeys, picks: VectorColumns, room: EventRoom) -> int:
    """Fill the columns of events, in payload order; return the number of events, or -1 if the slow path is needed."""
    raw: Buffer = payload.view
    words: Buffer = payload.words.data
    longs: Buffer = payload.longs.data
    is_big: bool = payload.big
    objects: Buffer = captured.objects.sorted.data
    low: Buffer = captured.low.sorted.data
    containers: Buffer = captured.containers.sorted.data
    newest: int = captured.newest
    is_row: Buffer = captured.is_row.data
    record_of: Buffer = picks.record.data
    at_of: Buffer = picks.at.data
    stop_of: Buffer = picks.stop.data
    first_of: Buffer = picks.first.data
    fields_of: Buffer = picks.fields.data
    opcode_of: Buffer = picks.opcode.data
    container_of: Buffer = picks.container.data
    kind_of: Buffer = picks.kind.data
    before_of: Buffer = picks.before.data
    event_record: Buffer = room.record.data
    event_place: Buffer = room.place.data
    event_stop: Buffer = room.stop.data
    event_container: Buffer = room.container.data
    event_xid: Buffer = room.xid.data
    event_code: Buffer = room.code.data
    event_value: Buffer = room.value.data
    event_flags: Buffer = room.flags.data
    event_split: Buffer = room.split.data
    count: int = 0
    #: the event of the undo before this vector; -1: there is none
    open_event: int = -1
    record: int = -1
    first_event: int = 0
    #: the session flags in this record; -1: there are none
    session: int = -1
    is_on: bool = False
    for pick in range(len(at_of)):
        kind: int = kind_of[pick]
        if kind == _PASSED:
            continue
        if record_of[pick] != record:
            if session >= 0:
                _tell(event_code, event_value, first_event, count, session)
            record = record_of[pick]
            first_event = count
            session = -1
            is_on = False
        at: int = at_of[pick]
        first: int = first_of[pick]
        container: int = container_of[pick]
        if kind == _UNDO:
            open_event = -1
            ktub: int = before_of[pick]
            if ktub < 0:
                return -1
            number: int = longs[ktub >> 2]
            if not _has(objects, container << 32 | number):
                if number > newest and _has(containers, container):
                    return -1
                continue
            operation: int = raw[ktub + 16] << 8 | raw[ktub + 17]
            if operation != _ROW_UNDO:
                return -1
            open_event = count
            event_code[count] = _CODE_ROW
            event_value[count] = number
            event_stop[count] = stop_of[pick]
            event_xid[count] = _xid(words[first + 8 >> 1], words[first + 10 >> 1], longs[first + 12 >> 2])
            event_flags[count] = _FLAG_BIG_ENDIAN if is_big else 0
        elif kind == _ROW:
            opcode: int = opcode_of[pick]
            if before_of[pick] < 0:
                # locks and block links may have no undo; a row change always has
                is_change: bool = is_row[opcode] != 0 and opcode != _LOCK
                is_hidden: bool = raw[at + 21] & _TYP_ENCRYPTED != 0
                if (is_change or is_hidden) and _has(low, container << 16 | words[at + 22 >> 1]):
                    return -1
                continue
            if open_event < 0:
                # of an object that is not captured
                continue
            if not is_row[opcode] or raw[at + 21] & _TYP_ENCRYPTED:
                return -1
            if event_code[open_event] == _CODE_ROW:
                event_code[open_event] = _CODE_ROW | opcode
                event_split[open_event] = event_stop[open_event] - event_place[open_event] >> 2
            event_stop[open_event] = stop_of[pick]
            continue
        elif kind in (_BEGIN, _COMMIT):
            if not _has(containers, container):
                continue
            number = longs[first + 4 >> 2]
            if kind == _BEGIN and number == 0:
                # not a begin: it extends the undo of a transaction
                continue
            event_xid[count] = _xid(words[at + 2 >> 1] - 15 >> 1, words[first >> 1], number)
            event_stop[count] = at
            event_code[count] = _CODE_BEGIN
            event_value[count] = event_flags[count] = 0
            if kind == _COMMIT:
                flags: int = raw[first + 16]
                fields: int = fields_of[pick]
                event_code[count] = _CODE_ROLLBACK if flags & _ROLLED_BACK else _CODE_COMMIT
                event_flags[count] = flags
                # the time is the last field, if there are at most 4 and it has 4 bytes; 0: the LWN's time is used
                if 1 < fields <= _COMMIT_FIELDS_MAX and words[(at + _VECTOR_HEAD >> 1) + fields] == 4:
                    event_value[count] = longs[stop_of[pick] - 4 >> 2]
        elif kind == _SESSION:
            opcode = opcode_of[pick]
            if opcode == _SESSION_ON and fields_of[pick] > _ON_FIELD:
                session = words[_field(words, at, first, _ON_FIELD) >> 1]
                is_on = True
            elif opcode == _SESSION_START and fields_of[pick] > _START_FIELD and not is_on:
                session = words[_field(words, at, first, _START_FIELD) >> 1]
            continue
        elif kind == _UNKNOWN:
            opcode = opcode_of[pick]
            if _has(low, container << 16 | words[at + 22 >> 1]) or (opcode >> 8 == 5 and _has(containers, container)):
                return -1
            continue
        else:
            return -1
        event_record[count] = record
        event_place[count] = at
        event_container[count] = container
        event_split[count] = 0
        count += 1
    if session >= 0:
        _tell(event_code, event_value, first_event, count, session)
    return count
