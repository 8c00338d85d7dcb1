# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""The fast path: encodes rows in a database's log format directly as Avro changes.

This is plain Python that Cython compiles with the C types of `row_bytes.pxd`; no Python object is created between the
log and the change. A row that the fast path does not support (a value that does not fit its column, a null in a key, a
damaged row) is left to the slow path of the source kind, which encodes it or raises an error: here the result is -1.

The compiled form has no bounds checks: every read is checked here against the end of the input, and no change is larger
than its row plus the room that `row_program` adds. The tests run the uncompiled form, whose indexes Python checks, on
damaged rows.
"""

from __future__ import annotations

from typing import Any, Final

from lowwater_extractor._native.frames import Frames

#: constants of programs, as in `row_program`
_STEP: Final = 4
_HIDDEN: Final = 128
_NEVER_NULL: Final = 64
_ROWID: Final = 32
_WHAT: Final = 31

_INTEGER: Final = 1
_REAL: Final = 2
_TEXT: Final = 3
_BLOB: Final = 4
_SIGNED: Final = 5
_UNSIGNED: Final = 6
_COPIED: Final = 7
_COUNTED: Final = 8
_TIMESTAMP: Final = 9
_DATETIME: Final = 10
_DATE: Final = 11
_DECIMAL: Final = 12
_UTF8: Final = 13

#: kinds of a change, in records (c u d) and in Turso's log
_CREATE: Final = 0
_UPDATE: Final = 1
_DELETE: Final = 2
_INSERTED: Final = 1
_UPDATED: Final = 0
_DELETED: Final = -1

#: columns of a row of Turso's log
_ID: Final = 0
_TIME: Final = 1
_TXN: Final = 2
_KIND: Final = 3
_TABLE: Final = 4
_ROW: Final = 5
_BEFORE: Final = 6
_AFTER: Final = 7
_UPDATES: Final = 8

_EXACT: Final = 1 << 53
_EPOCH_DAYS: Final = 719_468
_DAY_SECONDS: Final = 86_400
_MILLION: Final = 1_000_000
#: seconds whose microseconds fit 64 bits
_SECONDS_MAX: Final = 9_000_000_000_000
_DATETIME_OFFSET: Final = 0x80_0000_0000
_YEAR_MIN: Final = 1
_YEAR_MAX: Final = 9999

#: bytes of SQLite's values by serial type; 10 and 11 are reserved
_WIDTHS: Final = b"\x00\x01\x02\x03\x04\x06\x08\x08\x00\x00\x00\x00"
_MONTH_DAYS: Final = b"\x00\x1f\x1c\x1f\x1e\x1f\x1e\x1f\x1f\x1e\x1f\x1e\x1f"
#: bytes of 0 … 9 digits of a decimal
_DIGIT_BYTES: Final = b"\x00\x01\x01\x02\x02\x03\x03\x04\x04\x04"


# -- writing -----------------------------------------------------------------------------------------------


def _put_long(out: bytearray, at: int, n: int) -> int:
    z = n << 1 ^ n >> 63
    while z > 127:
        out[at] = z & 127 | 128
        z >>= 7
        at += 1
    out[at] = z
    return at + 1


def _put_copy(out: bytearray, at: int, data: bytes, start: int, stop: int) -> int:
    for place in range(start, stop):
        out[at] = data[place]
        at += 1
    return at


def _put_double(out: bytearray, at: int, n: int) -> int:
    """Write an integer that a double represents exactly, as the bits of that double."""
    bits = 0
    if n:
        size = n if n > 0 else -n
        exponent = 0
        while size >> exponent > 1:
            exponent += 1
        one: int = 1
        bits = (size ^ one << exponent) << 52 - exponent | (1023 + exponent) << 52
    for shift in range(0, 56, 8):
        out[at] = bits >> shift & 255
        at += 1
    out[at] = bits >> 56 & 127 | (128 if n < 0 else 0)
    return at + 1


def _has_more_than_ascii(r: bytes, p: int, e: int) -> bool:
    """Check without a branch per byte, because nearly all text is ASCII."""
    found = 0
    for place in range(p, e):
        found |= r[place]
    return found > 127


def _is_utf8(r: bytes, p: int, e: int) -> bool:
    """Check by the rules of Python's decoder: no surrogates, no overlong encodings."""
    while p < e:
        c = r[p]
        p += 1
        if c < 0x80:
            continue
        if c < 0xC2 or c > 0xF4:
            return False
        more = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
        if e - p < more:
            return False
        d = r[p]
        if d & 0xC0 != 0x80 or (c == 0xE0 and d < 0xA0) or (c == 0xED and d > 0x9F):
            return False
        if (c == 0xF0 and d < 0x90) or (c == 0xF4 and d > 0x8F):
            return False
        for place in range(p + 1, p + more):
            if r[place] & 0xC0 != 0x80:
                return False
        p += more
    return True


