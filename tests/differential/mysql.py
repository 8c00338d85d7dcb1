"""MySQL and MariaDB as a kind: their tables, how they are read, how steps are run."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pymysql

from tests.differential.mysql_ddl import DROP_FOREIGN_KEYS, DROP_KEYLESS
from tests.differential.mysql_steps import SECOND, MysqlSteps
from tests.differential.mysql_values import reading
from tests.differential.workload import State, Step, TableState
from tests.support.mysql import MysqlDatabase, connect, run

_CATALOGUE = """
SELECT c.table_schema, c.table_name, c.column_name, c.data_type, c.column_type, c.column_key, c.is_nullable, c.extra,
       t.engine
FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
WHERE c.table_schema IN ({}) AND t.table_type = 'BASE TABLE' ORDER BY 1, 2, c.ordinal_position"""
_PARTITIONS = """
SELECT table_schema, table_name, partition_name FROM information_schema.partitions
WHERE table_schema IN ({}) AND partition_name IS NOT NULL ORDER BY 1, 2, 3"""
_KEYLESS = """
SELECT t.table_schema, t.table_name FROM information_schema.tables t WHERE t.table_schema IN ({})
AND t.table_type = 'BASE TABLE' AND NOT EXISTS (SELECT 1 FROM information_schema.statistics s
WHERE s.table_schema = t.table_schema AND s.table_name = t.table_name AND s.index_name = 'PRIMARY')"""
_FOREIGN_KEYS = """
SELECT constraint_schema, table_name, constraint_name FROM information_schema.referential_constraints
WHERE constraint_schema IN ({}) AND (delete_rule NOT IN ('NO ACTION', 'RESTRICT')
OR update_rule NOT IN ('NO ACTION', 'RESTRICT'))"""

#: codes of a connection that is gone
_LOST = (2006, 2013)
END_SECONDS = 30.0


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass
class MyTable:
    """What the generator has to know of a table."""

    schema: str
    name: str
    #: column → type as the catalogue has it, without generated columns
    types: dict[str, str] = field(default_factory=dict)
    generated: list[str] = field(default_factory=list)
    required: set[str] = field(default_factory=set)
    key: list[str] = field(default_factory=list)
    partitions: list[str] = field(default_factory=list)
    engine: str = "InnoDB"

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def values(self) -> list[str]:
        return [name for name in self.types if name not in self.key]


class Mysql(MysqlSteps):
    source_kind = "mysql"
    new_tables_need_restart = True

    def is_dropped(self, table: str) -> bool:
        return True

    def __init__(self, database: MysqlDatabase, name: str) -> None:
        self.name = name
        self.database = database
        self.schema = database.name
        self.extra = f"{database.name}_x"
        self.marker = f"{self.schema}.marker"
        self.is_mariadb = database.is_mariadb
        self._schemas = [self.schema]
        #: tables without transactions, as of the last `state`
        self._loose: list[str] = []
        self._connect()

    def _connect(self) -> None:
        self._main = self._new_connection()
        # of its own: a temporary table would hide the one that it is named after
        self._reader = connect(self.database.server)

    def _new_connection(self) -> pymysql.connections.Connection[Any]:
        connection = self.database.connect()
        run(connection, "SET SESSION innodb_lock_wait_timeout = 1")
        run(connection, "SET SESSION lock_wait_timeout = 1")
        return connection

    def version(self) -> str:
        ((found,),) = run(self._reader, "SELECT VERSION()")
        return str(found)

    def config(self) -> dict[str, Any]:
        tables = [f"{schema}.*" for schema in self._schemas]
        actions = "recopy" if self.accepts_foreign_keys else "refuse"
        return {
            **self.database.server.config, "tables": tables, "chunk_rows": 40, "zero_dates": "null",
            "foreign_key_actions": actions, "foreign_key_recopy_seconds": 0.5,
        }  # fmt: skip

    def grow_config(self) -> None:
        """And what was refused before is not any more."""
        self._schemas = [self.schema, self.extra]
        self.accepts_foreign_keys = True

    # -- steps -------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        for statement in self.first_statements():
            run(self._main, statement)

    def mark(self, marker: int) -> None:
        run(self._main, self._marking(marker))

    def _marking(self, marker: int) -> str:
        return f"UPDATE {quoted(self.schema)}.marker SET n = {marker} WHERE id = 1"

    def execute(self, step: Step, number: int) -> list[str]:
        try:
            return self._execute(step, number)
        except pymysql.OperationalError as error:
            if error.args[0] not in _LOST:
                raise
        # MySQL 8.0.12 dies of some ALTER TABLE: what it says afterwards is the truth, as ever
        self.database.server.start()
        self._connect()
        self.mark(2 * number)
        return ["the server has died"]

    def _execute(self, step: Step, number: int) -> list[str]:
        if step.is_atomic:
            is_loose = self._is_loose(step)
            if is_loose:
                self.mark(2 * number - 1)
            try:
                for statement in ("BEGIN", *step.statements, self._marking(2 * number), "COMMIT"):
                    run(self._main, statement)
            except pymysql.Error as error:
                run(self._main, "ROLLBACK")
                if is_loose:
                    self.mark(2 * number)
                return [str(error)]
            return []
        self.mark(2 * number - 1)
        errors = self._each(step)
        self.mark(2 * number)
        return errors

    def has_to_do_with(self, step: Step, table: str) -> bool:
        # a table's name may have a dot in it; triggers write to the one, foreign keys to the others
        name = table.split(".", 1)[1]
        return quoted(name)[1:-1] in "\n".join(step.statements) or name == "audit" or name.startswith("fk_")

    def _is_loose(self, step: Step) -> bool:
        """It changes a table without transactions, perhaps by a trigger: that commits before the rest, and stays."""
        names = [*self._loose, *(["watched"] if "audit" in self._loose else [])]
        return any(name in statement for name in names for statement in step.statements)

    def _each(self, step: Step) -> list[str]:
        """On connections of their own: they may leave settings and temporary tables, and a prepared XA transaction."""
        errors = []
        with self._new_connection() as connection, self._new_connection() as second:
            for statement in step.statements:
                try:
                    if statement in (DROP_KEYLESS, DROP_FOREIGN_KEYS):
                        self._repair(statement)
                    elif statement.startswith(SECOND):
                        run(second, statement.removeprefix(SECOND))
                    else:
                        run(connection, statement)
                except pymysql.Error as error:
                    errors.append(str(error))
        return errors

    def _repair(self, what: str) -> None:
        schemas = ", ".join(f"'{schema}'" for schema in (self.schema, self.extra))
        if what == DROP_KEYLESS:
            for schema, table in run(self._reader, _KEYLESS.format(schemas)):
                run(self._reader, f"DROP TABLE {quoted(schema)}.{quoted(table)}")
            return
        for schema, table, key in run(self._reader, _FOREIGN_KEYS.format(schemas)):
            run(self._reader, f"ALTER TABLE {quoted(schema)}.{quoted(table)} DROP FOREIGN KEY {quoted(key)}")

    def end_open(self) -> None:
        deadline = time.monotonic() + END_SECONDS
        while left := self._prepared():
            assert time.monotonic() < deadline, f"prepared, and cannot be ended: {left}"
            for gid in left:
                # until its connection has really gone, the server does not know it
                with suppress(pymysql.Error):
                    try:
                        run(self._reader, f"XA COMMIT '{gid}'")
                    except pymysql.Error:
                        run(self._reader, f"XA ROLLBACK '{gid}'")

    def _prepared(self) -> list[str]:
        found = [gid for *_, gid in run(self._reader, "XA RECOVER")]
        texts = [gid.decode() if isinstance(gid, bytes) else str(gid) for gid in found]
        return [text for text in texts if text.startswith(self.schema)]

    # -- what it holds -----------------------------------------------------------------------------------

    def state(self) -> State:
        return {name: self._read(table, columns) for name, (table, columns) in self._tables().items()}

    def shapes(self) -> State:
        return {
            name: TableState(tuple(column for column, _ in columns), Counter(), (), table)
            for name, (table, columns) in self._tables().items()
        }

    def _tables(self) -> dict[str, tuple[MyTable, list[tuple[str, Any]]]]:
        """With their columns, and how each is read."""
        schemas = ", ".join(f"'{schema}'" for schema in self._schemas)
        tables: dict[str, MyTable] = {}
        made: dict[str, list[tuple[str, Any]]] = {}
        for schema, name, column, data_type, type_, key, is_nullable, extra, engine in run(
            self._reader, _CATALOGUE.format(schemas)
        ):
            table = tables.setdefault(f"{schema}.{name}", MyTable(schema, name))
            table.engine = engine
            made.setdefault(f"{schema}.{name}", []).append((column, reading(data_type, type_)))
            if "GENERATED" in extra.replace("DEFAULT_GENERATED", ""):
                table.generated.append(column)
                continue
            table.types[column] = type_
            if is_nullable == "NO":
                table.required.add(column)
            if key == "PRI":
                table.key.append(column)
        for schema, name, part in run(self._reader, _PARTITIONS.format(schemas)):
            tables[f"{schema}.{name}"].partitions.append(part)
        self._loose = [quoted(table.name)[1:-1] for table in tables.values() if table.engine != "InnoDB"]
        return {name: (table, made[name]) for name, table in tables.items()}

    def _read(self, table: MyTable, columns: list[tuple[str, Any]]) -> TableState:
        expressions = ", ".join(asked(quoted(column)) for column, (asked, _, _) in columns)
        make = [make for _, (_, make, _) in columns]
        rows = run(self._reader, f"SELECT {expressions} FROM {table.sql}")
        found = Counter(tuple(m(v) for m, v in zip(make, row, strict=True)) for row in rows)
        names = tuple(column for column, _ in columns)
        return TableState(names, found, tuple(of_lake for _, (_, _, of_lake) in columns), table)

    def close(self) -> None:
        self.end_open()
        self._main.close()
        # a table of the one may have a parent in the other
        run(self._reader, "SET SESSION foreign_key_checks = 0")
        for schema in (self.extra, self.schema):
            run(self._reader, f"DROP DATABASE IF EXISTS {quoted(schema)}")
        self._reader.close()
        self.database.drop()
