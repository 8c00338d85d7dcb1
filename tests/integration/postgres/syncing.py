"""A source of kind postgres in the mode `incremental`, on a test's own database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.integration.postgres.reading import source_of
from tests.support.postgres import Database
from tests.support.syncs import Syncs, settings_of


@contextmanager
def syncing(
    database: Database, cursors: dict[str, Any], resume: bytes | None = None, **settings: Any
) -> Iterator[Syncs]:
    made = Syncs(source_of(database, **{**settings_of(cursors), **settings}), resume)
    try:
        yield made
    finally:
        made.close()
