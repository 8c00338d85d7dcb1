"""The lake of a fleet with one PostgreSQL source, beside its database."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from lowwater.errors import LakeError
from lowwater.lake import Lake
from lowwater.lake.chain.manifest import Layer
from lowwater.lake.read.state_plan import all_files
from tests.support.harness import Fleet, wait_until
from tests.support.postgres import Database

#: a row, written out: how often it is there
Rows = Counter[str]
WAIT_SECONDS = 150.0


class LakeBeside:
    def __init__(self, fleet: Fleet, database: Database) -> None:
        self.fleet = fleet
        self.database = database
        self._lake: Lake | None = None

    @property
    def lake(self) -> Lake:
        """As it is now; LakeError as long as nothing has landed."""
        if self._lake is None:
            config = self.fleet.settings.group(self.fleet.group).lake
            assert config is not None
            self._lake = Lake.open(config)
        self._lake.refresh()
        return self._lake

    def name(self, table: str) -> str:
        return f"{self.fleet.sources[0]}.public.{table}"

    def wait(self, what: str, check: Callable[[], bool]) -> None:
        def is_so() -> bool:
            try:
                return check()
            except LakeError:
                return False  # there is no lake, or no such table in it, yet
            finally:
                time.sleep(0.3)  # a look costs its store something, too

        try:
            wait_until(what, is_so, WAIT_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.fleet.log_tails()}") from error

    # -- copies ------------------------------------------------------------------------------------------

    def copies(self, table: str) -> int:
        """How often it has become readable by a copy."""
        return sum(self.name(table) in copied.tables for copied in self.lake.chain.copied)

    def wait_for_copies(self, count: int, *tables: str) -> None:
        self.wait(f"copy {count} of {tables}", lambda: all(self.copies(table) >= count for table in tables))

    def landed_chunks(self, table: str) -> Counter[tuple[str, int]]:
        """Copy and chunk, of those that no other copy has replaced; how many files each has."""
        files = all_files(self.lake.chain, self.name(table), Layer.COPY)
        return Counter((file.copy_id, file.chunk) for file in files)

    # -- rows --------------------------------------------------------------------------------------------

    def rows(self, table: str, gsn: int | None = None) -> Rows:
        at = self.lake.at() if gsn is None else self.lake.at(gsn)
        names = self._columns(table)
        return Counter(str(tuple(row[name] for name in names)) for row in at.state(self.name(table)).rows())

    def _columns(self, table: str) -> list[str]:
        found = self.database.execute(
            "SELECT attname FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped"
            f" AND attrelid = 'public.{table}'::regclass ORDER BY attnum"
        )
        return [str(name) for (name,) in found]

    def rows_of_database(self, table: str) -> Rows:
        return Counter(map(str, self.database.execute(f"SELECT * FROM public.{table}")))

    def assert_same(self, *tables: str) -> None:
        """Once all has landed: nobody writes any more. A row that is there twice is not the same."""
        wanted = {table: self.rows_of_database(table) for table in tables}

        def is_same() -> bool:
            try:
                return all(self.rows(table) == wanted[table] for table in tables)
            except KeyError:
                return False  # a column that has not come yet

        try:
            self.wait(f"{tables} to be the same", is_same)
        except AssertionError as error:
            found = {table: self.rows(table) for table in tables}
            lost = {table: (wanted[table] - found[table]).total() for table in tables}
            more = {table: (found[table] - wanted[table]).total() for table in tables}
            raise AssertionError(f"lost {lost}, too many {more}; {error}") from error
