"""What a database lacks is told with the statements that mend it; one that fails does not hide the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.simulated_oracle import SimulatedOracle
from tests.unit.oracle import catalogue

from lowwater.errors import SourceError, SourceLostError
from lowwater_extractor.api import Check
from lowwater_extractor.sources.oracle import checks as c
from lowwater_extractor.sources.oracle.config import OracleConfig
from lowwater_extractor.sources.oracle.dictionary import query as q
from lowwater_extractor.sources.oracle.discovery import SQL_VERSION
from lowwater_extractor.sources.oracle.supplemental import SQL_SUPPLEMENTAL


def check(database: SimulatedOracle, **more: Any) -> dict[str, Check]:
    settings: dict[str, Any] = {
        "capture": "logminer",
        "tables": ["BANK.ACCOUNTS", "BANK.ENTRIES"],
        "host": "db",
        "service": "FREE",
        "user": "c##lowwater",
        "pdb": database.pdb,
        **more,
    }
    found = c.check_source(OracleConfig(**settings), "bank", lambda container: database)
    return {each.name: each for each in found}


@pytest.fixture
def database() -> SimulatedOracle:
    found = catalogue.with_catalogue(SimulatedOracle(threads=2))
    found.pdb, found.container = "FREEPDB1", 3
    return found


def failed(found: dict[str, Check]) -> set[str]:
    return {name for name, each in found.items() if not each.is_good}


def test_a_database_that_has_all(database: SimulatedOracle) -> None:
    found = check(database)
    assert failed(found) == set()
    assert found["threads"].what == "1 open, 2 open"
    assert found["connection"].what == "db:1521/FREE as c##lowwater"
    assert {"version", "views", "archivelog", "role", "pdb", "supplemental", "logmining", "dbms_logmnr"} <= found.keys()
    assert {"dictionary", "tables", "keys", "table supplemental", "character sets", "copies"} <= found.keys()


@pytest.mark.parametrize(
    ("denied", "name", "fix"),
    [
        ("V$ARCHIVED_LOG", "views", "GRANT SELECT ON SYS.V_$ARCHIVED_LOG TO c##lowwater CONTAINER=ALL;"),
        ("GV$TRANSACTION", "views", "GRANT SELECT ON SYS.GV_$TRANSACTION TO c##lowwater CONTAINER=ALL;"),
        ("V$LOGMNR_CONTENTS", "views", "GRANT SELECT ON SYS.V_$LOGMNR_CONTENTS TO c##lowwater CONTAINER=ALL;"),
        ("DBMS_LOGMNR", "dbms_logmnr", "GRANT EXECUTE ON SYS.DBMS_LOGMNR TO c##lowwater CONTAINER=ALL;"),
        (
            "SYS.ECOL$",
            "dictionary",
            'ALTER SESSION SET CONTAINER = "FREEPDB1"; GRANT SELECT, FLASHBACK ON SYS.ECOL$ TO c##lowwater;',
        ),
        (
            "DBA_LOBS",
            "dictionary views",
            'ALTER SESSION SET CONTAINER = "FREEPDB1"; GRANT SELECT ON SYS.DBA_LOBS TO c##lowwater;',
        ),
        (
            '"BANK"."ENTRIES"',
            "copies",
            'ALTER SESSION SET CONTAINER = "FREEPDB1"; GRANT SELECT, FLASHBACK ON "BANK"."ENTRIES" TO c##lowwater;',
        ),
    ],
)
def test_missing_grants(database: SimulatedOracle, denied: str, name: str, fix: str) -> None:
    database.denied.add(denied)
    found = check(database)
    assert not found[name].is_good
    assert found[name].fix == fix


def test_missing_privileges(database: SimulatedOracle) -> None:
    database.answers[c.SQL_PRIVILEGES] = [("CREATE SESSION",)]
    found = check(database)
    assert failed(found) == {"logmining"}
    assert found["logmining"].fix == (
        "GRANT LOGMINING TO c##lowwater CONTAINER=ALL; GRANT SELECT ANY TRANSACTION TO c##lowwater CONTAINER=ALL;"
    )


def test_supplemental_logging(database: SimulatedOracle) -> None:
    database.answers[SQL_SUPPLEMENTAL] = [("NO", "NO", "NO")]
    database.answers[q.SQL_CONSTRAINTS] = [row for row in catalogue.CONSTRAINTS if row[2] < 12]
    found = check(database)
    assert failed(found) == {"supplemental", "table supplemental"}
    assert found["supplemental"].fix == "ALTER DATABASE ADD SUPPLEMENTAL LOG DATA;"
    assert found["table supplemental"].fix == (
        'ALTER SESSION SET CONTAINER = "FREEPDB1"; '
        'ALTER TABLE "BANK"."ACCOUNTS" ADD SUPPLEMENTAL LOG DATA (PRIMARY KEY) COLUMNS; '
        'ALTER TABLE "BANK"."ENTRIES" ADD SUPPLEMENTAL LOG DATA (PRIMARY KEY) COLUMNS;'
    )
    # for the whole database is as good
    database.answers[SQL_SUPPLEMENTAL] = [("IMPLICIT", "YES", "NO")]
    assert failed(check(database)) == set()


def test_tables_and_keys(database: SimulatedOracle) -> None:
    found = check(database, tables=["BANK.ACCOUNTS", "BANK.ACCOUNT", "BANK.KEYLESS"])
    assert failed(found) == {"tables", "keys", "table supplemental"}
    assert "BANK.ACCOUNT" in found["tables"].what
    assert "without_key: row_images" in found["keys"].fix
    assert '"BANK"."KEYLESS" ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS' in found["table supplemental"].fix
    assert "keys" not in failed(check(database, tables=["BANK.KEYLESS"], without_key="row_images"))


def test_what_redo_files_cannot_give(database: SimulatedOracle) -> None:
    assert "storage" not in failed(check(database, tables=["BANK.*"]))
    found = check(database, tables=["BANK.*"], capture="redo")
    assert "index-organized" in found["storage"].what
    assert "compressed" in found["storage"].what


@pytest.mark.parametrize(
    ("question", "answer", "name"),
    [
        (SQL_VERSION, [("11.2.0.4.0",)], "version"),
        (SQL_VERSION, [("24.1.0.0.0",)], "version"),
        (q.SQL_CHARSETS, [("NLS_CHARACTERSET", "XX8NOBODY"), ("NLS_NCHAR_CHARACTERSET", "UTF8")], "character sets"),
        (q.SQL_ZONE, [("Europe/Vienna",)], "local timestamps"),
    ],
)
def test_what_is_not_known(database: SimulatedOracle, question: str, answer: Any, name: str) -> None:
    database.answers[question] = answer
    assert failed(check(database)) == {name}


def test_versions_that_are_known(database: SimulatedOracle) -> None:
    for version in ("12.1.0.2.0", "12.2.0.1.0", "18.0.0.0.0", "19.0.0.0.0", "21.0.0.0.0", "23.0.0.0.0"):
        database.answers[SQL_VERSION] = [(version,)]
        assert check(database)["version"].is_good


def test_containers(database: SimulatedOracle) -> None:
    found = check(database, pdb="")
    assert not found["pdb"].is_good
    assert "pdb: …" in found["pdb"].fix
    plain = catalogue.with_catalogue(SimulatedOracle())
    assert failed(check(plain)) == set()
    assert not check(plain, pdb="FREEPDB1")["pdb"].is_good


def test_no_archive_log(database: SimulatedOracle, monkeypatch: pytest.MonkeyPatch) -> None:
    role = ("PHYSICAL STANDBY", "READ ONLY", "Little")
    answer = [(1, "FREE", 1, 1, "NOARCHIVELOG", "YES", *role)]
    monkeypatch.setattr(database, "_database", lambda: answer)
    found = check(database)
    assert failed(found) == {"archivelog", "role"}
    assert "ALTER DATABASE ARCHIVELOG" in found["archivelog"].fix


def test_a_connection_that_cannot_be_made() -> None:
    def refuse(container: str) -> SimulatedOracle:
        raise SourceError("connect: ORA-01017: invalid username/password", hint="check user and password")

    config = OracleConfig(tables=["A.B"], host="db", service="FREE", user="u")
    assert c.check_source(config, "bank", refuse) == [
        Check("connection", False, "connect: ORA-01017: invalid username/password", "check user and password")
    ]


def test_a_lost_connection_is_not_a_missing_grant(database: SimulatedOracle, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(sql: str, **binds: object) -> list[tuple[Any, ...]]:
        raise SourceLostError("query: ORA-03113")

    monkeypatch.setattr(database, "ask", lost)
    found = check(database)
    assert "GRANT" not in "".join(each.fix for each in found.values())
    assert all("ORA-03113" in each.what for name, each in found.items() if name != "connection")


def test_directories_without_a_database(tmp_path: Path) -> None:
    config = OracleConfig(
        tables=["A.B"], threads=[1], dictionary=tmp_path / "d.json",
        redo={"online": [tmp_path], "archive": [tmp_path / "no"], "paths": {"/u01": tmp_path}},  # type: ignore[arg-type]
    )  # fmt: skip
    found = {each.name: each.is_good for each in c.check_source(config, "bank")}
    assert found == {"redo.online": True, "redo.archive": False, "redo.paths": True}
