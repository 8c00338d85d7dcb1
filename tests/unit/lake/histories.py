"""Random histories of one table: written to a lake, and kept as plain dictionaries beside it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st
from tests.support.lake_maker import LakeMaker, Made, MadeTransaction

from lowwater.codec.table import FLOAT32, FLOAT64, INT32, INT64, STRING, Column, TableSchema, Type, decimal
from lowwater.lake.chain.manifest import File, Place

#: added, widened, dropped; the last is for histories without the one before: a name that returns is another column
VERSIONS: tuple[dict[str, Type], ...] = (
    {"a": INT32, "b": STRING, "n": INT32},
    {"a": INT64, "b": STRING, "n": INT64, "note": STRING, "f": FLOAT32},
    {"a": INT64, "b": STRING, "n": decimal(22, 2), "f": FLOAT64},
    {"a": INT64, "b": STRING, "n": decimal(40, 2), "f": FLOAT64, "note": STRING},
)
COLUMNS = ("a", "b", "n", "note", "f")
KEY = ("a", "b")
NAME = "src.bank.Accounts"

Key = tuple[int, str]
Row = dict[str, Any]
Step = tuple[str, int, int, int]

_KINDS = ("insert", "update", "update", "delete", "move", "commit", "commit", "land", "version", "truncate")
_WITH_BASES = (*_KINDS, "update", "move", "copy", "copied", "copied", "fold")


def steps(bases: bool = False) -> st.SearchStrategy[list[Step]]:
    kinds = st.sampled_from(_WITH_BASES if bases else _KINDS)
    step = st.tuples(kinds, st.integers(0, 4), st.integers(0, 99), st.integers(0, 15))
    return st.lists(step, min_size=8 if bases else 0, max_size=50)


def columns_of(version: int) -> list[str]:
    return list(VERSIONS[version])


class History:
    """Steps that cannot be done are passed over."""

    def __init__(
        self, maker: LakeMaker, existing: Mapping[Key, Row] | None = None, versions: tuple[int, ...] = (0, 1, 2)
    ) -> None:
        self.maker = maker
        self._versions = list(versions)
        self.version = self._versions.pop(0)
        self.schema_ids: list[int] = []
        self._new_version()
        #: rows now, and at each gsn
        self.rows: dict[Key, Row] = deepcopy(dict(existing or {}))
        self.states: list[dict[Key, Row]] = [deepcopy(self.rows)]
        #: every change: gsn, seq, op, key
        self.changes: list[tuple[int, int, str, Key | None]] = []
        #: where a key was last changed, and by what; of deleted ones, too
        self.places: dict[Key, tuple[int, int, str]] = {}
        self.truncates: list[Place] = []
        #: from where on the whole state is known
        self.known_from: int | None = None if existing else 0
        self.history_from = 0
        self._open: list[Made] = []
        self._done: list[MadeTransaction] = []
        self._copying: tuple[str, str] | None = None
        self._copies = 0
        self._streams: list[File] = []
        self._states_made: list[tuple[int, str]] = []
        self._folded_at = 0

    def _new_version(self) -> None:
        columns = tuple(Column(name, type_) for name, type_ in VERSIONS[self.version].items())
        source, namespace, table = NAME.split(".")
        schema = TableSchema(source, namespace, table, self.version + 1, columns, KEY)
        self.schema_ids.append(self.maker.version(schema))

    def run(self, found: list[Step]) -> None:
        for kind, which, value, flags in found:
            getattr(self, f"_{kind}")(which, value, flags)
        self._land(0, 0, 0)

    # ------------------------------------------------------------------ changes

    def _row(self, key: Key, value: int, flags: int) -> Row:
        made: Row = {"a": key[0], "b": key[1], "n": value}
        if "note" in VERSIONS[self.version]:
            made["note"] = f"note {value}" if flags & 8 else None
        if "f" in VERSIONS[self.version]:
            made["f"] = value / 4
        return made

    def _add(self, op: str, key: Key | None, row: Row | None, before: Row | None = None, unchanged: Any = ()) -> None:
        self._open.append(Made(self.schema_ids[-1], op, row, before, unchanged))
        gsn, seq = self.maker.gsn + len(self._done) + 1, len(self._open)
        self.changes.append((gsn, seq, op, key))
        if key is not None:
            self.places[key] = (gsn, seq, op)

    def _here(self, row: Row) -> Row:
        return {name: row.get(name) for name in columns_of(self.version)}

    def _insert(self, which: int, value: int, flags: int) -> None:
        key = (which, "x" if flags & 1 else "y")
        if key not in self.rows:
            self.rows[key] = self._row(key, value, flags)
            self._add("r" if flags & 2 else "c", key, self.rows[key])

    def _pick(self, which: int) -> Key | None:
        keys = sorted(self.rows)
        return keys[which % len(keys)] if keys else None

    def _write(self, old: Key, new: Key, value: int, flags: int) -> None:
        was, made = self.rows.pop(old), self._row(new, value, flags)
        unchanged = [c for bit, c in ((1, "n"), (2, "note")) if flags & bit and c in made]
        self.rows[new] = {**made, **{c: was.get(c) for c in unchanged}}
        before: Row | None = self._here(was) if flags & 4 else {"a": old[0], "b": old[1]}
        if old == new and not flags & 12:
            before = None
        self._add("u", new, {c: v for c, v in made.items() if c not in unchanged}, before, unchanged)
        if old != new:
            gsn, seq, *_ = self.changes[-1]
            self.places[old] = (gsn, seq, "d")

    def _update(self, which: int, value: int, flags: int) -> None:
        if (key := self._pick(which)) is not None:
            self._write(key, key, value, flags)

    def _move(self, which: int, value: int, flags: int) -> None:
        key, new = self._pick(which), (value % 5, "x" if value & 8 else "y")
        if key is not None and new not in self.rows:
            self._write(key, new, value, flags)

    def _delete(self, which: int, value: int, flags: int) -> None:
        if (key := self._pick(which)) is not None:
            was = self.rows.pop(key)
            self._add("d", key, self._here(was) if flags & 1 else {"a": key[0], "b": key[1]})

    def _truncate(self, which: int, value: int, flags: int) -> None:
        if flags < 4:
            self.rows.clear()
            self._add("t", None, None)
            gsn, seq, *_ = self.changes[-1]
            self.truncates.append(Place(gsn=gsn, seq=seq))

    # ------------------------------------------------------------------ transactions and landings

    def _commit(self, which: int, value: int, flags: int) -> None:
        if self._open:
            self._done.append(MadeTransaction(self._open))
            self._open = []
            self.states.append(deepcopy(self.rows))

    def _land(self, which: int, value: int, flags: int) -> None:
        self._commit(0, 0, 0)
        if self._done:
            manifest = self.maker.land(self._done, files_each=1 + which % 3, row_group=1 + value)
            self._streams += manifest.files
            self._done = []

    def _version(self, which: int, value: int, flags: int) -> None:
        if self._versions:
            self.version = self._versions.pop(0)
            self._new_version()

    # ------------------------------------------------------------------ bases

    def _copy(self, which: int, value: int, flags: int) -> None:
        """Rows are read here; they count from `copied` on."""
        self._land(which, value, flags)
        if self._copying is None:
            self._copies += 1
            self._copying = f"copy{self._copies}", f"{self.maker.gsn}.*"
            rows = [self._here(row) for row in self.rows.values()]
            self.maker.copy(self.schema_ids[-1], self._copying[0], [rows[:2], rows[2:]], self._copying[1])

    def _copied(self, which: int, value: int, flags: int) -> None:
        self._land(which, value, flags)
        if self._copying is not None:
            self.maker.copied(self.schema_ids[-1], *self._copying)
            self._copying = None
            self.states.append(deepcopy(self.rows))
            if self.known_from is None:
                self.known_from = self.maker.gsn

    def _fold(self, which: int, value: int, flags: int) -> None:
        """A folded state; with some flags the changes below it are taken away."""
        self._land(which, value, flags)
        gsn = self.maker.gsn
        # the state files of one gsn are one set: a fold there again would have to take the first away
        if self.known_from is None or gsn in (0, self._folded_at):
            return
        self._folded_at = gsn
        rows = [self._folded(key, "c", self._here(row)) for key, row in self.rows.items()]
        gone = (key for key, (*_, op) in self.places.items() if op == "d" and key not in self.rows)
        rows += [self._folded(key, "d", {"a": key[0], "b": key[1]}) for key in gone]
        file = self.maker.state_file(self.schema_ids[-1], rows, gsn, truncates=tuple(self.truncates))
        removed: list[str] = []
        if flags & 2:
            removed += (f.path for f in self._streams)
            self.history_from, self._streams = gsn, []
        if flags & 1:
            # the changes below the last one that took them away are nowhere else
            removed += (path for at, path in self._states_made if at != self.history_from)
        self.maker.compact([file], removed, self.history_from)
        self._states_made = [(at, path) for at, path in self._states_made if path not in removed]
        self._states_made.append((gsn, file.path))

    def _folded(self, key: Key, op: str, row: Row) -> dict[str, Any]:
        gsn, seq, _ = self.places.get(key, (0, 0, ""))
        cdc = {"_op": op, "_gsn": gsn, "_seq": seq, "_txid": "", "_thread": 1, "_commit_ts": 0, "_ts": 0}
        return {**cdc, "_order": {"major": gsn, "minor": 1}, **row}