# -- SQLite's records --------------------------------------------------------------------------------------


def _put_record(
    r: bytes, size: int, rowid: int, program: bytes, columns: int, is_rowid_first: bool, out: bytearray, at: int
) -> int:
    """Encode a SQLite record of Turso's log: a header with a serial type for each column, then the values."""
    if size < 1 or r[0] > 127 or r[0] > size:
        return -1
    head = r[0]
    i = 1
    p = head
    if is_rowid_first:
        out[at] = 2
        at = _put_long(out, at + 1, rowid)
    for column in range(columns):
        serial = 0
        byte = 128
        first = i
        while byte > 127:
            # at most four bytes, enough for a value of 128 MB
            if i >= head or i > first + 3:
                return -1
            byte = r[i]
            i += 1
            serial = serial << 7 | byte & 127
        flags = program[_STEP * column]
        what = flags & _WHAT
        if serial == 0:
            if flags & _ROWID:
                out[at] = 2
                at = _put_long(out, at + 1, rowid)
            elif flags & _NEVER_NULL:
                return -1
            elif not flags & _HIDDEN:
                out[at] = 0
                at += 1
            continue
        if serial == 10 or serial == 11:
            return -1
        length = _WIDTHS[serial] if serial < 12 else serial - 12 >> 1
        if length > size - p:
            return -1
        if what in (_TEXT, _BLOB):
            if serial < 12 or serial & 1 != (what == _TEXT) or (what == _TEXT and not _is_utf8(r, p, p + length)):
                return -1
            if not flags & _HIDDEN:
                out[at] = 2
                at = _put_long(out, at + 1, length)
                at = _put_copy(out, at, r, p, p + length)
            p += length
            continue
        if serial > 11 or (serial == 7 and what == _INTEGER):
            return -1
        number = serial - 8 if serial > 7 else 0
        for place in range(p, p + length):
            number = number << 8 | r[place]
        if 0 < serial < 7:
            number = _signed(number, length)
        p += length
        if what == _REAL and serial != 7 and (number >= _EXACT or number <= -_EXACT):
            return -1
        if flags & _HIDDEN:
            continue
        out[at] = 2
        at += 1
        if what == _INTEGER:
            at = _put_long(out, at, number)
        elif serial == 7:
            for place in range(1, 9):
                out[at] = r[p - place]
                at += 1
        else:
            at = _put_double(out, at, number)
    return at if i == head and p == size else -1


def _signed(n: int, size: int) -> int:
    """Interpret the `size` lowest bytes of `n` as a signed integer. With eight bytes, C integers already are."""
    half: int = 1
    half <<= 8 * size - 1
    return (n ^ half) - half


