"""What applications do to a MySQL or a MariaDB: rows, keys, transactions, TRUNCATE. DBAs' steps: `mysql_ddl.py`."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.differential.mysql_ddl import MysqlDdl, q
from tests.differential.mysql_values import ALL_TYPES, literal
from tests.differential.workload import State, Step, makes

if TYPE_CHECKING:
    from tests.differential.mysql import MyTable

ODD = "we`ird.Täble"
#: in front of a statement of a step: it is for the step's second connection
SECOND = "@2 "
_WHOLE = ("tinyint", "smallint", "mediumint", "int", "bigint")
#: by statements: their rows are not in the log
STATEMENTS = (r"^LogUnknownError: changes by a statement, not by their rows \(UPDATE\)",)
ROLLBACKS = (r"^LogUnknownError: rollback( to)? after changes: the log does not show which of them were undone",)


class MysqlSteps(MysqlDdl):
    def first_statements(self) -> list[str]:
        first = [
            f"CREATE DATABASE {q(self.extra)}",
            "CREATE TABLE marker (id int PRIMARY KEY, n bigint)",
            "INSERT INTO marker VALUES (1, 0)",
            f"CREATE TABLE {q(self.extra)}.late (id int PRIMARY KEY, v varchar(20))",
            f"INSERT INTO {q(self.extra)}.late VALUES (1, 'a'), (2, 'b')",
            "CREATE PROCEDURE empty_plain() TRUNCATE TABLE plain",
        ]
        return [*first, *(statement for group in self.first_tables() for statement in group)]

    def first_tables(self) -> list[list[str]]:
        """In groups that can be made again, each by itself."""
        columns = ", ".join(f"c{n} {type_}" for n, type_ in enumerate(ALL_TYPES))
        rows = ", ".join(f"({n}, {n}, 'first', {n}.5)" for n in range(1, 51))
        return [
            [
                "CREATE TABLE plain (id int PRIMARY KEY, a int, b varchar(50), c decimal(20,4))",
                f"INSERT INTO plain VALUES {rows}",
            ],
            ["CREATE TABLE wide (k1 int, k2 varchar(20), v bigint, w text, PRIMARY KEY (k1, k2))"],
            ["CREATE TABLE any_case (k varchar(20) PRIMARY KEY, v int) COLLATE utf8mb4_general_ci"],
            [f"CREATE TABLE every_type (id int PRIMARY KEY, {columns})"],
            ["CREATE TABLE years (pk int PRIMARY KEY, y year, n int, u int unsigned, s smallint)"],
            [
                f"CREATE TABLE {q(ODD)} (`_gsn` int PRIMARY KEY, `_before` varchar(20), `a.b` int, `Ünï` text, `select`"
                ' date, `quo``te` text, `"` int)'
            ],
            ["CREATE TABLE numbered (id bigint AUTO_INCREMENT PRIMARY KEY, v varchar(20), at timestamp(6) NULL)"],
            [
                "CREATE TABLE computed (id int PRIMARY KEY, a int, s bigint GENERATED ALWAYS AS (a * 2) STORED, b "
                "varchar(20), v bigint GENERATED ALWAYS AS (a * 3) VIRTUAL)"
            ],
            [
                "CREATE TABLE watched (id int PRIMARY KEY, a int)",
                "CREATE TABLE audit (id bigint AUTO_INCREMENT PRIMARY KEY, what varchar(20), row_id int)",
                "CREATE TRIGGER watched_in AFTER INSERT ON watched FOR EACH ROW INSERT INTO audit (what, row_id) "
                "VALUES ('in', NEW.id)",
                "CREATE TRIGGER watched_out AFTER DELETE ON watched FOR EACH ROW DELETE FROM audit WHERE row_id = "
                "OLD.id",
            ],
            [
                "CREATE TABLE parts (id int, region int, v varchar(20), PRIMARY KEY (id, region)) PARTITION BY LIST "
                "(region) (PARTITION p1 VALUES IN (1), PARTITION p2 VALUES IN (2), PARTITION p3 VALUES IN (3, 4))",
                "INSERT INTO parts VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c'), (4, 4, 'd'), (5, 1, 'e')",
            ],
            ["CREATE TABLE bulk (id int PRIMARY KEY, v varchar(100))"],
            ["CREATE TABLE untransacted (id int PRIMARY KEY, v varchar(20)) ENGINE = MyISAM"],
        ]

    @makes(2)
    def first_again(self, rng: random.Random, state: State) -> Step:
        """What time has made of a group of tables goes: else few rows and few tables are left in a long run."""
        group = rng.choice(self.first_tables())
        made = [s.removeprefix("CREATE TABLE ") for s in group if s.startswith("CREATE TABLE ")]
        drops = [f"DROP TABLE IF EXISTS {m.split(' (')[0]}" for m in made]
        return Step("first tables again", (*drops, *group), is_atomic=False)

    # -- rows --------------------------------------------------------------------------------------------

    def value(self, rng: random.Random, table: MyTable, column: str) -> str:
        nulls = 0.0 if column in table.required else 0.15
        return literal(rng, table.types[column], key=column in table.key, nulls=nulls)

    def insert(self, rng: random.Random, table: MyTable, rows: int, verb: str = "INSERT INTO") -> str:
        names = list(table.types)
        values = ", ".join("(" + ", ".join(self.value(rng, table, n) for n in names) + ")" for _ in range(rows))
        return f"{verb} {table.sql} ({', '.join(map(q, names))}) VALUES {values}"

    def where(self, rng: random.Random, table: MyTable) -> str:
        """Some rows by their key; what has none by their place."""
        if table.key and rng.random() < 0.8:
            column = rng.choice(table.key)
            return f"WHERE {q(column)} {rng.choice(['=', '=', '>=', '<='])} {self.value(rng, table, column)}"
        return rng.choice(["", f"LIMIT {rng.choice([1, 1, 3, 20])}"])

    def update(self, rng: random.Random, table: MyTable) -> str:
        some = rng.sample(table.values, min(len(table.values), rng.choice([1, 1, 2, 5])))
        changes = ", ".join(f"{q(name)} = {self.value(rng, table, name)}" for name in some)
        if not changes:
            return f"DELETE FROM {table.sql} LIMIT 1"
        return f"UPDATE {table.sql} SET {changes} {self.where(rng, table)}"

    def delete(self, rng: random.Random, table: MyTable) -> str:
        return f"DELETE FROM {table.sql} {self.where(rng, table)}"

    def move_keys(self, rng: random.Random, table: MyTable) -> list[str]:
        whole = [name for name in table.key if table.types[name].startswith(_WHOLE)]
        if not whole:
            return [self.update(rng, table)]
        key, t = q(rng.choice(whole)), table.sql
        swap = [
            f"SELECT @low := min({key}), @high := max({key}) FROM {t}",
            f"UPDATE {t} SET {key} = -999 WHERE {key} = @low",
            f"UPDATE {t} SET {key} = @low WHERE {key} = @high",
            f"UPDATE {t} SET {key} = @high WHERE {key} = -999",
        ]
        return rng.choice([
            [f"UPDATE {t} SET {key} = {key} + 1 ORDER BY {key} DESC"],
            [f"UPDATE {t} SET {key} = {key} - 1 ORDER BY {key}"],
            [f"UPDATE {t} SET {key} = {key} + 1 ORDER BY {key} DESC"] * 3,
            [f"UPDATE {t} SET {key} = -{key}", f"UPDATE {t} SET {key} = -{key}"],
            [f"UPDATE {t} SET {key} = {key} + 100", f"UPDATE {t} SET {key} = {key} - 99"],
            swap,
            [f"UPDATE {t} SET {key} = {key} + 1 {self.where(rng, table)}"],
        ])  # fmt: skip

    def any_rows(self, rng: random.Random, state: State, statements: int, only: str = "") -> list[str]:
        found: list[str] = []
        for _ in range(statements):
            table = self.table(rng, state)
            pick = rng.random()
            if pick < 0.4:
                verb = rng.choice(["INSERT IGNORE INTO", "INSERT IGNORE INTO", "REPLACE INTO", "INSERT INTO"])
                found.append(self.insert(rng, table, rng.choice([1, 1, 2, 6]), verb))
            elif pick < 0.7:
                found.append(self.update(rng, table))
            elif pick < 0.85:
                found.append(self.delete(rng, table))
            else:
                found += self.move_keys(rng, table)
        return found

    @makes(14)
    def rows(self, rng: random.Random, state: State) -> Step:
        return Step("rows", tuple(self.any_rows(rng, state, rng.choice([1, 1, 2, 5]))))

    @makes(3)
    def moved_keys(self, rng: random.Random, state: State) -> Step:
        return Step("moved keys", tuple(self.move_keys(rng, self.table(rng, state))))

    @makes(2)
    def upsert(self, rng: random.Random, state: State) -> Step | None:
        table = self.table(rng, state)
        if not table.values:
            return None
        column = q(rng.choice(table.values))
        insert = self.insert(rng, table, 2)
        return Step("upsert", (f"{insert} ON DUPLICATE KEY UPDATE {column} = VALUES({column})",))

    @makes(2)
    def every_type(self, rng: random.Random, state: State) -> Step | None:
        names = [n for n in (f"{self.schema}.every_type", f"{self.schema}.years") if n in state]
        if not names:
            return None
        table = state[rng.choice(names)].about
        return Step("every type", (self.insert(rng, table, 2, "INSERT IGNORE INTO"), self.update(rng, table)))

    @makes(1)
    def several_tables(self, rng: random.Random, state: State) -> Step:
        one, other = self.table(rng, state), self.table(rng, state)
        if not one.key or not other.key or one.sql == other.sql:
            return Step("several tables", (f"INSERT IGNORE INTO {one.sql} SELECT * FROM {one.sql}",))
        match = f"a.{q(one.key[0])} = b.{q(other.key[0])}"
        return Step("several tables", (f"DELETE a, b FROM {one.sql} a JOIN {other.sql} b ON {match}",))

    # -- transactions ------------------------------------------------------------------------------------

    @makes(2)
    def savepoints(self, rng: random.Random, state: State) -> Step:
        # one without transactions would be in the log although it is undone: refused, and not meant here
        state = {name: table for name, table in state.items() if "untransacted" not in name}
        statements = [*self.any_rows(rng, state, 1), "SAVEPOINT a", *self.any_rows(rng, state, 2)]
        statements += [
            "SAVEPOINT b",
            *self.any_rows(rng, state, 1),
            rng.choice(["ROLLBACK TO b", "RELEASE SAVEPOINT b"]),
        ]
        statements += [rng.choice(["ROLLBACK TO a", "RELEASE SAVEPOINT a"]), *self.any_rows(rng, state, 1)]
        return Step("savepoints", tuple(statements))

    @makes(1)
    def rollback(self, rng: random.Random, state: State) -> Step:
        return Step(
            "rollback", ("BEGIN", *self.any_rows(rng, state, 3), "ROLLBACK"), is_atomic=False, refusals=ROLLBACKS
        )

    @makes(1)
    def two_writers(self, rng: random.Random, state: State) -> Step:
        """Two transactions at once, each on its own connection: the order is that of their commits."""
        one, other = (
            ["BEGIN", *self.any_rows(rng, state, 2), rng.choice(["COMMIT", "COMMIT", "ROLLBACK"])] for _ in "12"
        )
        lines = [iter(one), iter(f"{SECOND}{statement}" for statement in other)]
        turns = [0] * len(one) + [1] * len(other)
        rng.shuffle(turns)
        mixed = tuple(next(lines[turn]) for turn in turns)
        return Step("two writers", mixed, is_atomic=False, refusals=ROLLBACKS)

    @makes(1)
    def xa(self, rng: random.Random, state: State) -> Step:
        """Some are ended by a later step, or by the run."""
        gid = f"'{self.schema}-{rng.randrange(3)}'"
        rows = self.insert(rng, self.table(rng, state), 1, "INSERT IGNORE INTO")
        begin = (f"XA START {gid}", rows, f"XA END {gid}")
        end = rng.choice([f"XA COMMIT {gid}", f"XA ROLLBACK {gid}"])
        how = rng.choice([
            (*begin, f"XA PREPARE {gid}", end), (end, *begin, f"XA PREPARE {gid}"),
            (*begin, f"XA COMMIT {gid} ONE PHASE"),
        ])  # fmt: skip
        return Step("XA", how, is_atomic=False)

    @makes(0.7)
    def large(self, rng: random.Random, state: State) -> Step | None:
        name = f"{self.schema}.bulk"
        if name not in state or list(state[name].about.types) != ["id", "v"]:
            return None
        first = rng.randrange(5000)
        values = ", ".join(f"({n}, REPEAT('x', {n % 50}))" for n in range(first, first + rng.choice([300, 1500])))
        statements = [
            f"INSERT IGNORE INTO bulk VALUES {values}",
            "SAVEPOINT s", f"UPDATE bulk SET v = CONCAT(v, '{rng.randrange(99)}') WHERE id % 3 = {rng.randrange(3)}",
            rng.choice(["ROLLBACK TO s", "RELEASE SAVEPOINT s"]),
            f"DELETE FROM bulk WHERE id % 4 <> {rng.randrange(4)}",
        ]  # fmt: skip
        return Step("large transaction", tuple(statements))

    @makes(0.5)
    def minimal_image(self, rng: random.Random, state: State) -> Step:
        rows = [self.update(rng, self.table(rng, state)), self.delete(rng, self.table(rng, state))]
        image = rng.choice(["MINIMAL", "NOBLOB"])
        return Step("minimal row image", (f"SET SESSION binlog_row_image = {image}", *rows), is_atomic=False)

    @makes(0.1)
    def by_statements(self, rng: random.Random, state: State) -> Step:
        change = f"UPDATE {q(self.schema)}.plain SET a = a + 1"
        return Step("by statements", ("SET SESSION binlog_format = STATEMENT", change), is_atomic=False,
                    refusals=STATEMENTS)  # fmt: skip

    # -- TRUNCATE ----------------------------------------------------------------------------------------

    @makes(2.5)
    def truncate(self, rng: random.Random, state: State) -> Step:
        table = self.table(rng, state)
        name = table.sql
        ansi = '"' + table.name.replace('"', '""') + '"'
        how = rng.choice([
            (f"TRUNCATE {name}",), (f"TRUNCATE TABLE {name}",), (f"truncate /* nightly */ table {name}",),
            (f"TRUNCATE TABLE /* nightly */ {name}",), (f"TRUNCATE {name}/*x*/",), (f"TRUNCATE -- x\n {name}",),
            (f"# x\nTRUNCATE\t{q(table.schema)} . {q(table.name)}  ;",), (f"/*!50000 TRUNCATE TABLE */ {name}",),
            (f"USE {q(table.schema)}", f"TRUNCATE {q(table.name)}"),
            (f"USE {q(table.schema)}", "SET sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')", f"TRUNCATE {ansi}"),
            (f"PREPARE p FROM 'TRUNCATE {name.replace(chr(39), chr(39) * 2)}'", "EXECUTE p"), ("CALL empty_plain()",),
            (f"DELETE FROM {name}",), (f"/*!80000 TRUNCATE */ {name}", f"/*M!100000 TRUNCATE */ {name}"),
        ])  # fmt: skip
        rows = [self.insert(rng, table, 2, "INSERT IGNORE INTO")] if rng.random() < 0.5 else []
        return Step("truncate", (*rows, *how), is_atomic=False)

    @makes(0.7)
    def temporary(self, rng: random.Random, state: State) -> Step:
        """It hides the table that it is named after: what is done to it is nothing to that one."""
        table = self.table(rng, state)
        name = f"{table.sql}"
        end = rng.choice(
            [f"TRUNCATE {name}", f"DROP TABLE {name}", f"DROP TEMPORARY TABLE {name}", f"DELETE FROM {name}"]
        )
        make = f"CREATE TEMPORARY TABLE {name} (id int PRIMARY KEY, v varchar(20))"
        rows = (f"INSERT INTO {name} VALUES (1, 'x')", f"ALTER TABLE {name} ADD w int")
        return Step("temporary table", (make, *rows, end), is_atomic=False)
