"""What a DBA does to a MySQL or a MariaDB: columns, keys, names, partitions, foreign keys, engines."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.differential.mysql_values import COMMON, literal
from tests.differential.workload import Kind, State, Step, makes

if TYPE_CHECKING:
    from tests.differential.mysql import MyTable

COLUMN_NAMES = ("added", "Added2", "a", "b", "c", "v", "_seq", "x.y", "é", "_op")
NO_KEY = (r"^StartRefusedError: no primary key: ", r"^LogUnknownError: .* has lost its primary key")
FOREIGN_KEYS = (
    r"^LogUnknownError: .* has a foreign key to .* now, whose actions change rows without the log",
    r"^LogUnknownError: rows of .* were changed, and by foreign keys, without the log, rows of ",
    r"^StartRefusedError: foreign keys change rows without the log: ",
)
ACTIONS = ("CASCADE", "SET NULL", "NO ACTION", "RESTRICT")
#: what an operator does about tables that are refused, under whatever names they are by then: see `Mysql._repair`
DROP_KEYLESS, DROP_FOREIGN_KEYS = "@drop tables without a key", "@drop foreign keys with actions"


def q(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class MysqlDdl(Kind):
    schema: str
    extra: str
    is_mariadb: bool
    #: `foreign_key_actions: recopy`
    accepts_foreign_keys = False

    def table(self, rng: random.Random, state: State) -> MyTable:
        """Any but the marker."""
        found: MyTable = state[rng.choice([name for name in sorted(state) if name != self.marker])].about
        return found

    def _ddl(self, name: str, *statements: str, refusals: tuple[str, ...] = (), repair: tuple[str, ...] = ()) -> Step:
        """Each commits by itself."""
        if self.is_mariadb and sum(map(len, statements)) % 3 == 0:
            # not by `rng`: the steps of a seed stay the same on all servers
            statements = ("SET SESSION binlog_alter_two_phase = ON", *statements)
        return Step(name, statements, is_atomic=False, refusals=refusals, repair=repair)

    # -- columns -----------------------------------------------------------------------------------------

    def _added(self, rng: random.Random, table: MyTable, name: str | None = None) -> str:
        type_ = rng.choice(COMMON)
        default = rng.choice(["", "", f" DEFAULT {literal(rng, type_, nulls=0)}", " NOT NULL"])
        if type_ in ("text", "json"):
            default = ""
        place = rng.choice(["", "", " FIRST", f" AFTER {q(rng.choice(list(table.types)))}"])
        return f"{q(name or rng.choice(COLUMN_NAMES))} {type_}{default}{place}"

    @makes(2)
    def add_column(self, rng: random.Random, state: State) -> Step:
        table = self.table(rng, state)
        how = rng.choice(["", "", ", ALGORITHM = COPY", ", ALGORITHM = INPLACE"])
        more = f", ADD {self._added(rng, table)}" if rng.random() < 0.2 else ""
        return self._ddl("add column", f"ALTER TABLE {table.sql} ADD COLUMN {self._added(rng, table)}{more}{how}")

    @makes(1.5)
    def drop_column(self, rng: random.Random, state: State) -> Step | None:
        table = self.table(rng, state)
        if not table.values:
            return None
        return self._ddl("drop column", f"ALTER TABLE {table.sql} DROP COLUMN {q(rng.choice(table.values))}")

    @makes(1)
    def add_again(self, rng: random.Random, state: State) -> Step | None:
        table = self.table(rng, state)
        if not table.values:
            return None
        column = rng.choice(table.values)
        drop, add = f"DROP COLUMN {q(column)}", f"ADD COLUMN {q(column)} {table.types[column]}"
        other = f"ADD COLUMN {self._added(rng, table, column)}"
        return self._ddl("drop and add column", *rng.choice([
            (f"ALTER TABLE {table.sql} {drop}", f"ALTER TABLE {table.sql} {add}"),
            (f"ALTER TABLE {table.sql} {drop}", f"ALTER TABLE {table.sql} {other}"),
            (f"ALTER TABLE {table.sql} {drop}, {add}",),
        ]))  # fmt: skip

    @makes(1)
    def rename_column(self, rng: random.Random, state: State) -> Step:
        table = self.table(rng, state)
        old, new = rng.choice(list(table.types)), rng.choice(COLUMN_NAMES)
        change = rng.choice([f"CHANGE {q(old)} {q(new)} {table.types[old]}", f"RENAME COLUMN {q(old)} TO {q(new)}"])
        return self._ddl("rename column", f"ALTER TABLE {table.sql} {change}")

    @makes(0.7)
    def swap_columns(self, rng: random.Random, state: State) -> Step | None:
        table = self.table(rng, state)
        pairs = [(a, b) for a in table.values for b in table.values if a < b and table.types[a] == table.types[b]]
        if not pairs:
            return None
        a, b = rng.choice(pairs)
        type_ = table.types[a]
        both = f"CHANGE {q(a)} {q(b)} {type_}, CHANGE {q(b)} {q(a)} {type_}"
        return self._ddl("swap columns", f"ALTER TABLE {table.sql} {both}")

    @makes(1.5)
    def retype_column(self, rng: random.Random, state: State) -> Step | None:
        table = self.table(rng, state)
        if not table.values:
            return None
        column, type_ = rng.choice(table.values), rng.choice(COMMON)
        statements = [f"ALTER TABLE {table.sql} MODIFY {q(column)} {type_}"]
        if rng.random() < 0.5:
            # else most changes are refused for the values that are there
            statements.insert(0, f"UPDATE {table.sql} SET {q(column)} = NULL")
        return self._ddl("retype column", *statements)

    @makes(0.5)
    def move_column(self, rng: random.Random, state: State) -> Step | None:
        """Another place in the row, and nothing else."""
        table = self.table(rng, state)
        if len(table.values) < 2:
            return None
        column = rng.choice(table.values)
        place = rng.choice(["FIRST", f"AFTER {q(rng.choice(list(table.types)))}"])
        return self._ddl("move column", f"ALTER TABLE {table.sql} MODIFY {q(column)} {table.types[column]} {place}")

    @makes(0.5)
    def other_labels(self, rng: random.Random, state: State) -> Step:
        """An enum's numbers mean other labels from then on."""
        labels = rng.sample(["'a'", "'b'", "'it''s'", "'é'", "'new'"], 4)
        name = f"{q(self.schema)}.every_type"
        return self._ddl("other labels", f"ALTER TABLE {name} MODIFY c33 enum({', '.join(labels)})")

    @makes(0.5)
    def generated_column(self, rng: random.Random, state: State) -> Step | None:
        table = self.table(rng, state)
        whole = [name for name, type_ in table.types.items() if type_.startswith("int")]
        if not whole:
            return None
        how = rng.choice(["STORED", "VIRTUAL"])
        add = f"ADD g{rng.randrange(3)} bigint GENERATED ALWAYS AS ({q(rng.choice(whole))} * 3) {how}"
        return self._ddl("add generated column", f"ALTER TABLE {table.sql} {add}")

    @makes(0.4)
    def convert(self, rng: random.Random, state: State) -> Step:
        table = self.table(rng, state)
        to = rng.choice(["CONVERT TO CHARACTER SET latin1", "CONVERT TO CHARACTER SET utf8mb4", "COMMENT = 'x'",
                         "ENGINE = InnoDB", "FORCE", "ENGINE = MyISAM", "AUTO_INCREMENT = 1000"])  # fmt: skip
        return self._ddl("convert table", f"ALTER TABLE {table.sql} {to}")

    # -- keys --------------------------------------------------------------------------------------------

    @makes(1.5)
    def change_key(self, rng: random.Random, state: State) -> Step | None:
        table = self.table(rng, state)
        columns = [name for name, type_ in table.types.items() if not type_.endswith(("text", "blob", "json", "metry"))]
        if not table.key or not columns:
            return None
        new = rng.choice([[*table.key, rng.choice(columns)], table.key[:-1] or columns[:1], [rng.choice(columns)]])
        keys = ", ".join(map(q, dict.fromkeys(new)))
        fill = [
            f"UPDATE {table.sql} SET {q(name)} = {literal(rng, table.types[name], nulls=0)} WHERE {q(name)} IS NULL"
            for name in new if name not in table.key
        ]  # fmt: skip
        return self._ddl("change key", *fill, f"ALTER TABLE {table.sql} DROP PRIMARY KEY, ADD PRIMARY KEY ({keys})")

    @makes(0.15)
    def without_key(self, rng: random.Random, state: State) -> Step:
        name = f"{q(self.schema)}.keyless{rng.randrange(3)}"
        make = (f"CREATE TABLE {name} (a int, b text)", f"INSERT INTO {name} VALUES (1, 'x'), (1, 'x')")
        return self._ddl("table without key", *make, refusals=NO_KEY, repair=(DROP_KEYLESS,))

    def _keyed(self, name: str, *statements: str) -> Step:
        """One that makes a foreign key, or is made of its actions."""
        refusals = () if self.accepts_foreign_keys else FOREIGN_KEYS
        return self._ddl(name, *statements, refusals=refusals, repair=(DROP_FOREIGN_KEYS,))

    @makes(0.4)
    def foreign_key(self, rng: random.Random, state: State) -> Step:
        """What the server does to the children is in no log before MySQL 9.6."""
        space = q(rng.choice([self.schema, self.schema, self.extra]))
        parent, child, grandchild = (f"{space}.{name}" for name in ("fk_parent", "fk_child", "fk_grandchild"))
        # a parent without a database is in the child's, whichever the session is in
        named = rng.choice([parent, "fk_parent"])
        actions = [rng.choice(ACTIONS) for _ in range(4)]
        rows = "(1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (6, NULL)"
        return self._keyed(
            "foreign key", *(f"DROP TABLE IF EXISTS {name}" for name in (grandchild, child, parent)),
            f"CREATE TABLE {parent} (id int PRIMARY KEY, v int)",
            f"CREATE TABLE {child} (id int PRIMARY KEY, parent int, FOREIGN KEY (parent) REFERENCES {named} (id) "
            f"ON DELETE {actions[0]} ON UPDATE {actions[1]})",
            f"CREATE TABLE {grandchild} (id int PRIMARY KEY, child int)",
            f"ALTER TABLE {grandchild} ADD CONSTRAINT `to child` FOREIGN KEY (child) REFERENCES {child} (id) "
            f"ON DELETE {actions[2]} ON UPDATE {actions[3]}",
            *(f"INSERT INTO {name} VALUES {rows}" for name in (parent, child, grandchild)),
        )  # fmt: skip

    @makes(1)
    def parent_rows(self, rng: random.Random, state: State) -> Step | None:
        """What keys make of it, on tables that have them."""
        names = [name for name in sorted(state) if name.rpartition(".")[2] in ("fk_parent", "fk_child")]
        if not names:
            return None
        t = state[rng.choice(names)].about.sql
        id_, new = rng.randrange(1, 7), rng.randrange(1, 12)
        how = rng.choice([
            (f"UPDATE {t} SET id = {new} WHERE id = {id_}",), (f"DELETE FROM {t} WHERE id = {id_}",),
            (f"INSERT INTO {t} VALUES ({new}, {id_})",), (f"REPLACE INTO {t} VALUES ({id_}, {id_})",),
            (f"UPDATE {t} SET id = id + 1 ORDER BY id DESC",), (f"DELETE FROM {t}",),
            ("SET SESSION foreign_key_checks = 0", f"DELETE FROM {t} WHERE id = {id_}"),
            ("BEGIN", f"DELETE FROM {t} WHERE id = {id_}", f"INSERT INTO {t} VALUES ({id_}, {id_})", "COMMIT"),
        ])  # fmt: skip
        return self._keyed("rows of parents", *how)

    # -- tables and names --------------------------------------------------------------------------------

    def _made(self, rng: random.Random, name: str) -> tuple[str, ...]:
        columns = ", ".join(f"c{n} {type_}" for n, type_ in enumerate(rng.sample(COMMON, 3)))
        key = rng.choice(["id int PRIMARY KEY", "id varchar(20) PRIMARY KEY", "id bigint PRIMARY KEY"])
        return f"CREATE TABLE {name} ({key}, {columns})", f"INSERT INTO {name} (id) VALUES ('1'), ('2')"

    @makes(1)
    def create_table(self, rng: random.Random, state: State) -> Step:
        name = rng.choice(["made1", "`made 2`", "`Made3`", "`made.4`", "`_gsn`"])
        full = f"{q(self.schema)}.{name}"
        plain = f"{q(self.schema)}.plain"
        return self._ddl("create table", *rng.choice([
            self._made(rng, full), (f"CREATE TABLE {full} LIKE {plain}", f"INSERT INTO {full} SELECT * FROM {plain}"),
            (f"CREATE TABLE {full} (PRIMARY KEY (id)) AS SELECT * FROM {plain}",),
            (f"CREATE OR REPLACE TABLE {full} (id int PRIMARY KEY, z int)", f"INSERT INTO {full} VALUES (7, 7)"),
        ]))  # fmt: skip

    @makes(0.5)
    def drop_table(self, rng: random.Random, state: State) -> Step:
        one, other = self.table(rng, state), self.table(rng, state)
        return self._ddl("drop table", rng.choice([
            f"DROP TABLE {one.sql}", f"DROP TABLE IF EXISTS {one.sql}, {other.sql}", f"drop /* x */ tables {one.sql}",
        ]))  # fmt: skip

    @makes(1)
    def make_again(self, rng: random.Random, state: State) -> Step:
        table = self.table(rng, state)
        columns = ", ".join(f"{q(name)} {type_}" for name, type_ in table.types.items())
        keys = ", ".join(map(q, table.key))
        same = f"CREATE TABLE {table.sql} ({columns}{f', PRIMARY KEY ({keys})' if keys else ''})"
        how = rng.choice([(same,), self._made(rng, table.sql)])
        return self._ddl("drop and create table", f"DROP TABLE {table.sql}", *how)

    @makes(1)
    def swap_tables(self, rng: random.Random, state: State) -> Step | None:
        one, other = self.table(rng, state), self.table(rng, state)
        if one.sql == other.sql:
            return None
        other_place = f"{q(self.schema)}.swapped"
        return self._ddl("swap tables", rng.choice([
            f"RENAME TABLE {one.sql} TO {other_place}, {other.sql} TO {one.sql}, {other_place} TO {other.sql}",
            f"rename /* x */ table {one.sql} to {other_place} , {other.sql} to {one.sql},{other_place} to {other.sql}",
        ]))  # fmt: skip

    @makes(0.5)
    def rename_table(self, rng: random.Random, state: State) -> Step:
        table = self.table(rng, state)
        bare = f"renamed{rng.randrange(3)}"
        new = f"{q(rng.choice([self.schema, self.extra]))}.{bare}"
        return self._ddl("rename table", *rng.choice([
            (f"RENAME TABLE {table.sql} TO {new}",), (f"ALTER TABLE {table.sql} RENAME TO {new}, COMMENT 'x'",),
            (f"USE {q(self.extra)}", f"RENAME TABLE {table.sql} TO {bare}"),
            (f"USE {q(self.extra)}", f"ALTER TABLE {table.sql} RENAME {bare}"),
        ]))  # fmt: skip

    @makes(0.2)
    def database_again(self, rng: random.Random, state: State) -> Step:
        return self._ddl(
            "drop and create database", f"DROP DATABASE {q(self.extra)}", f"CREATE DATABASE {q(self.extra)}",
            f"CREATE TABLE {q(self.extra)}.late (id int PRIMARY KEY, v varchar(20))",
            f"INSERT INTO {q(self.extra)}.late VALUES (3, 'c')",
        )  # fmt: skip

    @makes(0.7)
    def upkeep(self, rng: random.Random, state: State) -> Step:
        table = self.table(rng, state)
        return self._ddl("upkeep", rng.choice([
            f"OPTIMIZE TABLE {table.sql}", f"ANALYZE TABLE {table.sql}", "FLUSH BINARY LOGS", "FLUSH TABLES",
            f"CREATE OR REPLACE VIEW {q(self.schema)}.seen AS SELECT * FROM {q(self.schema)}.plain",
            f"CREATE INDEX i{rng.randrange(99)} ON {table.sql} ({q(table.key[0]) if table.key else '1'})",
            f"LOCK TABLES {table.sql} WRITE", f"REPAIR TABLE {table.sql}",
        ]))  # fmt: skip

    # -- partitions --------------------------------------------------------------------------------------

    @makes(2)
    def partition(self, rng: random.Random, state: State) -> Step | None:
        tables = [t.about for _, t in sorted(state.items()) if t.about.partitions]
        if not tables:
            return None
        table = rng.choice(tables)
        part, loose = q(rng.choice(table.partitions)), f"{q(self.schema)}.loose"
        t, new = f"ALTER TABLE {table.sql}", f"p{rng.randrange(4, 9)}"
        exchange = (f"DROP TABLE IF EXISTS {loose}", f"CREATE TABLE {loose} LIKE {table.sql}",
                    f"ALTER TABLE {loose} REMOVE PARTITIONING",
                    f"INSERT INTO {loose} SELECT id + 50, region, 'loose' FROM {table.sql} PARTITION ({part})",
                    f"{t} EXCHANGE PARTITION {part} WITH TABLE {loose}")  # fmt: skip
        name, how = rng.choice([
            ("truncate partition", (f"{t} TRUNCATE PARTITION {part}",)),
            ("drop partition", (f"{t} DROP PARTITION {part}",)),
            ("add partition", (f"{t} ADD PARTITION (PARTITION {new} VALUES IN ({rng.randrange(5, 9)}))",)),
            ("exchange partition", exchange), ("exchange partition", exchange),
            ("reorganize partition", (f"{t} REORGANIZE PARTITION {part} INTO (PARTITION {part} VALUES IN (1, 9))",)),
            ("rebuild partition", (f"{t} REBUILD PARTITION {part}",)),
            ("remove partitioning", (f"{t} REMOVE PARTITIONING",)),
        ])  # fmt: skip
        return self._ddl(name, *how)