def take_changes(
    rows: list[Any], start: int, program: bytes, columns: int, is_rowid_first: bool, header: bytes, out: bytearray,
    room: int, frames: Frames,
) -> tuple[int, int]:  # fmt: skip
    """Encode rows of Turso's log from `start` on, while they are changes of one table in one transaction that the fast
    path supports, with records of at most `room` bytes. Returns their number, and the bytes of the frames added."""
    first = rows[start]
    expected: int = first[_ID]
    txn: int = first[_TXN]
    table = first[_TABLE]
    count = total = 0
    for number in range(start, len(rows)):
        row = rows[number]
        change_id: int = row[_ID]
        change_txn: int = row[_TXN]
        if change_id != expected or change_txn != txn or row[_TABLE] != table:
            break
        if type(row[_ROW]) is not int or type(row[_TIME]) is not int:
            break
        kind: int = row[_KIND]
        rowid: int = row[_ROW]
        seconds: int = row[_TIME]
        if not -_SECONDS_MAX < seconds < _SECONDS_MAX:
            break
        before, after = row[_BEFORE], row[_AFTER]
        at = 2
        if kind == _INSERTED:
            if type(after) is not bytes or len(after) > room:
                break
            out[0], out[1], out[2] = 2 * _CREATE, 0, 2
            at = _put_record(after, len(after), rowid, program, columns, is_rowid_first, out, 3)
        elif kind == _DELETED or (kind == _UPDATED and row[_UPDATES] is not None):
            if type(before) is not bytes or len(before) > room:
                break
            out[0], out[1] = 2 * _DELETE if kind == _DELETED else 2 * _UPDATE, 2
            at = _put_record(before, len(before), rowid, program, columns, is_rowid_first, out, 2)
            if at < 0:
                break
            if kind == _UPDATED:
                if type(after) is not bytes or len(before) + len(after) > room:
                    break
                out[at] = 2
                at = _put_record(after, len(after), rowid, program, columns, is_rowid_first, out, at + 1)
            else:
                out[at] = 0
                at += 1
        else:
            break
        if at < 0:
            break
        out[at] = 0
        at = _put_long(out, at + 1, seconds * _MILLION)
        frames.put(header, out, at)
        total += at
        expected += 1
        count += 1
    return count, total


# -- rows of MySQL's log -----------------------------------------------------------------------------------


def _put_row(
    e: bytes, p: int, end: int, program: bytes, columns: int, out: bytearray, at: int, behind: list[int]
) -> int:
    """Encode a row of a row event: a bitmap of nulls, then the non-null values. Sets `behind[0]` to the offset after
    the row."""
    nulls = p
    p += columns + 7 >> 3
    if p > end:
        return -1
    for column in range(columns):
        flags = program[_STEP * column]
        is_shown = not flags & _HIDDEN
        if e[nulls + (column >> 3)] >> (column & 7) & 1:
            if flags & _NEVER_NULL:
                return -1
            if is_shown:
                out[at] = 0
                at += 1
            continue
        what = flags & _WHAT
        size = program[_STEP * column + 1]
        if what in (_COUNTED, _UTF8):
            if size > end - p:
                return -1
            length = 0
            for place in range(size):
                byte: int = e[p + place]
                length |= byte << 8 * place
            p += size
            if length < 0 or length > end - p:
                return -1
            if what == _UTF8 and _has_more_than_ascii(e, p, p + length) and not _is_utf8(e, p, p + length):
                return -1
            if is_shown:
                out[at] = 2
                at = _put_long(out, at + 1, length)
                at = _put_copy(out, at, e, p, p + length)
            p += length
            continue
        if size > end - p:
            return -1
        if not is_shown:
            p += size
            continue
        out[at] = 2
        at += 1
        if what == _COPIED:
            at = _put_copy(out, at, e, p, p + size)
        elif what == _DECIMAL:
            at = _put_decimal(e, p, program[_STEP * column + 2], program[_STEP * column + 3], out, at)
        else:
            at = _put_number(e, p, what, size, program[_STEP * column + 2], out, at)
        if at < 0:
            return -1
        p += size
    behind[0] = p
    return at


