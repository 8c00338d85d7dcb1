"""A server whose log is not the one that was read: noticed at the start, with what to do; a crash is none of these."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.integration.postgres.reading import Read, reading, source_of
from tests.support.harness import wait_until
from tests.support.postgres import NEWEST_FIRST, Database, NewPostgres

from lowwater.errors import IncarnationError, LogGapError
from lowwater_devkit.servers.postgres import EmbeddedPostgres
from lowwater_extractor.sources.postgres.position import Resume

#: so that a server's files are of one moment once it has stopped
SETTINGS = {"fsync": "off", "checkpoint_timeout": "1h"}


class Restored:
    """A server of one's own, whose files can be put back to what they were."""

    def __init__(self, server: EmbeddedPostgres, directory: Path) -> None:
        self.server = server
        self._backup = directory / "backup"
        server.start()
        self.database = Database(server)
        self.database.execute("CREATE TABLE t (id int PRIMARY KEY, note text)")

    def back_up(self) -> None:
        self.server.stop()
        subprocess.run(["cp", "-a", str(self.server.data), str(self._backup)], check=True)
        self.server.start()

    def restore(self) -> None:
        self.server.stop()
        shutil.rmtree(self.server.data)
        subprocess.run(["cp", "-a", str(self._backup), str(self.server.data)], check=True)
        self.server.start()

    def write_past(self, lsn: int) -> None:
        """Other transactions than before, until the log is longer than that."""
        insert(self, 500)
        end = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8"
        while self.database.execute(end)[0][0] <= lsn:
            self.database.execute("SELECT pg_logical_emit_message(false, 'filler', repeat('x', 100000))")
        insert(self, 600)


@pytest.fixture(params=NEWEST_FIRST, ids=lambda version: f"postgres{version}")
def restored(request: pytest.FixtureRequest, new_postgres: NewPostgres, tmp_path: Path) -> Restored:
    return Restored(new_postgres(version=request.param, settings=SETTINGS), tmp_path)


def acknowledge(read: Read) -> Mapping[int, bytes]:
    assert read.mark is not None
    resumes = {1: read.mark.resume}
    read.stream.acknowledge(resumes)
    return resumes


def insert(restored: Restored, first: int, count: int = 3) -> None:
    for number in range(first, first + count):
        restored.database.execute(f"INSERT INTO t VALUES ({number}, repeat('x', 2000))")


def read_on(restored: Restored, resumes: Mapping[int, bytes] | None, work: Callable[[], None]) -> Mapping[int, bytes]:
    with reading(restored.database, resumes) as read:
        work()
        read.new()
        return acknowledge(read)


def test_a_log_that_ends_before_the_position_is_another_one(restored: Restored) -> None:
    resumes = read_on(restored, None, lambda: insert(restored, 1))
    restored.back_up()
    resumes = read_on(restored, resumes, lambda: insert(restored, 10))
    restored.restore()
    with (
        pytest.raises(IncarnationError, match=r"log ends at .* before the position") as caught,
        reading(restored.database, resumes),
    ):
        pass
    assert "reset the source" in (caught.value.hint or "")


def test_a_log_that_has_passed_the_position_again_with_other_transactions_is_another_one(restored: Restored) -> None:
    resumes = read_on(restored, None, lambda: insert(restored, 1))
    restored.back_up()
    resumes = read_on(restored, resumes, lambda: insert(restored, 10))
    position = source_position(resumes)
    restored.restore()
    restored.write_past(position)
    with reading(restored.database, resumes) as read:
        with pytest.raises(IncarnationError, match="not the one that was read before") as caught:
            read.new()
        assert "reset the source" in (caught.value.hint or "")
    # the slot has not moved: nothing was acknowledged
    with reading(restored.database, resumes) as read, pytest.raises(IncarnationError):
        read.new()


def test_a_log_that_was_idle_before_and_has_transactions_there_now_is_another_one(restored: Restored) -> None:
    """What was handed over last is in both; the position lies after it, by what the idle server wrote by itself."""
    resumes = read_on(restored, None, lambda: insert(restored, 1))
    restored.back_up()
    with reading(restored.database, resumes) as read:
        for _ in range(50):
            restored.database.execute("SELECT pg_logical_emit_message(false, 'other', repeat('x', 2000))")
        restored.database.execute("SELECT pg_switch_wal()")
        read.poll_until("the end of the log", lambda: bool(read.mark and read.mark.at_end))
        resumes = acknowledge(read)
    position = source_position(resumes)
    restored.restore()
    restored.write_past(position)
    with reading(restored.database, resumes) as read, pytest.raises(IncarnationError, match="was not there before"):
        read.new()


def test_a_crash_of_the_server_is_no_other_log(restored: Restored) -> None:
    """The slot may stand where it did at the last checkpoint: what was read since comes again, and is passed over."""
    resumes = read_on(restored, None, lambda: insert(restored, 1))
    resumes = read_on(restored, resumes, lambda: insert(restored, 10))
    restored.server.kill()
    restored.server.start()
    insert(restored, 20, 1)
    with reading(restored.database, resumes) as read:
        assert [(c.after or {})["id"] for changes in read.new() for c in changes] == [20]
        acknowledge(read)
        time.sleep(0.1)


def test_a_slot_made_again_later_is_a_gap(restored: Restored) -> None:
    resumes = read_on(restored, None, lambda: insert(restored, 1))
    slot = f"slot_{restored.database.name}"
    restored.database.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    restored.database.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    with pytest.raises(LogGapError, match="was advanced to"), reading(restored.database, resumes):
        pass
    # as after a reset: the slot that is there is dropped, and another one made
    with reading(restored.database) as read:
        insert(restored, 30, 1)
        assert [c.after["id"] for c in read.one() if c.after] == [30]


def test_a_promoted_standby_and_a_database_made_again_have_another_incarnation(restored: Restored) -> None:
    before = source_of(restored.database).incarnation()
    restored.server.stop()
    # recovery from an archive ends in a new timeline, as a promotion does
    (restored.server.data / "recovery.signal").touch()
    (restored.server.data / "postgresql.auto.conf").write_text("restore_command = 'false'\n")
    restored.server.start()
    wait_until("a new timeline", lambda: restored.database.execute("SELECT NOT pg_is_in_recovery()")[0][0])
    promoted = source_of(restored.database).incarnation()
    assert promoted != before
    restored.database.drop()
    again = Database(restored.server, restored.database.name)
    assert source_of(again).incarnation() not in (before, promoted)


def source_position(resumes: Mapping[int, bytes]) -> int:
    return Resume.unpack(resumes[1]).lsn
