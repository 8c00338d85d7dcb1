"""Does the log say enough of a table? Asked of each one when it is first met, and after each DDL on it."""

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
    """Its key is in the log, or all columns where there is none; `key`, `every`: for all tables of the database."""
    if every or ALL in table.supplemental:
        return True
    return bool(table.key) and (key or PRIMARY_KEY in table.supplemental)


class SupplementalCheck:
    """Refuses a table whose updates would come without the key.

    What counts is how the table is now: an operator can add what is missing, and changes from before that are refused
    one by one if they lack the key. A table with log groups of its own is left to that, too.
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
            f"{table.full_name}: the log does not name the row of an update: its supplemental logging is missing",
            source=self._source,
            position=f"SCN {table.from_scn}",
            hint=f"{table.log_statement()}; then resume the source",
        )


def refuse_unlogged(source: str, root: Database, table: TableVersion) -> None:
    """For LogMiner, which shows nothing of a load without logging; the redo itself tells of it."""
    if not table.is_unlogged:
        return
    ((forced,),) = root.ask(SQL_FORCE_LOGGING)
    if forced != "YES":
        raise StartRefusedError(
            f"{table.full_name} is NOLOGGING: of what is loaded by direct path LogMiner shows nothing",
            source=source,
            position=f"SCN {table.from_scn}",
            hint=f'ALTER TABLE "{table.owner}"."{table.table}" LOGGING, and of its partitions; or '
            "ALTER DATABASE FORCE LOGGING; then resume the source",
        )
