"""The fast path: frames of simple changes of one table version, by generated code.

Nearly all changes are of one row in one piece. For these the fields are read at their positions by unrolled code. Any
pair with an unexpected structure is left to the slow path (`row_decoder`), which also reports errors. Only for little
endian hosts, and for tables without LOBs, stored defaults, and types whose values are not in the log.

All functions: (pair, position of the row change, time) → a frame, or frames of many rows, or None: use the slow path.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from lowwater.codec.encoder import TableEncoder
from lowwater_extractor.sources.oracle.dictionary.dictionary import TableVersion
from lowwater_extractor.sources.oracle.rows import pairs
from lowwater_extractor.sources.oracle.rows.row_code import IS_PART, RowValues, first_size, function, list_end
from lowwater_extractor.sources.oracle.rows.row_decoder import is_logged
from lowwater_extractor.sources.oracle.rows.update_decoder_fast import Updates

Quick = Callable[[bytes, int, int], Any]
#: row operation → its function
Quicks = dict[int, Quick]


def is_plain(version: TableVersion) -> bool:
    """Whether every published value is in the row."""
    return all(is_logged(c) and c.default is None and c.guard is None for c in version.visible)


def _insert(values: RowValues, scope: dict[str, Any], count: int) -> Quick:
    """5.1: F1, F2, KTB, KDO (DRP), group of 20 bytes. 11.2: KTB, KDO, columns."""
    names = ", ".join(f"s{i}" for i in range(1, count + 1))
    scope["G"] = Struct("<5H").unpack_from
    scope[f"I{count}"] = Struct(f"<{count + 2}H").unpack_from
    lines = [
        f"if d[40:42] != {first_size(5)!r} or d[p - 20] != 2 or d[p - 19] & 12 != 12 or d[p - 12] != 1 or d[p - 11]:",
        "    return None",
        "f1, f2, k, o, g = G(d, 42)",
        f"f = {8 + list_end(5)} + (f1 + 3 & -4)",
        "a = f + (f2 + 3 & -4) + (k + 3 & -4)",
        f"if g != 20 or a + (o + 3 & -4) != p - 20 or d[a + 10] & 95 != {pairs.DRP} or {IS_PART}:",
        "    return None",
        f"k, o, {names} = I{count}(d, p + 34)",
        f"a = p + {list_end(count + 2)} + (k + 3 & -4)",
        f"if d[a + 10] != {pairs.IRP} or d[a + 11] & 128 or d[a + 16] != {pairs.WHOLE} or d[a + 18] != {count}:",
        "    return None",
        "a += o + 3 & -4",
    ]
    for i in range(1, count + 1):
        lines += values.take(f"s{i}", f"v{i}", i)
    row = values.row("v", set(range(1, count + 1)))
    lines += ["if a != len(d):", "    return None", f"return HEADER, INSERT([{row}], ts)"]
    return function(f"insert{count}", "d, p, ts", lines, scope)


def _delete(values: RowValues, scope: dict[str, Any], count: int) -> Quick:
    """5.1: F1, F2, KTB, KDO (IRP), columns, group of 20 bytes. 11.3."""
    names = ", ".join(f"s{i}" for i in range(1, count + 1))
    scope[f"X{count}"] = Struct(f"<{count + 5}H").unpack_from
    lines = [
        "if d[p - 20] != 4 or d[p - 19] & 12 != 12 or d[p - 14] != 1 or d[p - 13]:",
        "    return None",
        f"f1, f2, k, o, {names}, g = X{count}(d, 42)",
        f"f = {8 + list_end(count + 5)} + (f1 + 3 & -4)",
        "a = f + (f2 + 3 & -4) + (k + 3 & -4)",
        f"if g != 20 or d[a + 10] & 95 != {pairs.IRP} or d[a + 16] != {pairs.WHOLE} or d[a + 18] != {count}"
        f" or {IS_PART}:",
        "    return None",
        "a += o + 3 & -4",
    ]
    for i in range(1, count + 1):
        lines += values.take(f"s{i}", f"v{i}", i)
    row = values.row("v", set(range(1, count + 1)))
    lines += ["if a != p - 20:", "    return None", f"return HEADER, DELETE([{row}], ts)"]
    return function(f"delete{count}", "d, p, ts", lines, scope)


def _by_width(make: Callable[[int], Quick], at: Callable[[bytes, int], bytes], more: int, width: int) -> Quick:
    """One function for each number of columns, because NULLs at a row's end are left out. Created on first use."""
    made: dict[bytes, Quick] = {}
    counts = {first_size(count + more): count for count in range(1, width + 1)}

    def quick(d: bytes, p: int, ts: int) -> Any:
        size = at(d, p)
        found = made.get(size)
        if found is None:
            if size not in counts:
                return None
            found = made[size] = make(counts[size])
        return found(d, p, ts)

    return quick


