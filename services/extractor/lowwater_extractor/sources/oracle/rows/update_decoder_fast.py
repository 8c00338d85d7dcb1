"""The fast path for updates of one row in one piece: code is generated for each set of columns."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from lowwater_extractor.sources.oracle.dictionary.dictionary import TableVersion
from lowwater_extractor.sources.oracle.rows import pairs
from lowwater_extractor.sources.oracle.rows.pair_fields import vectors
from lowwater_extractor.sources.oracle.rows.row_code import IS_PART, RowValues, first_size, function, list_end

_FORMS_MAX = 4_000

#: (pair, sizes of the undo's fields, its F2, its KDO, its first value, the row change, time) → frame or None
_Form = Callable[[bytes, tuple[int, ...], int, int, int, int, int], Any]


def _none(*_: object) -> None:
    """Updates of this form use the slow path."""


class Updates:
    """One function for each set of changed columns and number of fields."""

    def __init__(self, version: TableVersion, values: RowValues, scope: dict[str, Any]) -> None:
        self._values = values
        self._scope = scope
        self._names = {c.number: c.name for c in version.visible}
        by_name = {c.name: c.number for c in version.visible}
        self._needed = {by_name[name] for name in version.key} or set(values.places)
        self._logs_all = version.logs_all
        self._forms: dict[bytes, _Form] = {}
        self._sizes: dict[bytes, Callable[[bytes, int], tuple[int, ...]]] = {}

    def quick(self, d: bytes, p: int, ts: int) -> Any:
        size = d[40:42]
        unpack = self._sizes.get(size)
        if unpack is None:
            unpack = self._sizes[size] = Struct(f"<{(d[40] | d[41] << 8) - 2 >> 1}H").unpack_from
        s = unpack(d, 42)
        f = 40 + (2 * len(s) + 4 & -4) + (s[0] + 3 & -4)
        k = f + (s[1] + 3 & -4) + (s[2] + 3 & -4)
        n = k + (s[3] + 3 & -4)
        key = size + d[n : n + 2 * d[k + 23]]
        form = self._forms.get(key)
        if form is None:
            form = self._make(key, d)
        return form(d, s, f, k, n + (s[4] + 3 & -4), p, ts)

    def _make(self, key: bytes, d: bytes) -> _Form:
        """Generate the function for pairs of this form, from the slow path's result for this pair."""
        pair = pairs.read(d, *vectors(d))
        if len(self._forms) >= _FORMS_MAX:
            self._forms.clear()
        form: _Form = _none
        group, undo, redo = pair.group, pair.undo, pair.redo
        if (
            group is not None
            and undo is not None
            and redo is not None
            and undo.columns == redo.columns
            and undo.columns
        ):
            more = group.image.columns
            known = {*undo.columns, *more}
            highest = max(known)
            # if all columns are logged, those after the last are NULLs at the row's end
            absent = {c for c in self._values.places if c not in known and not (self._logs_all and c > highest)}
            fields = 6 + len(undo.columns) + (2 + len(more) if more else 0)
            if key[:2] == first_size(fields) and highest <= self._values.width and not absent & self._needed:
                form = self._form(undo.columns, group, key[2:], absent)
        self._forms[key] = form
        return form

    def _form(self, changed: list[int], group: pairs.Group, numbers: bytes, absent: set[int]) -> _Form:
        """5.1: F1, F2, KTB, KDO (URP), numbers, values, group, its numbers, its lengths, its values. 11.5."""
        values, count, more = self._values, len(changed), group.image.columns
        olds = [f"o{i}" for i in range(count)]
        supplement = ["_", "_", *(f"m{i}" for i in range(len(more)))] if more else []
        firsts = Struct("<HH").pack(group.undo_first, group.redo_first)
        lines = [
            f"if d[k + 10] & 95 != {pairs.URP} or d[k + 11] & 128 or d[k + 16] & 195 or d[k + 23] != {count}"
            f" or {IS_PART}:",
            "    return None",
            f"[_, _, _, _, _, {', '.join([*olds, 'g', *supplement])}] = s",
        ]
        for i, column in enumerate(changed):
            lines += values.take(f"o{i}", f"b{column}", column)
        lines += [
            f"if d[a] != {pairs.UPDATE} or d[a + 1] & 12 != 12 or d[a + 2] != {len(more)} or d[a + 3]"
            f" or d[a + 6:a + 10] != {firsts!r}:",
            "    return None",
            "a += g + 3 & -4",
        ]
        if more:
            names = Struct(f"<{len(more)}H").pack(*more)
            lines += [f"if d[a:a + {len(names)}] != {names!r}:", "    return None"]
            lines.append(f"a += {2 * (len(names) + 3 & ~3)}")
        for i, column in enumerate(more):
            # changed columns were read above
            lines += values.take(f"m{i}", f"b{column}", 0 if column in changed else column)
        lines += self._new(changed, numbers)
        lines.append(self._result(set(changed), set(more), absent))
        made: _Form = function("update", "d, s, f, k, a, p, ts", lines, self._scope)
        return made

    def _new(self, changed: list[int], numbers: bytes) -> list[str]:
        """11.5: KTB, KDO, numbers, values."""
        count = len(changed)
        self._scope[f"U{count}"] = Struct(f"<{count + 3}H").unpack_from
        lines = [
            f"if a != p or d[p + 32:p + 34] != {first_size(count + 3)!r}:",
            "    return None",
            f"k, o, c, {', '.join(f'n{i}' for i in range(count))} = U{count}(d, p + 34)",
            f"a = p + {list_end(count + 3)} + (k + 3 & -4)",
            f"if d[a + 10] != {pairs.URP} or d[a + 11] & 128 or d[a + 23] != {count}:",
            "    return None",
            "a += o + 3 & -4",
            f"if d[a:a + {2 * count}] != {numbers!r}:",
            "    return None",
            "a += c + 3 & -4",
        ]
        for i, column in enumerate(changed):
            lines += self._values.take(f"n{i}", f"a{column}", column)
        return [*lines, "if a != len(d):", "    return None"]

    def _result(self, changed: set[int], more: set[int], absent: set[int]) -> str:
        places = self._values.places
        before = self._values.row("b", changed | more)
        after = ", ".join(f"a{c}" if c in changed else f"b{c}" if c in more else "None" for c in places)
        if not absent:
            return f"return HEADER, UPDATE([{before}, {after}], ts)"
        name = f"N{len(self._scope)}"
        self._scope[name] = [self._names[c] for c in places if c in absent]
        return f'return HEADER, BODY("u", [{before}], [{after}], ts, {name})'
