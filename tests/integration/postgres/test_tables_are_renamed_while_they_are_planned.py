"""A table that gets another name between a copy's snapshot and its plan is no reason for a person to come."""

from __future__ import annotations

import pytest
from tests.integration.postgres.reading import source_of
from tests.support.harness import wait_until
from tests.support.postgres import Database

from lowwater.errors import SourceLostError


@pytest.mark.parametrize("postgres_server", [18], indirect=True)
def test_it_is_tried_again(database: Database) -> None:
    for table in ("a", "b"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
        database.execute(f"INSERT INTO {table} VALUES (1)")
    view = source_of(database, tables=["public.*"]).begin_view(["public.a", "public.b"])
    try:
        (first,) = wait_until("the snapshot", lambda: view.plan(1))
        assert first.chunks
        database.execute("ALTER TABLE b RENAME TO c")
        with pytest.raises(SourceLostError, match=r"public\.b was renamed while its copy was planned"):
            view.plan(1)
    finally:
        view.close()
