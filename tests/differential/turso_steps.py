"""What is done to a Turso database."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.differential.workload import Kind, State, Step, makes

if TYPE_CHECKING:
    from tests.differential.turso import LiteTable

#: Turso keeps names in lower case
ODD = 'we"ird.täble'
FIRST_TABLES = ("plain", "wide", "named", "every_type", ODD, "parent", "child0", "child1", "child2", "watched", "audit",
                "bulk", "strict", "computed")  # fmt: skip
COLUMN_NAMES = ("added", "Added2", "a", "b", "c", "v", "_seq", "x.y", "é", "_op")
TYPES = ("INTEGER", "TEXT", "REAL", "BLOB", "NUMERIC", "", "VARCHAR(20)", "DOUBLE", "BOOLEAN")
#: the log does not say the old key
UPSERTS = (r"an upsert has changed a row, and the log does not contain the key that it had before",)
NO_KEY = (r"has no primary key: its rows cannot be identified",)
NO_FIT = (
    r"main\..*\.a: .* in a column that is published as",
    r"main\..*\.a .*: a value that does not fit its type",
)
#: docs/turso.md: renamed, and altered more than once, between two looks
NO_TEXT = (r"^WidthError: main\..*: a record of \d+ values for \d+ columns",)
ACTIONS = ("CASCADE", "SET NULL", "SET DEFAULT")


def q(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(rng: random.Random, declared: str, *, key: bool = False, nulls: float = 0.15) -> str:
    if not key and rng.random() < nulls:
        return "NULL"
    upper = declared.upper()
    if "INT" in upper:
        big = str(rng.choice([(1 << 63) - 1, -(1 << 63) + 1, -1, 0, 1 << 53]))
        return str(rng.randrange(1, 60)) if key else rng.choice([big, str(rng.randrange(100))])
    texts = ["'a'", "'b'", "'é€𝄞'", "'it''s'", "'A'", "'x.y'"]
    if any(part in upper for part in ("CHAR", "CLOB", "TEXT")):
        return rng.choice(texts if key else [*texts, "''", "'two\nlines'", "replace(hex(zeroblob(2500)), '00', 'é')"])
    blobs = ["x''", "x'00ff'", "x'27'"]
    if "BLOB" in upper:
        return rng.choice(blobs)
    reals = ["0.0", "-0.0", "0.1", "1.7976931348623157e308", "5e-324", "9e999", "-9e999", "12.0"]
    if any(part in upper for part in ("REAL", "FLOA", "DOUB")):
        return rng.choice(reals)
    return rng.choice([*texts, *blobs, *reals, "12", "'12'", "9223372036854775807", "1.5"])


class TursoSteps(Kind):
    def first_statements(self) -> list[str]:
        first = ["CREATE TABLE marker (id INTEGER PRIMARY KEY, n INTEGER)", "INSERT INTO marker VALUES (1, 0)"]
        late = ["CREATE TABLE late (id INTEGER PRIMARY KEY, v TEXT)", "INSERT INTO late VALUES (1, 'a'), (2, 'b')"]
        return [*first, *late, *(statement for group in self.first_tables() for statement in group)]

    def first_tables(self) -> list[list[str]]:
        columns = ", ".join(f"c{n} {type_}" for n, type_ in enumerate(TYPES))
        rows = ", ".join(f"({n}, {n}, 'first', {n}.5)" for n in range(1, 51))
        children = [
            f"CREATE TABLE child{n} (id INTEGER PRIMARY KEY, parent INTEGER DEFAULT 1 REFERENCES parent (id) ON DELETE "
            f"{action} ON UPDATE {ACTIONS[n - 1]})"
            for n, action in enumerate(ACTIONS)
        ]
        watched = "AFTER {} ON watched BEGIN INSERT INTO audit (what, row_id) VALUES ('{}', {}.id); END"
        return [
            ["CREATE TABLE plain (id INTEGER PRIMARY KEY, a INTEGER, b TEXT, c REAL)",
             f"INSERT INTO plain VALUES {rows}"],
            ["CREATE TABLE wide (k1 INTEGER NOT NULL, k2 TEXT NOT NULL, v INTEGER, w TEXT, PRIMARY KEY (k1, k2))"],
            ["CREATE TABLE named (code TEXT PRIMARY KEY NOT NULL, v INTEGER)"],
            [f"CREATE TABLE every_type (id INTEGER PRIMARY KEY, {columns})"],
            ["CREATE TABLE strict (id INTEGER PRIMARY KEY, i INTEGER, t TEXT, r REAL, b BLOB, x ANY) STRICT"],
            [f'CREATE TABLE {q(ODD)} ("_gsn" INTEGER PRIMARY KEY, "_before" TEXT, "a.b" INTEGER, "Ünï" TEXT, "select" '
             'TEXT, "quo""te" TEXT)'],
            ["CREATE TABLE parent (id INTEGER PRIMARY KEY, v TEXT)", *children,
             "INSERT INTO parent VALUES (1, 'a'), (2, 'b'), (3, 'c')", "INSERT INTO child0 VALUES (1, 1), (2, 2)",
             "INSERT INTO child1 VALUES (1, 1), (2, 2)"],
            ["CREATE TABLE watched (id INTEGER PRIMARY KEY, a INTEGER)",
             "CREATE TABLE audit (id INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT, row_id INTEGER)",
             f"CREATE TRIGGER watched_in {watched.format('INSERT', 'in', 'NEW')}",
             f"CREATE TRIGGER watched_up {watched.format('UPDATE', 'up', 'NEW')}",
             f"CREATE TRIGGER watched_out {watched.format('DELETE', 'out', 'OLD')}"],
            ["CREATE TABLE bulk (id INTEGER PRIMARY KEY, v TEXT)"],
            ["CREATE TABLE computed (id INTEGER PRIMARY KEY, a INTEGER, b TEXT)"],
        ]  # fmt: skip

    @makes(2)
    def first_again(self, rng: random.Random, state: State) -> Step:
        group = rng.choice(self.first_tables())
        made = [s.removeprefix("CREATE TABLE ") for s in group if s.startswith("CREATE TABLE ")]
        drops = [f"DROP TABLE IF EXISTS {m.split(' (')[0]}" for m in reversed(made)]
        return Step("first tables again", (*drops, *group), is_atomic=rng.random() < 0.5)

    # -- rows --------------------------------------------------------------------------------------------

    def table(self, rng: random.Random, state: State) -> LiteTable:
        found: LiteTable = state[rng.choice([name for name in sorted(state) if name != self.marker])].about
        return found

    def value(self, rng: random.Random, table: LiteTable, column: str) -> str:
        nulls = 0.0 if column in table.required else 0.15
        return literal(rng, table.types[column], key=column in table.key, nulls=nulls)

    def insert(self, rng: random.Random, table: LiteTable, rows: int, verb: str = "INSERT OR IGNORE") -> str:
        values = ", ".join("(" + ", ".join(self.value(rng, table, n) for n in table.types) + ")" for _ in range(rows))
        return f"{verb} INTO {table.sql} ({', '.join(map(q, table.types))}) VALUES {values}"

    def where(self, rng: random.Random, table: LiteTable) -> str:
        if table.key and rng.random() < 0.85:
            column = rng.choice(table.key)
            return f"WHERE {q(column)} {rng.choice(['=', '=', '>=', '<='])} {self.value(rng, table, column)}"
        return ""

    def update(self, rng: random.Random, table: LiteTable) -> str:
        some = rng.sample(table.values, min(len(table.values), rng.choice([1, 1, 2, 4])))
        changes = ", ".join(f"{q(name)} = {self.value(rng, table, name)}" for name in some)
        if not changes:
            return self.delete(rng, table)
        return f"UPDATE {table.sql} SET {changes} {self.where(rng, table)}"

    def delete(self, rng: random.Random, table: LiteTable) -> str:
        return f"DELETE FROM {table.sql} {self.where(rng, table)}"

    def move_keys(self, rng: random.Random, table: LiteTable) -> list[str]:
        whole = [name for name in table.key if "INT" in table.types[name].upper()]
        if not whole:
            return [self.update(rng, table)]
        key, t = q(rng.choice(whole)), table.sql
        low, high = f"(SELECT min({key}) FROM {t})", f"(SELECT max({key}) FROM {t})"
        return rng.choice([
            [f"UPDATE {t} SET {key} = {key} + 1"], [f"UPDATE {t} SET {key} = {key} + 1000"],
            [f"UPDATE {t} SET {key} = {key} + 1000", f"UPDATE {t} SET {key} = {key} - 999"],
            [f"UPDATE {t} SET {key} = -{key}", f"UPDATE {t} SET {key} = -{key}"],
            [f"UPDATE {t} SET {key} = -999 WHERE {key} = {low}",
             f"UPDATE {t} SET {key} = {low} - 1 WHERE {key} = {high}",
             f"UPDATE {t} SET {key} = {high} + 1 WHERE {key} = -999"],
            [f"UPDATE {t} SET {key} = {key} + 1 {self.where(rng, table)}"],
        ])  # fmt: skip

    def any_rows(self, rng: random.Random, state: State, statements: int) -> list[str]:
        found: list[str] = []
        for _ in range(statements):
            table, pick = self.table(rng, state), rng.random()
            if pick < 0.4:
                verb = rng.choice(["INSERT OR IGNORE", "INSERT OR IGNORE", "INSERT"])
                found.append(self.insert(rng, table, rng.choice([1, 1, 2, 6]), verb))
            elif pick < 0.7:
                found.append(self.update(rng, table))
            elif pick < 0.85:
                found.append(self.delete(rng, table))
            else:
                found += self.move_keys(rng, table)
        return found

    @makes(16)
    def rows(self, rng: random.Random, state: State) -> Step:
        return Step("rows", tuple(self.any_rows(rng, state, rng.choice([1, 1, 2, 5]))), is_atomic=rng.random() < 0.7)

    @makes(3)
    def moved_keys(self, rng: random.Random, state: State) -> Step:
        return Step("moved keys", tuple(self.move_keys(rng, self.table(rng, state))))

    @makes(1.5)
    def upsert(self, rng: random.Random, state: State) -> Step | None:
        table = self.table(rng, state)
        if not table.values or not table.key:
            return None
        keys, column = ", ".join(map(q, table.key)), q(rng.choice(table.values))
        tail = f"ON CONFLICT ({keys}) DO UPDATE SET {column} = excluded.{column}"
        return Step("upsert", (f"{self.insert(rng, table, 1, 'INSERT')} {tail}",),
                    refusals=() if table.is_numbered else UPSERTS)  # fmt: skip

    @makes(1.5)
    def replace(self, rng: random.Random, state: State) -> Step:
        table = self.table(rng, state)
        verb = rng.choice(["REPLACE", "INSERT OR REPLACE"])
        refusals = () if table.is_numbered else UPSERTS
        return Step("replace", (self.insert(rng, table, 2, verb),), refusals=refusals)

    @makes(1)
    def emptied(self, rng: random.Random, state: State) -> Step:
        table = self.table(rng, state)
        return Step("delete all", (f"DELETE FROM {table.sql}", self.insert(rng, table, 2)))

    @makes(2)
    def savepoints(self, rng: random.Random, state: State) -> Step:
        statements = [*self.any_rows(rng, state, 1), "SAVEPOINT a", *self.any_rows(rng, state, 2), "SAVEPOINT b"]
        statements += [*self.any_rows(rng, state, 1), rng.choice(["ROLLBACK TO b", "RELEASE b"])]
        statements += [rng.choice(["ROLLBACK TO a", "RELEASE a"]), *self.any_rows(rng, state, 1)]
        return Step("savepoints", tuple(statements))

    @makes(1)
    def rollback(self, rng: random.Random, state: State) -> Step:
        return Step("rollback", ("BEGIN", *self.any_rows(rng, state, 3), "ROLLBACK"), is_atomic=False)

    @makes(0.7)
    def large(self, rng: random.Random, state: State) -> Step | None:
        if "main.bulk" not in state or list(state["main.bulk"].about.types) != ["id", "v"]:
            return None
        first = rng.randrange(5000)
        values = ", ".join(f"({n}, '{'x' * (n % 50)}')" for n in range(first, first + rng.choice([300, 1500])))
        return Step("large transaction", (
            f"INSERT OR IGNORE INTO bulk VALUES {values}",
            f"UPDATE bulk SET v = v || 'y' WHERE id % 3 = {rng.randrange(3)}",
            f"DELETE FROM bulk WHERE id % 4 <> {rng.randrange(4)}",
        ))  # fmt: skip

    @makes(0.3)
    def misfit(self, rng: random.Random, state: State) -> Step:
        """SQLite takes it; the column's type in the lake does not."""
        bad = "UPDATE plain SET a = 'text' WHERE id = (SELECT min(id) FROM plain)"
        # by now the table may have another name
        names = (*FIRST_TABLES, "made1", "made2", "made3")
        repair = tuple(f"UPDATE {q(name)} SET a = 1 WHERE typeof(a) = 'text'" for name in names)
        return Step("value that does not fit", (bad,), refusals=NO_FIT, repair=repair)

    # -- columns, tables ---------------------------------------------------------------------------------

    def _ddl(self, rng: random.Random, name: str, *statements: str, refusals: tuple[str, ...] = ()) -> Step:
        return Step(name, statements, is_atomic=rng.random() < 0.5, refusals=refusals)

    @makes(2)
    def add_column(self, rng: random.Random, state: State) -> Step:
        type_ = rng.choice(TYPES)
        default = rng.choice(["", "", f" DEFAULT {literal(rng, type_, nulls=0)}"])
        column = f"{q(rng.choice(COLUMN_NAMES))} {type_}{default}"
        return self._ddl(rng, "add column", f"ALTER TABLE {self.table(rng, state).sql} ADD COLUMN {column}")

    @makes(1.5)
    def drop_column(self, rng: random.Random, state: State) -> Step | None:
        table = self.table(rng, state)
        if not table.values:
            return None
        column = rng.choice(table.values)
        drop = f"ALTER TABLE {table.sql} DROP COLUMN {q(column)}"
        again = [f"ALTER TABLE {table.sql} ADD COLUMN {q(column)} {rng.choice([table.types[column], 'TEXT'])}"]
        return self._ddl(rng, "drop column", drop, *(again if rng.random() < 0.5 else []))

    @makes(1)
    def rename_column(self, rng: random.Random, state: State) -> Step:
        table = self.table(rng, state)
        old = rng.choice(list(table.types))
        rename = f"ALTER TABLE {table.sql} RENAME COLUMN {q(old)} TO {q(rng.choice(COLUMN_NAMES))}"
        return self._ddl(rng, "rename column", rename)

    @makes(1)
    def create_table(self, rng: random.Random, state: State) -> Step:
        name = rng.choice(["made1", "made2", '"Made3"', '"made.4"', '"_gsn"'])
        columns = ", ".join(f"c{n} {type_}" for n, type_ in enumerate(rng.sample(TYPES, 3)))
        key = rng.choice(["id INTEGER PRIMARY KEY", "id TEXT PRIMARY KEY NOT NULL"])
        return self._ddl(
            rng, "create table", f"CREATE TABLE {name} ({key}, {columns})", f"INSERT INTO {name} (id) VALUES (1)"
        )

    @makes(0.5)
    def drop_table(self, rng: random.Random, state: State) -> Step:
        return self._ddl(rng, "drop table", f"DROP TABLE {self.table(rng, state).sql}")

    @makes(1)
    def make_again(self, rng: random.Random, state: State) -> Step:
        table = self.table(rng, state)
        columns = ", ".join(f"{q(name)} {type_}" for name, type_ in table.types.items() if name not in table.key)
        key = "id INTEGER PRIMARY KEY" if table.is_numbered else "id TEXT PRIMARY KEY NOT NULL"
        create = f"CREATE TABLE {table.sql} ({', '.join(filter(None, [key, columns]))})"
        rows = f"INSERT INTO {table.sql} (id) VALUES (77)"
        return self._ddl(rng, "drop and create table", f"DROP TABLE {table.sql}", create, rows)

    @makes(0.7)
    def rename_table(self, rng: random.Random, state: State) -> Step:
        one, other = self.table(rng, state), self.table(rng, state)
        if one.sql == other.sql or rng.random() < 0.4:
            rename = f"ALTER TABLE {one.sql} RENAME TO made{rng.randrange(1, 4)}"
            return self._ddl(rng, "rename table", rename, refusals=NO_TEXT)
        names = ((one.sql, "swapped"), (other.sql, one.sql), ("swapped", other.sql))
        swap = [f"ALTER TABLE {a} RENAME TO {b}" for a, b in names]
        return self._ddl(rng, "swap tables", *swap, refusals=NO_TEXT)

    @makes(0.2)
    def without_key(self, rng: random.Random, state: State) -> Step:
        make = ("CREATE TABLE made2 AS SELECT * FROM plain",) if rng.random() < 0.5 else (
            "CREATE TABLE made2 (a INTEGER, b TEXT)", "INSERT INTO made2 VALUES (1, 'x'), (1, 'x')")  # fmt: skip
        return Step("table without key", make, is_atomic=False, refusals=NO_KEY, repair=("DROP TABLE IF EXISTS made2",))

    @makes(0.5)
    def upkeep(self, rng: random.Random, state: State) -> Step:
        table = self.table(rng, state)
        return Step("upkeep", (rng.choice([
            "PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA wal_checkpoint(PASSIVE)", "ANALYZE",
            f"CREATE INDEX i{rng.randrange(99)} ON {table.sql} ({q(rng.choice(list(table.types)))})",
            "CREATE VIEW seen AS SELECT * FROM plain", "DROP VIEW IF EXISTS seen",
        ]),), is_atomic=False)  # fmt: skip
