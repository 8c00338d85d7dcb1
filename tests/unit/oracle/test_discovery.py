"""What the database says of itself, and in which order it is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.simulated_oracle import SimulatedOracle

from lowwater.errors import LogGapError, SourceError, SourceLostError, StartRefusedError
from lowwater_extractor.api import ThreadState
from lowwater_extractor.sources.oracle import discovery as d
from lowwater_extractor.sources.oracle.config import OracleConfig
from lowwater_extractor.sources.oracle.discovery import SQL_VERSION, DatabaseLogs, Discovery
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.thread_snapshot import txid_text, xid_of


def config_of(**more: Any) -> OracleConfig:
    return OracleConfig(tables=["BANK.*"], host="db", service="FREE", user="c##lowwater", **more)


def discovery_of(database: SimulatedOracle, **more: Any) -> Discovery:
    return Discovery(database, config_of(**more), "bank")


def test_identity_and_incarnation() -> None:
    database = SimulatedOracle()
    identity = discovery_of(database).identity()
    assert identity.incarnation == "1497016494.1224959854"
    assert identity.is_archiving
    assert identity.is_little_endian
    database.resetlogs_id += 1
    assert discovery_of(database).identity().incarnation != identity.incarnation


def test_a_look_takes_the_scn_before_the_threads() -> None:
    database = SimulatedOracle(threads=3)
    database.close_thread(2)
    database.asked.clear()
    look = discovery_of(database).look()
    assert database.asked == [d.SQL_SCN, d.SQL_THREADS]
    assert [thread.state for thread in look.threads.values()] == [
        ThreadState.OPEN,
        ThreadState.CLOSED,
        ThreadState.OPEN,
    ]
    # what a thread writes after it is opened lies above the look's SCN
    database.open_thread(2)
    assert database.threads[2].written > look.scn


def test_threads_from_the_config() -> None:
    database = SimulatedOracle(threads=3)
    assert set(discovery_of(database, threads=[1, 2, 3]).look().threads) == {1, 2, 3}
    database.threads[2].is_enabled = False
    assert set(discovery_of(database, threads=[1, 3]).look().threads) == {1, 2, 3}
    with pytest.raises(SourceError, match="4"):
        discovery_of(database, threads=[1, 3, 4]).look()


def test_enabled_thread_that_the_config_does_not_name_is_refused() -> None:
    database = SimulatedOracle(threads=2)
    named = discovery_of(database, threads=[1, 2])
    assert set(named.look().threads) == {1, 2}
    # also one that is added while the source runs
    database.add_thread(3)
    with pytest.raises(StartRefusedError, match="redo threads 1, 2, 3, and `threads` does not name 3") as found:
        named.look()
    assert "leave `threads` out" in (found.value.hint or "")


@pytest.mark.parametrize("change", ["resetlogs_id", "dbid", "container_uid", "pdb_incarnation"])
def test_incarnation_is_another_after_any_replacement_of_the_rows(change: str) -> None:
    database = SimulatedOracle()
    database.pdb, database.container = "SHOP", 3
    before = discovery_of(database, pdb="SHOP").incarnation()
    assert discovery_of(database, pdb="SHOP").incarnation() == before
    setattr(database, change, getattr(database, change) + 1)
    assert discovery_of(database, pdb="SHOP").incarnation() != before


def test_incarnation_of_a_pdb_needs_its_view_from_12_2_on() -> None:
    database = SimulatedOracle()
    database.pdb, database.container = "SHOP", 3
    database.denied = {"V$PDB_INCARNATION"}
    database.answers[SQL_VERSION] = [("19.0.0.0.0",)]
    with pytest.raises(SourceError, match="ORA-00942") as found:
        discovery_of(database, pdb="SHOP").incarnation()
    assert "GRANT SELECT ON SYS.V_$PDB_INCARNATION" in (found.value.hint or "")
    database.answers[SQL_VERSION] = [("12.1.0.2.0",)]
    assert discovery_of(database, pdb="SHOP").incarnation().endswith(".0")


def test_logs_online_and_archived() -> None:
    database = SimulatedOracle(threads=1)
    for _ in range(4):
        database.switch(1)
    found = discovery_of(database)
    online = found.online_logs()
    assert [(log.sequence, log.next_scn is None) for log in online] == [(4, False), (5, True)]
    archived = found.archived_logs(Scn(database.resetlogs), Scn(online[0].first_scn - 1), Scn(database.scn))
    assert [log.sequence for log in archived] == [3, 4]
    assert not any(log.is_online for log in archived)


@pytest.mark.parametrize("value", [(1 << 48) - 1, (1 << 64) - 1, None])
def test_a_log_that_is_written_has_no_next_scn(value: int | None) -> None:
    assert d._next(value) is None
    assert d._next(5) == 5


def test_capture_starts_where_every_later_commit_is_whole() -> None:
    database = SimulatedOracle(threads=2)
    old = database.begin(1)
    database.insert(old, 1, "a", "1.00")
    database.write_all()
    database.begin(2)
    database.asked.clear()
    start = discovery_of(database).start()
    open_ = [d.SQL_INSTANCES, d.SQL_OPEN, d.SQL_IN_DOUBT, d.SQL_DEAD]
    assert [sql for sql in database.asked if sql != d.SQL_THREADS] == [d.SQL_SCN, *open_, d.SQL_SCN]
    assert start.first_scn == old.start
    assert start.since == database.scn
    assert {each.xid for each in start.open} == {xid_of(0, *xid) for xid in database.open}
    # without open transactions: at what the slowest thread has written
    database = SimulatedOracle(threads=2)
    database.write(1)
    start = discovery_of(database).start()
    assert start.first_scn == database.threads[2].written


def test_what_a_dead_instance_has_left_is_known_at_the_start() -> None:
    database = SimulatedOracle(threads=2)
    running = database.begin(1)
    database.in_doubt = [running.xid, (4, 5, 6)]
    database.dead = [(7, 8, 9), running.xid]
    start = discovery_of(database).start()
    # the one in doubt may commit, and nobody knows where it began; what is rolled back cannot
    assert [(each.xid, each.thread, each.start_scn) for each in start.open] == [
        (xid_of(0, *running.xid), 1, running.start),
        (xid_of(0, 4, 5, 6), 0, 0),
    ]
    assert list(start.dead) == [xid_of(0, 7, 8, 9)]
    assert start.first_scn <= running.start
    assert "STATUS" not in d.SQL_OPEN, "prepared transactions are open, too"


def test_capture_does_not_begin_while_an_instance_is_recovered() -> None:
    database = SimulatedOracle(threads=2)
    database.lost = {2}
    with pytest.raises(SourceLostError, match="thread 2 is open, but its instance"):
        discovery_of(database).start()
    database.close_thread(2)
    assert discovery_of(database).start().open == []


def test_the_container_by_its_name() -> None:
    database = SimulatedOracle()
    assert discovery_of(database).container() == 0
    database.pdb, database.container = "FREEPDB1", 3
    assert discovery_of(database, pdb="FREEPDB1").container() == 3
    with pytest.raises(SourceError, match="no PDB OTHER"):
        discovery_of(database, pdb="OTHER").container()
    database.begin(1)
    assert [each.container for each in discovery_of(database, pdb="FREEPDB1").open_transactions()] == [3]


def test_a_transaction_id_as_logminer_shows_it() -> None:
    # the user's transaction of the real logs: usn 10, slot 12, sequence 572
    assert txid_text(xid_of(3, 10, 12, 572)) == "0a000c003c020000"


def test_files_of_the_server_as_they_lie_here(tmp_path: Path) -> None:
    database = SimulatedOracle()
    for _ in range(4):
        database.switch(1)
    online, archive = tmp_path / "online", tmp_path / "archive"
    online.mkdir()
    archive.mkdir()
    config = config_of(redo={"paths": {"/redo": online, "/arch": archive}})
    logs = DatabaseLogs(Discovery(database, config, "bank"), config, "bank", Scn(database.resetlogs))
    assert logs.current_sequence(1) == 5
    assert logs.current_sequence(9) is None
    assert logs.find_online(1, 5) is None
    (online / "1_5.log").touch()
    assert logs.find_online(1, 5) == online / "1_5.log"
    assert logs.find_online(1, 1) is None
    assert logs.find_archived(1, 5) is None
    with pytest.raises(LogGapError, match=r"1_2\.arc, which cannot be read here") as caught:
        logs.find_archived(1, 2)
    assert "redo.paths" in (caught.value.hint or "")
    (archive / "1_2.arc").touch()
    assert logs.find_archived(1, 2) == archive / "1_2.arc"