def _put_number(e: bytes, p: int, what: int, size: int, fraction: int, out: bytearray, at: int) -> int:
    n = 0
    if what in (_SIGNED, _UNSIGNED, _DATE):
        for place in range(size):
            byte: int = e[p + place]
            n |= byte << 8 * place
        if what == _SIGNED:
            n = _signed(n, size)
        elif what == _DATE:
            n = _days_of(n >> 9, n >> 5 & 15, n & 31)
            if n == -_EPOCH_DAYS:
                return -1
        return _put_long(out, at, n)
    for place in range(size - fraction):
        n = n << 8 | e[p + place]
    micros = 0
    for place in range(size - fraction, size):
        micros = micros << 8 | e[p + place]
    micros *= 10_000 if fraction == 1 else 100 if fraction == 2 else 1
    if micros >= _MILLION:
        return -1
    if what == _DATETIME:
        n -= _DATETIME_OFFSET
        if n < 0 or n >> 12 & 31 > 23 or n >> 6 & 63 > 59 or n & 63 > 59:
            return -1
        days = _days_of((n >> 22) // 13, (n >> 22) % 13, n >> 17 & 31)
        if days == -_EPOCH_DAYS:
            return -1
        n = days * _DAY_SECONDS + (n >> 12 & 31) * 3600 + (n >> 6 & 63) * 60 + (n & 63)
    elif not n:
        # the zero date
        return -1
    return _put_long(out, at, n * _MILLION + micros)


def _days_of(year: int, month: int, day: int) -> int:
    """Return days since 1970; those of 0000-03-01 (`-_EPOCH_DAYS`) if the date is invalid or out of range."""
    if not _YEAR_MIN <= year <= _YEAR_MAX or not 0 < month < 13 or not day:
        return -_EPOCH_DAYS
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > _MONTH_DAYS[month] and not (month == 2 and day == 29 and is_leap):
        return -_EPOCH_DAYS
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH_DAYS


def _put_decimal(e: bytes, p: int, precision: int, scale: int, out: bytearray, at: int) -> int:
    """Encode a DECIMAL: groups of nine digits in four bytes, big-endian; the first bit is inverted, and all bits of a
    negative number are."""
    turned = 0 if e[p] & 128 else 255
    first = 128
    unscaled = 0
    whole = precision - scale
    left = whole
    for part in range(2):
        # the group with fewer digits is the first one before the decimal point, and the last one after it
        digits = left % 9 if part == 0 else 9
        while left:
            if part == 0 and digits == 0:
                digits = 9
            if digits > left:
                digits = left
            group = 0
            power: int = 1
            for place in range(_DIGIT_BYTES[digits]):
                group = group << 8 | (e[p + place] ^ first ^ turned)
                first = 0
            p += _DIGIT_BYTES[digits]
            for _ in range(digits):
                power *= 10
            if group >= power:
                return -1
            unscaled = unscaled * power + group
            left -= digits
            digits = 9
        left = scale
    size = 1
    while unscaled >> 8 * size - 1:
        size += 1
    if turned:
        unscaled = -unscaled
    at = _put_long(out, at, size)
    for place in range(size - 1, -1, -1):
        out[at] = unscaled >> 8 * place & 255
        at += 1
    return at


def take_rows(
    op: int, e: bytes, p: int, end: int, program: bytes, columns: int, header: bytes, ts_us: int, out: bytearray,
    room: int, frames: list[tuple[bytes, bytes]],
) -> int:  # fmt: skip
    """Encode all rows of a row event with full row images, from `p` to `end`; returns the bytes of the frames added.

    -1: a row that the fast path does not support, or more than `room` bytes; some frames may have been added.
    """
    if end - p > room:
        return -1
    total = 0
    behind = [p]
    while p < end:
        out[0], out[1], out[2] = 2 * op, 0 if op == _CREATE else 2, 2
        at = _put_row(e, p, end, program, columns, out, 3 if op == _CREATE else 2, behind)
        if at < 0:
            return -1
        p = behind[0]
        if op == _UPDATE:
            out[at] = 2
            at = _put_row(e, p, end, program, columns, out, at + 1, behind)
            if at < 0:
                return -1
            p = behind[0]
        elif op == _DELETE:
            out[at] = 0
            at += 1
        out[at] = 0
        at = _put_long(out, at + 1, ts_us)
        frames.append((header, bytes(out[0:at])))
        total += at
    return total
