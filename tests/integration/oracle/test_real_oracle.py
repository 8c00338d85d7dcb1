"""A real Oracle Free in a container: grants, dictionary and LogMiner. Skipped, with the reason, where Docker is not."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oracledb
import pyarrow as pa
import pytest
from tests.conformance.kit import Encoders, PastTransaction, read

from lowwater.codec.avro import change_schema
from lowwater.codec.rules import ColumnRules
from lowwater.errors import LowwaterError
from lowwater.records.types import Chunk
from lowwater_extractor.sources import open_source
from lowwater_extractor.sources.oracle.checks import check_source
from lowwater_extractor.sources.oracle.config import OracleConfig
from lowwater_extractor.sources.oracle.connect import OracleDatabase
from lowwater_extractor.sources.oracle.dictionary.query import SqlDictionary
from lowwater_extractor.sources.oracle.discovery import Discovery
from lowwater_extractor.sources.oracle.logminer.stream import LogMinerStream, open_stream
from lowwater_extractor.sources.oracle.logminer.tables import MinedTables

IMAGE = os.environ.get("LOWWATER_ORACLE_IMAGE", "gvenzl/oracle-free:23-slim-faststart")
PDB = "FREEPDB1"
USER, PASSWORD = "c##lowwater", "Lowwater_1"
SOURCE = "conformance"

_ARCHIVELOG = """sqlplus -s / as sysdba <<'END'
whenever sqlerror exit failure
shutdown immediate
startup mount
alter database archivelog;
alter database open;
alter pluggable database all open;
END"""
_TABLE = """
CREATE TABLE bank.accounts (
  id NUMBER(10) PRIMARY KEY, name VARCHAR2(4000), native NVARCHAR2(50), fixed CHAR(5), balance NUMBER(12,2),
  any_number NUMBER, born DATE, at TIMESTAMP(6), at_zone TIMESTAMP(6) WITH TIME ZONE, raw_ RAW(10),
  single_ BINARY_FLOAT, double_ BINARY_DOUBLE, months_ INTERVAL YEAR TO MONTH, days_ INTERVAL DAY TO SECOND(6))"""


@pytest.fixture(scope="module")
def container() -> Iterator[Any]:
    docker = pytest.importorskip("docker", reason="the Docker client for Python is not there")
    try:
        docker.from_env(timeout=5).ping()
    except docker.errors.DockerException as error:
        pytest.skip(f"no Docker here, so no Oracle: {error}")
    from testcontainers.community.oracle import OracleDbContainer

    try:
        started = OracleDbContainer(IMAGE, oracle_password=PASSWORD).start()
    except docker.errors.DockerException as error:
        pytest.skip(f"the image {IMAGE} cannot be had here: {error}")
    try:
        code, output = started.exec(["bash", "-c", _ARCHIVELOG])
        assert code == 0, output
        yield started
    finally:
        started.stop()


class Oracle:
    """The server, as its administrator and as its users see it."""

    def __init__(self, container: Any) -> None:
        self.host = container.get_container_host_ip()
        self.port = int(container.get_exposed_port(1521))

    def run(self, *statements: str, service: str = "FREE", pdb: bool = False) -> None:
        arguments: dict[str, Any] = {"host": self.host, "port": self.port, "service_name": service}
        sysdba = oracledb.AUTH_MODE_SYSDBA
        with oracledb.connect(user="sys", password=PASSWORD, mode=sysdba, **arguments) as connection:
            cursor = connection.cursor()
            if pdb:
                cursor.execute(f"ALTER SESSION SET CONTAINER = {PDB}")
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def bank(self) -> oracledb.Connection:
        return oracledb.connect(user="bank", password=PASSWORD, host=self.host, port=self.port, service_name=PDB)

    def config(self, directory: Path) -> OracleConfig:
        return OracleConfig(
            capture="logminer", tables=["BANK.*"], host=self.host, port=self.port, service="FREE", user=USER,
            password="${env:ORACLE_TEST_PASSWORD}", pdb=PDB, spill_directory=directory,
        )  # fmt: skip


@pytest.fixture(scope="module")
def oracle(container: Any) -> Oracle:
    os.environ["ORACLE_TEST_PASSWORD"] = PASSWORD
    server = Oracle(container)
    server.run(
        f"CREATE USER {USER} IDENTIFIED BY {PASSWORD} CONTAINER=ALL",
        f"GRANT CREATE SESSION, SET CONTAINER TO {USER} CONTAINER=ALL",
        f"ALTER USER {USER} SET CONTAINER_DATA=ALL CONTAINER=CURRENT",
    )
    server.run(
        f"CREATE USER bank IDENTIFIED BY {PASSWORD} QUOTA UNLIMITED ON users",
        "GRANT CREATE SESSION, CREATE TABLE TO bank",
        pdb=True,
    )
    with server.bank() as connection:
        connection.cursor().execute(_TABLE)
    return server


def _mend(oracle: Oracle, config: OracleConfig) -> None:
    """Do what each check says, until none says anything: the statements themselves are what is tested."""
    for _ in range(6):
        lacking = [check for check in check_source(config, SOURCE) if not check.is_good]
        if not lacking:
            return
        for check in lacking:
            statements = [part.strip() for part in check.fix.split(";") if part.strip()]
            oracle.run(*statements)
    raise AssertionError(f"still lacking: {lacking}")


def test_every_fix_mends_what_its_check_found(oracle: Oracle, tmp_path: Path) -> None:
    config = oracle.config(tmp_path)
    before = {check.name for check in check_source(config, SOURCE) if not check.is_good}
    assert "views" in before
    _mend(oracle, config)
    assert all(check.is_good for check in check_source(config, SOURCE))


def _open(config: OracleConfig, encoders: Encoders, resumes: dict[int, bytes]) -> LogMinerStream:
    root = OracleDatabase(config, SOURCE)
    discovery = Discovery(root, config, SOURCE)
    inside = OracleDatabase(config, SOURCE, container=PDB)
    dictionary = SqlDictionary(inside, config, SOURCE, discovery.container())
    tables = MinedTables(dictionary.read(discovery.current_scn()), config.wants, dictionary.read)
    return open_stream(SOURCE, config, root, tables, encoders, resumes, {})


def _read(stream: LogMinerStream, encoders: Encoders, wanted: int, resumes: dict[int, bytes]) -> list[PastTransaction]:
    found: list[PastTransaction] = []
    until = time.monotonic() + 120
    while len(found) < wanted and time.monotonic() < until:
        polled = stream.poll(frozenset())
        found += [read(transaction, encoders) for transaction in polled.transactions]
        resumes |= {number: mark.resume for number, mark in polled.marks.items()}
        time.sleep(0.05)
    return found


_ROW = """
INSERT INTO accounts VALUES (:id, :name, :native, 'abc', 10.25, 0.1, DATE '2026-03-07',
  TIMESTAMP '2026-03-07 01:44:40.123456', TIMESTAMP '2026-03-07 01:44:40.5 +05:30', HEXTORAW('00FF'), 1.5, -2.5,
  INTERVAL '3-4' YEAR TO MONTH, INTERVAL '1 02:03:04.5' DAY TO SECOND)"""


def test_transactions_come_through_logminer(oracle: Oracle, tmp_path: Path) -> None:
    config = oracle.config(tmp_path)
    _mend(oracle, config)
    encoders, resumes = Encoders(), dict[int, bytes]()
    stream = _open(config, encoders, resumes)
    _read(stream, encoders, 0, resumes)
    stream.poll(frozenset())
    with oracle.bank() as connection:
        cursor = connection.cursor()
        cursor.execute(_ROW, {"id": 1, "name": "it's", "native": "Zoë 😀"})
        cursor.execute("SAVEPOINT s")
        cursor.execute(_ROW, {"id": 2, "name": "gone", "native": None})
        cursor.execute("ROLLBACK TO s")
        cursor.execute(_ROW, {"id": 3, "name": "x" * 3999, "native": None})
        connection.commit()
        cursor.execute("UPDATE accounts SET balance = balance - 1 WHERE id = 1")
        cursor.execute("DELETE FROM accounts WHERE id = 3")
        connection.commit()
        cursor.execute(_ROW, {"id": 9, "name": "rolled back", "native": None})
        connection.rollback()
    first, second = _read(stream, encoders, 2, resumes)
    inserted = first.changes[0].after
    assert inserted is not None
    assert [(change.op, (change.after or (None,))[0]) for change in first.changes] == [("c", 1), ("c", 3)]
    assert inserted[1:6] == ("it's", "Zoë 😀", "abc  ", pytest.approx(10.25), "0.1")
    assert inserted[9:] == (b"\x00\xff", 1.5, -2.5, "P3Y4M", "P1DT2H3M4.5S")
    assert [change.op for change in second.changes] == ["u", "d"]
    stream.close()
    # nothing is there twice after a restart, and nothing is missing
    stream = _open(config, encoders, resumes)
    with oracle.bank() as connection:
        connection.cursor().execute("UPDATE accounts SET balance = 0")
        connection.commit()
    oracle.run("ALTER SYSTEM SWITCH LOGFILE")
    seen = _read(stream, encoders, 1, resumes)
    assert [t.txid for t in seen if t.txid not in (first.txid, second.txid)]
    stream.close()


_OLD = "UPDATE accounts SET born = TO_DATE('-0044-03-15', 'SYYYY-MM-DD'), any_number = 1e100 WHERE id = :id"


def test_a_copy_has_what_the_stream_has(oracle: Oracle, tmp_path: Path) -> None:
    config = oracle.config(tmp_path).model_copy(update={"chunk_rows": 50})
    _mend(oracle, config)
    encoders, resumes = Encoders(), dict[int, bytes]()
    stream = _open(config, encoders, resumes)
    _read(stream, encoders, 0, resumes)
    with oracle.bank() as connection:
        cursor = connection.cursor()
        cursor.execute("DELETE FROM accounts")
        connection.commit()
        for number in range(1000, 1200):
            cursor.execute(_ROW, {"id": number, "name": f"n{number}", "native": "Zoë 😀"})
        connection.commit()
        cursor.execute(_OLD, {"id": 1000})
        connection.commit()
    streamed: dict[int, Any] = {}
    for transaction in _read(stream, encoders, 3, resumes):
        for change in transaction.changes:
            if change.after is not None and (change.op == "c" or change.after[0] == 1000):
                streamed[change.after[0]] = change.after
    stream.close()
    source = open_source(SOURCE, "oracle", config.model_dump(mode="json", exclude_defaults=True))
    view = source.begin_view(["BANK.ACCOUNTS"])
    (table,) = view.plan(10)
    assert table.at is not None
    with oracle.bank() as connection:
        connection.cursor().execute("DELETE FROM accounts WHERE id = 1001")
        connection.commit()
    assert view.keep(["BANK.ACCOUNTS"]) == []
    avro, found = json.dumps(change_schema(table.table)), dict[int, Any]()
    for number, (bounds, rows) in enumerate(table.chunks):
        chunk = Chunk(SOURCE, "c", "BANK.ACCOUNTS", number, len(table.chunks), 1, bounds, table.at, table.at, rows, "")
        for batch in source.read_chunk(chunk, avro, ColumnRules()):
            names = [n for n in batch.schema.names if pa.types.is_timestamp(batch.schema.field(n).type)]
            for name in names:
                at = batch.schema.get_field_index(name)
                batch = batch.set_column(at, name, batch.column(name).view(pa.int64()))
            for row in batch.to_pylist():
                assert row["ID"] not in found
                found[row["ID"]] = tuple(row.values())
    view.close()
    assert found.keys() == set(range(1000, 1200))
    assert {number: found[number] for number in range(1001, 1200)} == {n: streamed[n] for n in range(1001, 1200)}
    # an update has only what changed, and its key
    assert (found[1000][5], found[1000][6]) == (streamed[1000][5], streamed[1000][6])


def test_the_last_redo_scn_is_a_bound_of_what_comes(oracle: Oracle, tmp_path: Path) -> None:
    """What windows rest on: a commit after the look has an SCN at or above LAST_REDO_CHANGE# as the look showed it."""
    config = oracle.config(tmp_path)
    _mend(oracle, config)
    database = OracleDatabase(config, SOURCE)
    discovery = Discovery(database, config, SOURCE)
    try:
        with oracle.bank() as connection:
            cursor = connection.cursor()
            for number in range(100, 130):
                cursor.execute("INSERT INTO accounts (id) VALUES (:id)", {"id": number})
                ((thread, last),) = [(t.number, t.last_scn) for t in discovery.look().threads.values()]
                connection.commit()
                cursor.execute("SELECT ORA_ROWSCN FROM accounts WHERE id = :id", {"id": number})
                row = cursor.fetchone()
                assert row is not None
                assert row[0] >= last, f"thread {thread}"
    finally:
        database.close()


def test_a_wrong_password_is_named(oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORACLE_TEST_PASSWORD", "wrong")
    with pytest.raises(LowwaterError, match="ORA-01017"):
        OracleDatabase(oracle.config(tmp_path), SOURCE)
