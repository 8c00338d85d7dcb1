# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
"""The two scans over every byte of redo: from record to record, and from vector to vector.

Plain Python that Cython compiles with the C types of `record_scan.pxd`: an irrelevant vector then costs about ten
nanoseconds. It does not use numpy: it works on buffers that the callers own.

The compiled form does not check indexes. So a byte is read only after a check that it is in its record, and a record
only after a check that it is in its LWN; a header may be read after the last record, for which `Payload` has a margin.
The tests run the plain form, whose indexes Python checks, on redo that is damaged at every byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lowwater_extractor.sources.oracle.redo.scan import Lwns, Payload, PickRoom, Records
    from lowwater_extractor.sources.oracle.redo.vector_columns import Wanted

Buffer = memoryview

#: constants of the format, the same as in `layout`
_RECORD_HEAD: Final = 24
_LWN_HEAD: Final = 68
_VECTOR_HEAD: Final = 32
_BLOCK_HEAD: Final = 16
_VLD_VECTORS: Final = 1
_VLD_LWN: Final = 4
_TYP_ENCRYPTED: Final = 0x80

#: kinds of a vector, the same as in `opcodes.VectorKind`
_PASSED: Final = 0
_UNDO: Final = 1
_ROW: Final = 2
_BEGIN: Final = 3
_COMMIT: Final = 4
_UNDONE: Final = 5
_STATE: Final = 6
_SESSION: Final = 7
_DDL: Final = 8

#: what precedes a row in its record: no undo, or undo of an object that is not captured; else the picked undo's index
_NO_UNDO: Final = -1
_OTHER_UNDO: Final = -2

#: minimum sizes of the first and second field of an undo
_UNDO_HEAD_MIN: Final = 20
_UNDO_OBJECT_MIN: Final = 24

#: size of the table of begins without a commit, by a hash of undo segment and slot
OPEN: Final = 4096
_OPEN_LAST: Final = 4095

_SMALL_RECORD: Final = -1
_BROKEN_CHAIN: Final = -2
_EMPTY_LWN: Final = -3
_BROKEN_VECTOR: Final = -4

#: what a scan returns if the bytes are not redo; `wrong` has the position
DAMAGE: Final = {
    _SMALL_RECORD: "a record that is smaller than its header",
    _BROKEN_CHAIN: "a record that does not end where the next one starts, or its LWN ends",
    _EMPTY_LWN: "an LWN that does not begin with a record",
    _BROKEN_VECTOR: "a vector that does not fit its record",
}


def walk_records(payload: Payload, lwns: Lwns, records: Records, wrong: Buffer) -> int:
    """Fill the columns of all records of the LWNs from block `start` to `stop`; return the number of records.

    Each record begins where the previous one ends. Only the end of a block is skipped, if it is too short for a header
    or has the record length 0. The offsets of first records in the block headers (`first`) must agree.
    """
    words: Buffer = payload.words.data
    longs: Buffer = payload.longs.data
    step: int = payload.step
    first: Buffer = payload.first.data
    start: Buffer = lwns.start.data
    stop: Buffer = lwns.stop.data
    at_of: Buffer = records.at.data
    key_of: Buffer = records.key.data
    cuts: Buffer = records.cuts.data
    lowest: Buffer = records.lowest.data
    highest: Buffer = records.highest.data
    ordered: Buffer = records.ordered.data
    count: int = 0
    for lwn in range(len(start)):
        at: int = start[lwn] * step
        end: int = stop[lwn] * step
        block: int = start[lwn]
        left: int = step
        #: the last block whose first record was checked
        seen: int = block - 1
        low: int = 0xFFFF_FFFF_FFFF_FFFF
        high: int = 0
        last: int = 0
        cuts[lwn] = count
        ordered[lwn] = 1
        while at < end:
            size: int = longs[at >> 2] if left >= _RECORD_HEAD else 0
            if size == 0:
                if left == step:
                    wrong[0] = at
                    return _EMPTY_LWN if at == start[lwn] * step else _BROKEN_CHAIN
                at += left
                block += 1
                left = step
                continue
            while seen < block:
                seen += 1
                offset: int = first[seen] - _BLOCK_HEAD
                named: int = -1
                if 0 <= offset <= step - _RECORD_HEAD and longs[seen * step + offset >> 2]:
                    named = seen * step + offset
                if named != (at if seen == block else -1):
                    wrong[0] = at
                    return _BROKEN_CHAIN
            if size < _RECORD_HEAD:
                wrong[0] = at
                return _SMALL_RECORD
            key: int = words[at + 6 >> 1]
            key = (key << 32 | longs[at + 8 >> 2]) << 16 | words[at + 12 >> 1]
            at_of[count] = at
            key_of[count] = key
            count += 1
            if key < last:
                ordered[lwn] = 0
            last = key
            if key < low:
                low = key
            if key > high:
                high = key
            size = size + 3 & ~3
            if size > end - at:
                wrong[0] = at
                return _BROKEN_CHAIN
            at += size
            left -= size
            while left <= 0:
                left += step
                block += 1
        while seen < stop[lwn] - 1:
            seen += 1
            offset = first[seen] - _BLOCK_HEAD
            if 0 <= offset <= step - _RECORD_HEAD and longs[seen * step + offset >> 2]:
                wrong[0] = seen * step
                return _BROKEN_CHAIN
        lowest[lwn] = low
        highest[lwn] = high
    cuts[len(start)] = count
    return count


def pick_vectors(
    payload: Payload, records: Records, wanted: Wanted, room: PickRoom, open_of: Buffer, wrong: Buffer
) -> int:
    """Fill the columns of all vectors that may be relevant; return the number of vectors.

    Begin and commit of a transaction in one LWN, with no picked undo between them, are skipped. If they are in several
    LWNs they are not, because a reader can stop between LWNs and another one start there; nor if the records of the LWN
    are not in order, because an undo may follow.

    `kinds` is indexed by opcode; `maybe` by the last 16 bits of an undo's object: not 0 if the object may be captured.
    Objects above `newest` may be captured, too. A row is picked if the undo before it was picked, or if there was none.
    `before`: see `VectorColumns`.
    """
    raw: Buffer = payload.view
    words: Buffer = payload.words.data
    longs: Buffer = payload.longs.data
    at_of: Buffer = records.at.data
    cuts: Buffer = records.cuts.data
    ordered: Buffer = records.ordered.data
    kinds: Buffer = wanted.kinds.data
    maybe: Buffer = wanted.objects.data
    newest: int = wanted.newest
    record_of: Buffer = room.record.data
    place_of: Buffer = room.at.data
    stop_of: Buffer = room.stop.data
    first_of: Buffer = room.first.data
    fields_of: Buffer = room.fields.data
    opcode_of: Buffer = room.opcode.data
    container_of: Buffer = room.container.data
    kind_of: Buffer = room.kind.data
    before_of: Buffer = room.before.data
    count: int = 0
    lwn: int = 0
    for record in range(len(at_of)):
        while record >= cuts[lwn + 1]:
            lwn += 1
        at: int = at_of[record]
        end: int = at + (longs[at >> 2] + 3 & ~3)
        flags: int = raw[at + 4]
        if not flags & _VLD_VECTORS:
            continue
        at += _LWN_HEAD if flags & _VLD_LWN else _RECORD_HEAD
        undo: int = _NO_UNDO
        lone: int = -1
        while at < end:
            place: int = at + _VECTOR_HEAD >> 1
            listed: int = words[place]
            first: int = at + (_VECTOR_HEAD + 2) + listed & ~3
            if listed < 2 or listed & 1 or first > end:
                wrong[0] = at
                return _BROKEN_VECTOR
            stop: int = first
            for field in range(place + 1, place + (listed >> 1)):
                stop += words[field] + 3 & ~3
            if stop > end:
                wrong[0] = at
                return _BROKEN_VECTOR
            opcode: int = raw[at] << 8 | raw[at + 1]
            kind: int = kinds[opcode]
            before: int = -1
            picked: bool = kind != _PASSED
            if kind == _ROW:
                picked = undo != _OTHER_UNDO
                before = undo
                if undo == _NO_UNDO and lone < 0:
                    lone = at
            else:
                if kind == _UNDONE:
                    before = lone
                lone = -1
                undo = _NO_UNDO
                if kind == _UNDO:
                    # the object is in the second field; if that cannot be read, the undo is picked
                    if listed >= 6 and not raw[at + 21] & _TYP_ENCRYPTED:
                        head: int = words[place + 1]
                        if head >= _UNDO_HEAD_MIN and words[place + 2] >= _UNDO_OBJECT_MIN:
                            before = first + (head + 3 & ~3)
                            number: int = longs[before >> 2]
                            picked = maybe[number & 0xFFFF] != 0 or number > newest
                            spot: int = words[first + 8 >> 1] * 64 + words[first + 10 >> 1] & _OPEN_LAST
                            if picked:
                                open_of[spot] = -1
                    undo = count if picked else _OTHER_UNDO
                elif kind == _DDL and stop - first >= 8:
                    open_of[words[first + 4 >> 1] * 64 + words[first + 6 >> 1] & _OPEN_LAST] = -1
                elif kind in (_BEGIN, _COMMIT, _STATE) and stop - first >= 8:
                    spot = (words[at + 2 >> 1] - 15 >> 1) * 64 + words[first >> 1] & _OPEN_LAST
                    began: int = open_of[spot]
                    open_of[spot] = count if kind == _BEGIN else -1
                    if kind == _COMMIT and began >= 0 and record_of[began] >= cuts[lwn] and ordered[lwn]:
                        picked = not _ends(words, longs, at, first, place_of[began], first_of[began])
                        if not picked:
                            kind_of[began] = _PASSED
                            began += 1
                            # the vector with its session, too
                            if (
                                began < count
                                and kind_of[began] == _SESSION
                                and record_of[began] == record_of[began - 1]
                            ):
                                kind_of[began] = _PASSED
            if picked:
                record_of[count] = record
                place_of[count] = at
                stop_of[count] = stop
                first_of[count] = first
                fields_of[count] = (listed >> 1) - 1
                opcode_of[count] = opcode
                container_of[count] = words[at + 24 >> 1]
                kind_of[count] = kind
                before_of[count] = before
                count += 1
            at = stop
    return count


def _ends(words: Buffer, longs: Buffer, at: int, first: int, begin_at: int, begin_first: int) -> bool:
    """Whether the commit belongs to the begin: it has the same class, container, slot and sequence."""
    return (
        words[at + 2 >> 1] == words[begin_at + 2 >> 1]
        and words[at + 24 >> 1] == words[begin_at + 24 >> 1]
        and words[first >> 1] == words[begin_first >> 1]
        and longs[first + 4 >> 2] == longs[begin_first + 4 >> 2]
    )
