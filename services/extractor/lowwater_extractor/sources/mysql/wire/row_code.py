"""Generates Python code that reads the rows of one table version.

A row is a bitmap of nulls followed by the values that are not null. In rows without nulls, the common case, adjacent
columns of fixed size are read at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from lowwater_extractor.sources.mysql.types import ColumnCode
from lowwater_extractor.sources.mysql.wire.charsets import check_utf8

#: (event, offset of the row) → values of the table's columns, offset after the row
ReadRow = Callable[[bytes, int], tuple[list[Any], int]]
#: (event, offset of the first row, end, output list of changes, time) → bytes of the changes
InsertRows = Callable[[bytes, int, int, list[tuple[bytes, bytes]], int], int]


def compile_read(codes: Sequence[ColumnCode], shown: Sequence[int], present: Sequence[int]) -> ReadRow:
    """`present`: indexes of the columns in the row; others are None. `shown`: indexes of the published columns."""
    values = ", ".join(f"v{i}" if i in set(present) else "None" for i in shown)
    lines = ["def read(m, p):", *_decode(codes, present, "    "), f"    return [{values}], p"]
    read: ReadRow = _run(lines, codes, {})["read"]
    return read


def compile_inserts(
    codes: Sequence[ColumnCode], shown: Sequence[int], header: bytes, insert: Callable[..., bytes]
) -> InsertRows:
    """Generate a loop that converts complete rows to inserts."""
    values = ", ".join(f"v{i}" for i in shown)
    lines = [
        "def inserts(m, p, end, out, ts_us):",
        "    size = 0",
        "    while p < end:",
        *_decode(codes, range(len(codes)), "        "),
        f"        body = insert([{values}], ts_us)",
        "        out.append((header, body))",
        "        size += len(body)",
        "    if p != end:",
        "        raise IndexError('rows that do not end where their event does')",
        "    return size",
    ]
    inserts: InsertRows = _run(lines, codes, {"header": header, "insert": insert})["inserts"]
    return inserts


def _run(lines: list[str], codes: Sequence[ColumnCode], scope: dict[str, Any]) -> dict[str, Any]:
    scope |= {"F": int.from_bytes, "U": check_utf8, **{f"c{i}": code.convert for i, code in enumerate(codes)}}
    for i, line in enumerate(lines):
        if (start := line.find("`")) >= 0:
            # a format between backticks is replaced by the reader of a Struct
            end = line.index("`", start + 1)
            scope[f"S{i}"] = struct.Struct(line[start + 1 : end]).unpack_from
            lines[i] = f"{line[:start]}S{i}{line[end + 1 :]}"
    # the code is built from numbers and templates only, never from names of tables or columns
    exec("\n".join(lines), scope)
    return scope


def _decode(codes: Sequence[ColumnCode], present: Sequence[int], indent: str) -> list[str]:
    """Return statements that set v0, v1, … and p to the offset after the row."""
    size = (len(present) + 7) // 8
    # unused bits are set
    spare = (0xFF << len(present) % 8 & 0xFF) if len(present) % 8 else 0
    none = bytes(size - 1) + bytes([spare]) if size else b""
    lines = [f"if m[p:p + {size}] == {none!r}:", f"    p += {size}"]
    lines += [f"    {line}" for line in _all_there(codes, present)]
    lines += ["else:", f"    q = p; p += {size}"]
    for place, i in enumerate(present):
        lines += [f"    if m[q + {place >> 3}] & {1 << (place & 7)}:", f"        v{i} = None", "    else:"]
        lines += [f"        {line}" for line in _one(i, codes[i])]
    return [f"{indent}{line}" for line in lines]


def _all_there(codes: Sequence[ColumnCode], present: Sequence[int]) -> list[str]:
    lines: list[str] = []
    run: list[int] = []
    for i in present:
        if codes[i].format:
            run.append(i)
            continue
        lines += _fixed(codes, run)
        run = []
        lines += _one(i, codes[i])
    return lines + _fixed(codes, run)


def _fixed(codes: Sequence[ColumnCode], run: list[int]) -> list[str]:
    if not run:
        return []
    format_ = "<" + "".join(codes[i].format for i in run)
    lines = [f"{', '.join(f'v{i}' for i in run)}, = `{format_}`(m, p)", f"p += {struct.calcsize(format_)}"]
    return lines + [f"v{i} = c{i}(v{i})" for i in run if codes[i].convert is not None]


def _one(i: int, code: ColumnCode) -> list[str]:
    if code.format:
        lines = [f"v{i} = `<{code.format}`(m, p)[0]", f"p += {struct.calcsize('<' + code.format)}"]
        return lines + ([f"v{i} = c{i}(v{i})"] if code.convert is not None else [])
    n = code.length_bytes
    size = "m[p]" if n == 1 else "(m[p] | m[p + 1] << 8)" if n == 2 else f"F(m[p:p + {n}], 'little')"
    value = f"m[p + {n}:e]"
    checked = [f"if not v{i}.isascii(): U(v{i})"] if code.is_utf8 else []
    return [
        f"e = p + {n} + {size}",
        f"v{i} = {value if code.convert is None else f'c{i}({value})'}",
        *checked,
        "p = e",
    ]
