"""Restart, crash, purge, reset, failover: the stream goes on where it was, or says why it cannot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.mysql.reading import Read, reading, source_of
from tests.support.harness import wait_until
from tests.support.mysql import NEWEST_FIRST, MysqlDatabase, NewMysql, connect, run

from lowwater.errors import IncarnationError, LogGapError, SourceError, SourceLostError, StartRefusedError
from lowwater_devkit.servers.mysql import EmbeddedMysql
from lowwater_devkit.servers.mysql_install import Flavour, is_mariadb
from lowwater_extractor.sources.mysql.position import PendingGtids, Resume
from lowwater_extractor.sources.mysql.setup import AHEAD

_ITEMS = "CREATE TABLE items (id int PRIMARY KEY, name varchar(20))"


def _ids(read: Read) -> list[int]:
    return [c.after["id"] for changes in read.new() for c in changes if c.after]


def _insert(database: MysqlDatabase, *numbers: int) -> None:
    database.execute(*(f"INSERT INTO items VALUES ({n}, 'item {n}')" for n in numbers))


def _database(server: EmbeddedMysql) -> MysqlDatabase:
    database = MysqlDatabase(server, "shop")
    database.execute(_ITEMS)
    return database


def test_without_gtids_the_log_is_read_by_file_and_offset(new_mysql: NewMysql) -> None:
    """Over a restart and over the end of a file; and a log that was reset is not taken for the one before."""
    server = new_mysql(settings={"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"})
    server.start()
    database = _database(server)
    with reading(database) as read:
        _insert(database, 1)
        database.execute("FLUSH BINARY LOGS")
        _insert(database, 2)
        assert _ids(read) == [1, 2]
        assert [t.txid.split(":")[0] for t in read.found] == ["binlog.000001", "binlog.000002"]
        resumes = read.resumes
        server.kill()
        with pytest.raises(SourceLostError):
            read.poll_until_lost()
    server.start()
    _insert(database, 3)
    with reading(database, resumes) as again:
        assert _ids(again) == [3]
        incarnation = again.source.incarnation()
        resumes = again.resumes
    assert incarnation == run(connect(server), "SELECT @@server_uuid")[0][0]
    with pytest.raises(StartRefusedError, match="gtid_mode is OFF"), reading(database, position="gtid"):
        pass
    database.execute(_said(database.server.flavour, "RESET MASTER"))
    _insert(database, *range(10, 60))
    with pytest.raises(IncarnationError, match="read to"), reading(database, resumes):
        pass


def _purge(database: MysqlDatabase) -> None:
    """A server keeps what a reader has open that it does not know to be gone yet."""

    def is_one() -> bool:
        *_, (newest, *_) = database.execute("SHOW BINARY LOGS")
        database.execute(f"PURGE BINARY LOGS TO '{newest}'")
        return len(database.execute("SHOW BINARY LOGS")) == 1

    wait_until("one log to be left", is_one)


@pytest.mark.parametrize("flavour", NEWEST_FIRST)
def test_killed_then_purged_then_reset(new_mysql: NewMysql, flavour: Flavour) -> None:
    """A killed server comes back, and nothing is lost or repeated. Log that was purged, and a log that was reset, are
    errors that say what to do."""
    server = new_mysql(flavour=flavour)
    server.start()
    database = _database(server)
    with reading(database) as read:
        _insert(database, 1, 2)
        assert _ids(read) == [1, 2]
        resumes, last = read.resumes, read.found[-1].order
    _insert(database, 3)
    server.kill()
    server.start()
    _insert(database, 4)
    with reading(database, resumes) as again:
        assert _ids(again) == [3, 4]
        assert again.found[0].order.major > last.major
        resumes = again.resumes

    _insert(database, 5)
    database.execute("FLUSH BINARY LOGS")
    _insert(database, 6)
    database.execute("FLUSH BINARY LOGS")
    _purge(database)
    with pytest.raises(LogGapError, match="purged") as refused, reading(database, resumes) as again:
        _ids(again)
    assert "reset the source's position" in str(refused.value.hint)

    with reading(database) as anew:
        _insert(database, 7)
        assert _ids(anew) == [7]
        resumes = anew.resumes
    database.execute(_said(database.server.flavour, "RESET MASTER"))
    with pytest.raises(IncarnationError), reading(database, resumes) as again:
        _ids(again)


# -- failover ----------------------------------------------------------------------------------------------


def _said(flavour: Flavour, statement: str) -> str:
    """The same in the terms that MySQL 8.4 and later understand."""
    if flavour != "mysql-9":
        return statement
    if statement == "RESET MASTER":
        return "RESET BINARY LOGS AND GTIDS"
    statement = statement.replace("CHANGE MASTER", "CHANGE REPLICATION SOURCE").replace("SLAVE", "REPLICA")
    return statement.replace("GET_MASTER_", "GET_SOURCE_").replace("MASTER_", "SOURCE_")


@contextmanager
def _replicated(new_mysql: NewMysql, flavour: Flavour) -> Iterator[tuple[MysqlDatabase, MysqlDatabase]]:
    primary, replica = (new_mysql(f"server{n}", flavour=flavour, settings={"server-id": str(n)}) for n in (1, 2))
    primary.start()
    replica.start()
    with connect(primary) as connection:
        run(connection, "CREATE USER IF NOT EXISTS copier@'%' IDENTIFIED BY 'x'")
        run(connection, "GRANT REPLICATION SLAVE ON *.* TO copier@'%'")
    database = _database(primary)
    auto = (
        "MASTER_USE_GTID = slave_pos" if is_mariadb(flavour) else "MASTER_AUTO_POSITION = 1, GET_MASTER_PUBLIC_KEY = 1"
    )
    with connect(replica) as connection:
        if not is_mariadb(flavour):
            # what its own making wrote to its log
            run(connection, _said(flavour, "RESET MASTER"))
        run(connection, _said(flavour, f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.port}, "
                                       f"MASTER_USER = 'copier', MASTER_PASSWORD = 'x', {auto}"))  # fmt: skip
        run(connection, _said(flavour, "START SLAVE"))
    other = MysqlDatabase.__new__(MysqlDatabase)
    other.server, other.name = replica, database.name
    yield database, other


def _wait_for(database: MysqlDatabase, number: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with connect(database.server) as connection:
            tables = run(connection, "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME = 'items'")
            if tables[0][0] and run(connection, f"SELECT 1 FROM {database.name}.items WHERE id = {number}"):
                return
        time.sleep(0.1)
    with connect(database.server) as connection:
        raise AssertionError(run(connection, _said(database.server.flavour, "SHOW SLAVE STATUS")))


@pytest.mark.parametrize("flavour", NEWEST_FIRST)
def test_another_server_takes_over_by_gtids(new_mysql: NewMysql, flavour: Flavour) -> None:
    with _replicated(new_mysql, flavour) as (database, other):
        with reading(database) as read:
            _insert(database, 1, 2)
            assert _ids(read) == [1, 2]
            resumes, last = read.resumes, read.found[-1].order
            incarnation = read.source.incarnation()
        _insert(database, 3)
        _wait_for(other, 3)
        database.server.kill()
        with connect(other.server) as connection:
            run(connection, _said(flavour, "STOP SLAVE"))
            run(connection, _said(flavour, "RESET SLAVE ALL"))
        _insert(other, 4)
        with reading(other, resumes) as again:
            assert again.source.incarnation() == incarnation
            assert _ids(again) == [3, 4]
            assert all(t.order > last for t in again.found)


@pytest.mark.parametrize("flavour", NEWEST_FIRST)
def test_a_server_with_another_order_than_was_published_stops_the_source(
    mysql_servers: Callable[[Flavour], EmbeddedMysql], flavour: Flavour
) -> None:
    database = MysqlDatabase(mysql_servers(flavour))
    database.execute(_ITEMS)
    with reading(database) as read:
        resumes = read.resumes
        _insert(database, 1, 2)
        _ids(read)
        first, second = (t.txid for t in read.found)
        count = Resume.unpack(resumes[1]).count
        assert PendingGtids.unpack(read.encoders.notes[AHEAD], 0).names
    other = reading_with_note(database, resumes, PendingGtids({count + 1: second, count + 2: first}).pack())
    with other as again, pytest.raises(LogGapError, match="in another order"):
        again.new()
    with reading_with_note(database, resumes, PendingGtids({count + 1: first, count + 2: second}).pack()) as again:
        assert _ids(again) == [1, 2]
    database.drop()


@contextmanager
def reading_with_note(database: MysqlDatabase, resumes: dict[int, bytes], note: bytes) -> Iterator[Read]:
    read = Read(database, resumes, notes={AHEAD: note})
    try:
        yield read
    finally:
        read.close()


# -- connections -------------------------------------------------------------------------------------------


def test_tls_is_what_the_settings_say(mysql_servers: Callable[[Flavour], EmbeddedMysql], tmp_path: Path) -> None:
    server = mysql_servers("mysql-9")
    ca = server.data / "ca.pem"
    if not ca.exists():
        pytest.skip("the server has made no certificates")
    database = MysqlDatabase(server)
    database.execute(_ITEMS)
    with reading(database, tls={"mode": "verify_ca", "ca": str(ca)}) as read:
        _insert(database, 1)
        assert _ids(read) == [1]
        ((_, cipher),) = read.stream._catalogue.ask("SHOW STATUS LIKE 'Ssl_cipher'")  # type: ignore[attr-defined]
        assert cipher
    with reading(database, tls={"mode": "disabled"}) as read:
        _insert(database, 2)
        assert _ids(read) == [2]
        ((_, cipher),) = read.stream._catalogue.ask("SHOW STATUS LIKE 'Ssl_cipher'")  # type: ignore[attr-defined]
        assert not cipher
    # its certificate does not have the name that we call it by
    with pytest.raises(SourceError, match="certificate"):
        source_of(database, tls={"mode": "verify_identity", "ca": str(ca)}).incarnation()
    database.drop()


def test_a_wrong_password_stops_the_source_unless_its_file_may_change(
    mysql_server: EmbeddedMysql, tmp_path: Path
) -> None:
    database = MysqlDatabase(mysql_server)
    secret = tmp_path / "password"
    secret.write_text("wrong\n")
    with connect(mysql_server) as connection:
        run(connection, "CREATE USER IF NOT EXISTS reader@'%' IDENTIFIED BY 'right'")
        run(connection, f"GRANT SELECT ON `{database.name}`.* TO reader@'%'")
    source = source_of(database, user="reader", password=f"${{file:{secret}}}")
    with pytest.raises(SourceLostError, match="denied") as refused:
        source.incarnation()
    assert "wrong" not in str(refused.value)
    secret.write_text("right\n")
    assert source.incarnation()
    lacks = {check.name: check for check in source.check() if not check.is_good}
    assert "REPLICATION SLAVE" in lacks["privileges"].fix
    database.drop()


@pytest.mark.parametrize("flavour", ["mysql-9", "mariadb-11.8"])
def test_server_that_leaves_databases_out_of_its_log_is_refused(new_mysql: NewMysql, flavour: Flavour) -> None:
    server = new_mysql(flavour=flavour, settings={"binlog-ignore-db": "shop"})
    server.start()
    database = _database(server)
    with pytest.raises(StartRefusedError, match="leaves shop out of its log"), reading(database):
        pass
    (check,) = [check for check in source_of(database).check() if check.name == "databases in the log"]
    assert not check.is_good
    other = MysqlDatabase(server, "other")
    other.execute(_ITEMS)
    with reading(other) as read:
        _insert(other, 1)
        assert _ids(read) == [1]
    (check,) = [check for check in source_of(other).check() if check.name == "databases in the log"]
    assert (check.is_good, "all but shop" in check.what) == (True, True)
