"""Checks that the log identifies the rows of a table. Run when a table is captured first, and after each DDL on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lowwater.errors import StartRefusedError
from lowwater_extractor.sources.oracle.connect import Database
from lowwater_extractor.sources.oracle.dictionary.dictionary import ALL, FOREIGN_KEY, PRIMARY_KEY, UNIQUE, TableVersion

SQL_SUPPLEMENTAL = """
SELECT SUPPLEMENTAL_LOG_DATA_MIN, SUPPLEMENTAL_LOG_DATA_PK, SUPPLEMENTAL_LOG_DATA_ALL FROM V$DATABASE"""

SQL_FORCE_LOGGING = "SELECT FORCE_LOGGING FROM V$DATABASE"

_OWN = frozenset({ALL, PRIMARY_KEY, UNIQUE, FOREIGN_KEY})


def names_rows(table: TableVersion, *, key: bool, every: bool) -> bool:
    """Whether the log has the table's key, or all columns if it has none.

    `key`, `every`: supplemental logging of the key, or of all columns, is on for the whole database.
    """
    if every or ALL in table.supplemental:
        return True
    return bool(table.key) and (key or PRIMARY_KEY in table.supplemental)


class SupplementalCheck:
    """Refuses a table whose updates would be logged without the key.

    The table's current definition is decisive: an operator can add the log group, and earlier changes without the key
    are refused one by one when they are decoded. The latter also holds for tables with user-defined log groups.
    """

    def __init__(self, source: str, root: Database, read_now: Callable[[str], Sequence[TableVersion]]) -> None:
        self._source = source
        self._root = root
        self._read_now = read_now

    def __call__(self, table: TableVersion) -> None:
        if names_rows(table, key=False, every=False) or not set(table.supplemental) <= _OWN:
            return
        ((_, key, every),) = self._root.ask(SQL_SUPPLEMENTAL)
        if names_rows(table, key=key == "YES", every=every == "YES"):
            return
        now = self._read_now(table.full_name)
        if any(names_rows(version, key=False, every=False) for version in now):
            return
        raise StartRefusedError(
            f"{table.full_name}: the log does not identify the row of an update: supplemental logging is missing",
            source=self._source,
            position=f"SCN {table.from_scn}",
            hint=f"{table.log_statement()}; then resume the source",
        )


def refuse_unlogged(source: str, root: Database, table: TableVersion) -> None:
    """Refuse a NOLOGGING table: LogMiner does not show unlogged loads. (The redo itself contains a record of them.)"""
    if not table.is_unlogged:
        return
    ((forced,),) = root.ask(SQL_FORCE_LOGGING)
    if forced != "YES":
        raise StartRefusedError(
            f"{table.full_name} is NOLOGGING: LogMiner does not show rows that are loaded by direct path",
            source=source,
            position=f"SCN {table.from_scn}",
            hint=f'ALTER TABLE "{table.owner}"."{table.table}" LOGGING, also for its partitions; or '
            "ALTER DATABASE FORCE LOGGING; then resume the source",
        )
