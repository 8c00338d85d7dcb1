"""What the log would leave out stops the source by name; once it is put right, what was left out is copied."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.postgres.reading import reading
from tests.integration.postgres.test_what_the_log_does_not_tell import PARTS, TWO, check_stale, run
from tests.support.postgres import Database

from lowwater.errors import LogGapError, SourceError, StartRefusedError
from lowwater_extractor.sources.postgres.catalogue_watch import watch


def test_replica_identity_nothing_stops_the_source_by_name(database: Database) -> None:
    run(database, TWO)
    with reading(database) as read:
        read.new()
        assert read.mark is not None
        resumes, notes = {1: read.mark.resume}, read.notes
        run(database, "ALTER TABLE t REPLICA IDENTITY NOTHING")
        with pytest.raises(StartRefusedError, match=r"updates and deletes of public\.t cannot be captured"):
            read.wait_for_the_watch()
    with pytest.raises(StartRefusedError, match=r"public\.t"), reading(database, resumes, notes):
        pass
    run(database, "ALTER TABLE t REPLICA IDENTITY FULL; UPDATE t SET n = 5")
    with reading(database, resumes, notes) as read:
        assert [c.after for c in read.one()] == [{"id": 1, "n": 5, "note": "a"}]


def test_a_primary_key_that_is_dropped_stops_the_source_after_a_while(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(database, TWO)
    with reading(database) as read:
        read.new()
        run(database, "ALTER TABLE t DROP CONSTRAINT t_pkey")
        read.wait_for_the_watch()
        run(database, "INSERT INTO t VALUES (3, 3, 'c')")
        assert [c.after for c in read.one()] == [{"id": 3, "n": 3, "note": "c"}]
        monkeypatch.setattr(watch, "WITHOUT_KEY_SECONDS", 0.0)
        with pytest.raises(StartRefusedError, match=r"public\.t"):
            read.wait_for_the_watch()


def test_an_unlogged_partition_stops_the_source_by_name(database: Database) -> None:
    run(database, PARTS)
    with reading(database) as read:
        read.new()
        assert read.mark is not None
        resumes, notes = {1: read.mark.resume}, read.notes
        run(database, "ALTER TABLE p1 SET UNLOGGED")
        with pytest.raises(SourceError, match=r"public\.p1, a partition of public\.p, is unlogged"):
            read.wait_for_the_watch()
    run(database, "INSERT INTO p VALUES (5, 5)")
    with pytest.raises(SourceError, match="unlogged"), reading(database, resumes, notes):
        pass
    run(database, "ALTER TABLE p1 SET LOGGED")
    with reading(database, resumes, notes) as read:
        read.new()
        check_stale(read, {"p"})


ALTERED = {
    "does not publish delete": "SET (publish = 'insert, update, truncate')",
    "publishes partitions under": "SET (publish_via_partition_root = false)",
    "a row filter for public.t": "SET TABLE t WHERE (id > 100), u, p, lowwater_marker",
    "a column list for public.t": "SET TABLE t (id, n), u, p, lowwater_marker",
    "generated columns": "SET (publish_generated_columns = stored)",
}


@pytest.mark.parametrize("what", ALTERED)
def test_a_publication_that_hides_something_stops_the_source_and_all_is_copied_after_it_is_fixed(
    database: Database, what: str
) -> None:
    needs = 18 if "generated" in what else 15 if "public.t" in what else 14
    if database.server.version < needs:
        pytest.skip(f"from version {needs} on")
    run(database, TWO + "; " + PARTS)
    with reading(database) as read:
        read.new()
        assert read.mark is not None
        resumes, notes = {1: read.mark.resume}, read.notes
        run(database, f"ALTER PUBLICATION lowwater_conformance {ALTERED[what]}")
        with pytest.raises(LogGapError, match=what):
            read.wait_for_the_watch()
    run(database, "INSERT INTO t VALUES (5, 5, 'hidden')")
    with pytest.raises(LogGapError, match=what), reading(database, resumes, notes):
        pass
    fixes = """ALTER PUBLICATION lowwater_conformance SET (publish = 'insert, update, delete, truncate',
        publish_via_partition_root = true)"""
    run(database, f"{fixes}; ALTER PUBLICATION lowwater_conformance SET TABLE t, u, p, lowwater_marker")
    if database.server.version >= 18:
        run(database, "ALTER PUBLICATION lowwater_conformance SET (publish_generated_columns = none)")
    with reading(database, resumes, notes) as read:
        read.new()
        assert "public.t" in read.stale


def test_a_publication_of_ones_own_that_loses_a_table_stops_the_source(database: Database) -> None:
    run(database, TWO + "; CREATE PUBLICATION mine FOR TABLE t, u")
    settings: dict[str, Any] = {
        "manage_publication": False, "publication": "mine", "tables": ["public.t", "public.u"],
    }  # fmt: skip
    with reading(database, **settings) as read:
        read.wait_for_the_watch()
        assert read.mark is not None
        resumes, notes = {1: read.mark.resume}, read.notes
        run(database, "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY)")
        with pytest.raises(LogGapError, match=r"publication mine does not have public\.t"):
            read.wait_for_the_watch()
    run(database, "INSERT INTO t VALUES (1); ALTER PUBLICATION mine ADD TABLE t")
    with reading(database, resumes, notes, **settings) as read:
        check_stale(read, {"t"})


def test_a_partition_whose_identity_lacks_the_tables_key_is_refused(database: Database) -> None:
    """An update of the key alone would come without the old one."""
    run(
        database,
        PARTS
        + """; ALTER TABLE p1 ALTER n SET NOT NULL; CREATE UNIQUE INDEX i ON p1 (n);
        ALTER TABLE p1 REPLICA IDENTITY USING INDEX i""",
    )
    with pytest.raises(StartRefusedError, match=r"updates and deletes of public\.p "), reading(database):
        pass
    run(database, "ALTER TABLE p1 REPLICA IDENTITY FULL")
    with reading(database) as read:
        run(database, "UPDATE p SET id = 2 WHERE id = 1")
        (change,) = read.one()
    assert ((change.before or {})["id"], change.after) == (1, {"id": 2, "n": 1})