# -- many rows -----------------------------------------------------------------------------------------------


def _packed(values: RowValues) -> list[str]:
    """Code that reads one row in block format at `a`; it returns None if the row does not have all columns."""
    lines = [f"if d[a] != {pairs.WHOLE} or d[a + 2] != {values.width}:", "    return None", "a += 3"]
    for column in range(1, values.width + 1):
        expression = values.expressions.get(column, "None")
        lines += [
            "n = d[a]",
            "a += 1",
            "if 0 < n < 254:",
            "    e = a + n",
            f"    v{column} = {expression}",
            "    a = e",
            "elif n == 254:",
            "    e = a + 2 + (d[a] | d[a + 1] << 8)",
            "    a += 2",
            f"    v{column} = {expression}",
            "    a = e",
            "else:",
            f"    v{column} = None",
        ]
    return lines


def _many(values: RowValues, scope: dict[str, Any], *, is_insert: bool) -> Quick:
    """11.11: KTB, KDO, sizes, rows. Or 5.1: F1, F2, KTB, KDO (QMI), sizes, rows, perhaps a group; 11.12."""
    scope["Q"] = Struct("<4H").unpack_from
    if is_insert:
        lines = [
            f"if d[p + 32:p + 34] != {first_size(4)!r}:",
            "    return None",
            "k, o, s, r = Q(d, p + 34)",
            f"a = p + {list_end(4)} + (k + 3 & -4)",
        ]
        write = "INSERT"
    else:
        lines = [
            "f1, f2, k, o = Q(d, 42)",
            "s, r, *_ = Q(d, 50)",
            "f = 40 + ((d[40] | d[41] << 8) + 2 & -4) + (f1 + 3 & -4)",
            f"if {IS_PART}:",
            "    return None",
            "a = f + (f2 + 3 & -4) + (k + 3 & -4)",
        ]
        write = "DELETE"
    lines += [
        f"if d[a + 10] & 95 != {pairs.QMI}:",
        "    return None",
        "count = d[a + 18]",
        "a += (o + 3 & -4) + (s + 3 & -4)",
        "end = a + r",
        "frames = []",
        "for _ in range(count):",
        *(f"    {line}" for line in _packed(values)),
        f"    frames.append((HEADER, {write}([{values.row('v', set(range(1, values.width + 1)))}], ts)))",
        "return frames if a == end else None",
    ]
    return function("insert_many" if is_insert else "delete_many", "d, p, ts", lines, scope)


def quicks(version: TableVersion, encoder: TableEncoder) -> Quicks:
    """The functions by row operation; empty for tables that need the slow path."""
    if not is_plain(version) or not version.visible:
        return {}
    values = RowValues(version)
    scope = values.scope
    scope |= {
        "HEADER": encoder.header, "INSERT": encoder.insert, "UPDATE": encoder.update, "DELETE": encoder.delete,
        "BODY": encoder.body,
    }  # fmt: skip
    width = values.width
    return {
        pairs.IRP: _by_width(lambda n: _insert(values, scope, n), lambda d, p: d[p + 32 : p + 34], 2, width),
        pairs.DRP: _by_width(lambda n: _delete(values, scope, n), lambda d, _: d[40:42], 5, width),
        pairs.URP: Updates(version, values, scope).quick,
        pairs.QMI: _many(values, scope, is_insert=True),
        pairs.QMD: _many(values, scope, is_insert=False),
    }
