"""PostgreSQL as a kind: its tables, how they are read, how steps are run. The steps are in `postgres_steps.py`."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg

from tests.differential.postgres_steps import PostgresSteps, by_whom
from tests.differential.postgres_values import canonical_row, reading
from tests.differential.workload import State, Step, TableState
from tests.support.postgres import Database
from tests.support.postgres_fleet import source_config

SCHEMAS = ("public", "extra")
SETTINGS = ("timezone = 'UTC'", "datestyle = 'ISO, YMD'", "intervalstyle = 'iso_8601'", "extra_float_digits = 1",
            "lock_timeout = '100ms'", "client_min_messages = 'error'")  # fmt: skip
#: the number of the session whose transaction stays open over several steps
OPEN = 1

#: it has an identity by which updates and deletes are told
_IS_TOLD = """(c.relreplident = 'f' OR c.relreplident = 'd' AND coalesce(i.indimmediate, false) OR c.relreplident = 'i'
    AND EXISTS (SELECT FROM pg_index k WHERE k.indrelid = c.oid AND k.indisreplident))"""
_CATALOGUE = f"""
SELECT n.nspname, c.relname, c.relkind::text, c.oid, a.attnum, c.relfilenode, a.attname,
       format_type(CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END, NULL),
       CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END,
       format_type(a.atttypid, a.atttypmod), a.attgenerated <> '',
       coalesce(array_position(string_to_array(i.indkey::text, ' ')::int2[], a.attnum), 0), i.indimmediate,
       a.attnotnull, c.relpersistence = 'p' AND {_IS_TOLD}
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE n.nspname = ANY(%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
ORDER BY n.nspname, c.relname, a.attnum"""
_PARTITIONS = """
SELECT p.relnamespace::regnamespace::text || '.' || p.relname, c.oid::regclass::text
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
WHERE c.relispartition ORDER BY 2"""
#: by which old values come to read otherwise
_LABELS = "SELECT string_agg(enumlabel, ',' ORDER BY oid) FROM pg_enum"
#: of each table: another one after whatever happens to a row
_PRINT = "SELECT sum(hashtextextended(tableoid::text || ctid::text || xmin::text, 0)) FROM {only}{table}"
#: an operator's: an identity for each table that has none. One without any key goes
_REPAIR = f"""
DO $$ DECLARE t record; BEGIN
FOR t IN SELECT c.oid::regclass AS name, c.relkind, i.indimmediate FROM pg_class c
         LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
         WHERE c.relnamespace::regnamespace::text IN ('public', 'extra') AND c.relkind IN ('r', 'p')
           AND NOT c.relispartition AND NOT {_IS_TOLD}
LOOP
    EXECUTE CASE WHEN t.indimmediate IS NULL THEN format('DROP TABLE %s CASCADE', t.name)
                 ELSE format('ALTER TABLE %s REPLICA IDENTITY %s', t.name,
                             CASE WHEN t.indimmediate THEN 'DEFAULT' ELSE 'FULL' END) END;
END LOOP; END $$"""
_UNTOLD = re.compile(
    r"StartRefusedError: updates and deletes of (.*) cannot be captured: no primary key, no replica identity"
)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass
class PgTable:
    """What the generator has to know of a table."""

    schema: str
    name: str
    relkind: str
    oid: int
    #: column → type as it is written, without generated columns
    types: dict[str, str] = field(default_factory=dict)
    generated: list[str] = field(default_factory=list)
    #: NOT NULL
    required: set[str] = field(default_factory=set)
    key: list[str] = field(default_factory=list)
    is_deferrable: bool = False
    partitions: list[str] = field(default_factory=list)

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def only(self) -> str:
        """A partitioned table has no rows of its own; another one may have children that are tables, too."""
        return "ONLY " if self.relkind == "r" else ""

    @property
    def values(self) -> list[str]:
        """Columns that are no part of the key."""
        return [name for name in self.types if name not in self.key]


class Postgres(PostgresSteps):
    source_kind = "postgres"
    marker = "public.marker"
    columns_pass_unseen = True

    def __init__(self, database: Database) -> None:
        self.name = f"postgres{database.server.version}"
        self.database = database
        self._tables = ["public.*"]
        #: the first does most; others are for what runs at the same time
        self._sessions: dict[int, psycopg.Connection[Any]] = {}
        #: all tables that there are now, and all that have ever been without an identity
        self._there: set[str] = set()
        self._untold: set[str] = set()
        #: what was read last, and all that it depends on: mostly a step changes one table
        self._last: dict[str, tuple[list[Any], TableState]] = {}

    def version(self) -> str:
        ((found,),) = self._run("SHOW server_version")
        return str(found)

    def config(self) -> dict[str, Any]:
        return source_config(self.database, tables=self._tables, chunk_rows=100)

    def grow_config(self) -> None:
        self._tables = ["public.*", "extra.*"]

    def _session(self, who: int) -> psycopg.Connection[Any]:
        if who not in self._sessions:
            self._sessions[who] = self.database.connect()
            for setting in SETTINGS:
                self._sessions[who].execute(f"SET {setting}".encode())
        return self._sessions[who]

    def _run(self, *statements: str, who: int = 0) -> list[tuple[Any, ...]]:
        cursor = self._session(who).cursor()
        for statement in statements:
            cursor.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    # -- steps -------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        self._run(*self.first_statements(), "INSERT INTO marker VALUES (1, 0)")

    def mark(self, marker: int) -> None:
        self._run(f"UPDATE public.marker SET n = {marker} WHERE id = 1")

    def execute(self, step: Step, number: int) -> list[str]:
        if not step.is_atomic:
            self.mark(2 * number - 1)
        errors = self._atomic(step, number) if step.is_atomic else self._each(step)
        if not step.is_atomic:
            self.mark(2 * number)
        return errors

    def _atomic(self, step: Step, number: int) -> list[str]:
        try:
            mark = f"UPDATE public.marker SET n = {2 * number} WHERE id = 1"
            self._run("BEGIN", *step.statements, mark, "COMMIT")
        except psycopg.Error as error:
            self._run("ROLLBACK")
            return [str(error).splitlines()[0]]
        return []

    def _each(self, step: Step) -> list[str]:
        errors = []
        for statement in step.statements:
            who, sql = by_whom(statement)
            try:
                self._run(sql, who=who)
            except psycopg.Error as error:
                errors.append(str(error).splitlines()[0])
        for who in self._sessions:
            if who != OPEN and self._is_in_transaction(who):
                self._run("ROLLBACK", who=who)
        return errors

    def _is_in_transaction(self, who: int) -> bool:
        return self._session(who).info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    def _prepared(self) -> list[str]:
        mine = f"SELECT gid FROM pg_prepared_xacts WHERE database = '{self.database.name}'"
        return [gid for (gid,) in self._run(mine)]

    def has_open(self) -> bool:
        return self._is_in_transaction(OPEN) or bool(self._prepared())

    def end_open(self) -> None:
        with suppress(psycopg.errors.IntegrityError):
            # a deferred constraint may not let it: then it is rolled back
            self._run("COMMIT", who=OPEN)
        for gid in self._prepared():
            self._run(f"COMMIT PREPARED '{gid}'")

    # -- what it holds -----------------------------------------------------------------------------------

    def state(self) -> State:
        with self._session(0).cursor() as cursor:
            schemas = [pattern.split(".")[0] for pattern in self._tables]
            rows = cursor.execute(_CATALOGUE, (schemas,)).fetchall()
            partitions = cursor.execute(_PARTITIONS).fetchall()
            labels = cursor.execute(_LABELS).fetchall()
        tables: dict[str, PgTable] = {}
        made: dict[str, list[tuple[str, Any, Any]]] = {}
        untold = {f"{row[0]}.{row[1]}" for row in rows if not row[-1]}
        self._there, self._untold = {f"{row[0]}.{row[1]}" for row in rows}, self._untold | untold
        for row in rows:
            (
                schema,
                name,
                relkind,
                oid,
                _,
                _,
                column,
                base,
                modifier,
                type_,
                is_generated,
                place,
                immediate,
                required,
                _,
            ) = row
            if f"{schema}.{name}" in untold:
                continue  # not captured (unlogged, without identity): left out, or the source says that it cannot go on
            table = tables.setdefault(f"{schema}.{name}", PgTable(schema, name, relkind, oid))
            columns = made.setdefault(f"{schema}.{name}", [])
            if column is None:
                continue
            if is_generated:
                table.generated.append(column)
                continue
            table.types[column] = type_
            expression, make = reading(base, modifier)
            columns.append((column, expression(quoted(column)), make))
            if required:
                table.required.add(column)
            if place:
                table.key.append(column)
                table.is_deferrable = not immediate
        for parent, child in partitions:
            if parent in tables:
                tables[parent].partitions.append(child)
        prints = self._prints(list(tables.values()))
        about: dict[str, list[Any]] = {name: [prints[name], labels] for name in tables}
        for row in rows:
            about.get(f"{row[0]}.{row[1]}", []).append(row)
        before, self._last = self._last, {}
        for name, table in tables.items():
            last = before.get(name)
            is_same = last is not None and last[0] == about[name]
            now = replace(last[1], about=table) if last and is_same else self._read(table, made[name])
            self._last[name] = (about[name], now)
        return {name: now for name, (_, now) in self._last.items()}

    def _prints(self, tables: list[PgTable]) -> dict[str, Any]:
        if not tables:
            return {}
        ((*found,),) = self._run("SELECT " + ", ".join(f"({_PRINT.format(only=t.only, table=t.sql)})" for t in tables))
        return {f"{table.schema}.{table.name}": print_ for table, print_ in zip(tables, found, strict=True)}

    def _read(self, table: PgTable, columns: list[tuple[str, Any, Any]]) -> TableState:
        names = tuple(column for column, _, _ in columns)
        make = tuple(make for _, _, make in columns)
        expressions = ", ".join(expression for _, expression, _ in columns)
        rows = self._run(f"SELECT {expressions} FROM {table.only}{table.sql}")
        return TableState(names, Counter(canonical_row(row, make) for row in rows), make, table)

    def may_refuse(self, said: str) -> Step | None:
        """Tables without an identity: their names are known from what the database had."""
        found = _UNTOLD.match(said)
        if found is None or not set(found[1].split(", ")) <= self._untold:
            return None
        return Step("tables without an identity", repair=(_REPAIR,), is_atomic=False)

    def is_dropped(self, table: str) -> bool:
        return table not in self._there

    def close(self) -> None:
        self.end_open()
        for session in self._sessions.values():
            session.close()
        self.database.drop()
