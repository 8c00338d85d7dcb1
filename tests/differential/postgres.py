"""PostgreSQL as a kind: its tables, how they are read, how steps are run. The steps are in `postgres_steps.py`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.differential.postgres_steps import PostgresSteps
from tests.differential.postgres_values import canonical_row, reading
from tests.differential.workload import State, Step, TableState
from tests.postgres import Database
from tests.postgres_fleet import source_config

SCHEMAS = ("public", "extra")

_CATALOGUE = """
SELECT n.nspname, c.relname, c.relkind::text, a.attname,
       format_type(CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END, NULL),
       CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END,
       format_type(a.atttypid, a.atttypmod), a.attgenerated <> '',
       coalesce(array_position(string_to_array(i.indkey::text, ' ')::int2[], a.attnum), 0), i.indimmediate, a.attnotnull
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


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass
class PgTable:
    """What the generator has to know of a table."""

    schema: str
    name: str
    relkind: str
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
    def values(self) -> list[str]:
        """Columns that are no part of the key."""
        return [name for name in self.types if name not in self.key]


class Postgres(PostgresSteps):
    source_kind = "postgres"
    marker = "public.marker"
    new_tables_need_restart = True

    def __init__(self, database: Database) -> None:
        self.name = f"postgres{database.server.version}"
        self.database = database
        self._connection = database.connect()
        self._tables = ["public.*"]
        self._run(
            "SET timezone = 'UTC'", "SET datestyle = 'ISO, YMD'", "SET intervalstyle = 'iso_8601'",
            "SET extra_float_digits = 1", "SET lock_timeout = '300ms'", "SET client_min_messages = 'error'",
        )  # fmt: skip

    def version(self) -> str:
        ((found,),) = self._run("SHOW server_version")
        return str(found)

    def config(self) -> dict[str, Any]:
        return source_config(self.database, tables=self._tables, chunk_rows=40)

    def grow_config(self) -> None:
        self._tables = ["public.*", "extra.*"]

    def _run(self, *statements: str) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
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
            try:
                self._run(statement)
            except psycopg.Error as error:
                errors.append(str(error).splitlines()[0])
        if self._connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self._run("ROLLBACK")
        return errors

    def _prepared(self) -> list[str]:
        mine = f"SELECT gid FROM pg_prepared_xacts WHERE database = '{self.database.name}'"
        return [gid for (gid,) in self._run(mine)]

    def has_open(self) -> bool:
        return bool(self._prepared())

    def end_open(self) -> None:
        for gid in self._prepared():
            self._run(f"COMMIT PREPARED '{gid}'")

    # -- what it holds -----------------------------------------------------------------------------------

    def state(self) -> State:
        with self._connection.cursor() as cursor:
            schemas = [pattern.split(".")[0] for pattern in self._tables]
            rows = cursor.execute(_CATALOGUE, (schemas,)).fetchall()
            partitions = cursor.execute(_PARTITIONS).fetchall()
        tables: dict[str, PgTable] = {}
        made: dict[str, list[tuple[str, Any, Any]]] = {}
        for row in rows:
            schema, name, relkind, column, base, modifier, type_, is_generated, place, immediate, required = row
            table = tables.setdefault(f"{schema}.{name}", PgTable(schema, name, relkind))
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
        return {name: self._read(tables[name], made[name]) for name in tables}

    def _read(self, table: PgTable, columns: list[tuple[str, Any, Any]]) -> TableState:
        names = tuple(column for column, _, _ in columns)
        make = tuple(make for _, _, make in columns)
        only = "ONLY " if table.relkind == "r" else ""
        expressions = ", ".join(expression for _, expression, _ in columns)
        rows = self._run(f"SELECT {expressions} FROM {only}{table.sql}")
        return TableState(names, Counter(canonical_row(row, make) for row in rows), make, table)

    def close(self) -> None:
        self.end_open()
        self._connection.close()
        self.database.drop()
