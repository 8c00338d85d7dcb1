"""Settings are checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import oracledb
import pytest
from pydantic import ValidationError

from lowwater.errors import LogCorruptError, LogGapError, SourceError, SourceLostError
from lowwater_extractor.sources.oracle.config import OracleConfig, RedoConfig
from lowwater_extractor.sources.oracle.connect import as_source_error, connect_arguments, quoted

GOOD: dict[str, Any] = {"tables": ["BANK.*"], "host": "db", "service": "FREE", "user": "c##lowwater"}
OFFLINE: dict[str, Any] = {
    "tables": ["BANK.*"], "threads": [1, 2], "dictionary": "/d.json", "redo": {"archive": ["/arch"]}
}  # fmt: skip


def test_defaults_and_names() -> None:
    config = OracleConfig(**{**GOOD, "tables": ["BANK.ACCOUNTS", "AUDIT.*", "BANK.X"]})
    assert (config.capture, config.mode, config.dictionary, config.zone) == ("redo", "thin", "sql", "UTC")
    assert config.owners == ["AUDIT", "BANK"]
    assert config.wants("BANK", "ACCOUNTS")
    assert config.wants("AUDIT", "ANY")
    assert not config.wants("BANK", "OTHER")


def test_it_can_be_read_without_a_database() -> None:
    assert not OracleConfig(**OFFLINE).has_database


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({**GOOD, "colour": "blue"}, "colour"),
        ({**GOOD, "capture": "triggers"}, "capture"),
        ({**GOOD, "tables": []}, "tables"),
        ({**GOOD, "tables": ["ACCOUNTS"]}, "OWNER.TABLE"),
        ({**GOOD, "tables": ["A.B.C"]}, "OWNER.TABLE"),
        ({**GOOD, "password": "tiger"}, "holds a secret"),
        ({**GOOD, "tls": {"wallet_password": "tiger"}}, "holds a secret"),
        ({**GOOD, "zone": "Mars/Olympus"}, "time zone"),
        ({**GOOD, "threads": [1, 1]}, "duplicate"),
        ({**GOOD, "threads": [0]}, "threads"),
        ({**GOOD, "user": ""}, "user"),
        ({**GOOD, "service": ""}, "belong together"),
        ({**GOOD, "dsn": "db/FREE"}, "not both"),
        ({**GOOD, "logminer": {"window_scns_min": 10, "window_scns_max": 5}}, "window_scns_min"),
        ({**OFFLINE, "capture": "logminer"}, "logminer needs a database connection"),
        ({**OFFLINE, "dictionary": "sql"}, "sql needs a database connection"),
        ({**OFFLINE, "threads": []}, "must name the redo threads"),
        ({**OFFLINE, "redo": {}}, "must name a directory"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(ValidationError, match=what) as caught:
        OracleConfig(**settings)
    assert "tiger" not in str(caught.value.errors(include_input=False))


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/u01/oradata/FREE/redo01.log", "/mnt/data/FREE/redo01.log"),
        ("/u01/oradata/arch/1_2_3.dbf", "/mnt/arch/1_2_3.dbf"),
        ("/u01/oradata2/x.log", "/u01/oradata2/x.log"),
        ("+DATA/FREE/ONLINELOG/group_1.261", "/asm/FREE/ONLINELOG/group_1.261"),
        ("D:\\oradata\\redo01.log", "/win/redo01.log"),
    ],
)
def test_paths_of_the_server_become_paths_here(path: str, local: str) -> None:
    paths = {
        "/u01/oradata": Path("/mnt/data"),
        "/u01/oradata/arch/": Path("/mnt/arch"),
        "+DATA": Path("/asm"),
        "D:\\oradata": Path("/win"),
    }
    assert RedoConfig(paths=paths).local(path) == Path(local)


def test_what_the_driver_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORACLE_PASSWORD", "tiger")
    monkeypatch.setenv("WALLET_PASSWORD", "lion")
    tls = {"enabled": True, "wallet_directory": Path("/w"), "wallet_password": "${env:WALLET_PASSWORD}"}
    more: dict[str, Any] = {"password": "${env:ORACLE_PASSWORD}", "config_directory": Path("/tns"), "tls": tls}
    config = OracleConfig(**GOOD, **more)
    found = connect_arguments(config)
    assert (found["password"], found["protocol"], found["wallet_password"]) == ("tiger", "tcps", "lion")
    assert (found["host"], found["service_name"], found["config_dir"]) == ("db", "FREE", "/tns")
    assert found["ssl_server_dn_match"] is True
    # whatever is given must be known to the driver
    oracledb.ConnectParams(**{k: v for k, v in found.items() if k != "dsn"})
    assert "tiger" not in repr(config)
    assert connect_arguments(OracleConfig(tables=["A.B"], dsn="db/FREE", user="u"))["dsn"] == "db/FREE"


class Told:
    def __init__(self, message: str) -> None:
        self.full_code = message.partition(":")[0]
        self.message = message
        self.isrecoverable = False


@pytest.mark.parametrize(
    ("message", "error", "hint"),
    [
        ("ORA-03113: end-of-file on communication channel", SourceLostError, "retried"),
        ("DPY-6005: cannot connect to database", SourceLostError, "retried"),
        ("ORA-00310: archived log contains sequence 8; sequence 7 required", SourceLostError, "retried"),
        ("ORA-01291: missing log file", LogGapError, "restore"),
        ("ORA-00308: cannot open archived log\nORA-27037: unable to obtain file status", LogGapError, "restore"),
        ("ORA-00368: checksum error in redo log block\nORA-00334: archived log: 'x'", LogCorruptError, "backup"),
        ("ORA-01017: invalid username/password; logon denied", SourceError, "password"),
        ("ORA-00942: table or view does not exist", SourceError, "grant"),
        ("ORA-01476: divisor is equal to zero", SourceError, ""),
    ],
)
def test_errors_of_the_server_in_words_of_ours(message: str, error: type[SourceError], hint: str) -> None:
    found = as_source_error(oracledb.DatabaseError(Told(message)), "bank", "query")
    assert type(found) is error
    assert hint in (found.hint or "")
    assert found.source == "bank"


def test_names_in_sql() -> None:
    assert quoted("ACCOUNTS") == '"ACCOUNTS"'
    with pytest.raises(SourceError, match="not a valid Oracle name"):
        quoted('a" or "b')
