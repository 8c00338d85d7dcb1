"""The kind `oracle` over files alone: the two real logs, a dictionary in a file, no database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.kit import Encoders, PastChange
from tests.support.oracle_logs import real_logs

from lowwater.errors import ConfigError, LogGapError, SourceError, StartRefusedError
from lowwater_extractor.sources import open_source
from lowwater_extractor.sources.oracle.dictionary import file as dictionary_file
from lowwater_extractor.sources.oracle.dictionary.dictionary import ALL, Dictionary, TableVersion
from lowwater_extractor.sources.oracle.types import OracleColumn, OracleType

TXID = "0a000c003c020000"
COMMIT_SCN = 2267708


def dictionary(path: Path, key: tuple[str, ...] = ("ID",)) -> Path:
    name = OracleColumn("NAME", 2, OracleType.VARCHAR2, 100, charset_form=1, charset="AL32UTF8")
    number = OracleColumn("ID", 1, OracleType.NUMBER, 22, precision=9, scale=0, nullable=False)
    table = TableVersion(
        "logs", "OLR_TEST", "TEST_CDC", 72726, (number, name), container=3, key=key, supplemental=(ALL,)
    )
    dictionary_file.save(Dictionary([table]), path)
    return path


def config(archive: Path, dictionary: Path, **more: Any) -> dict[str, Any]:
    return {
        "tables": ["OLR_TEST.TEST_CDC"],
        "threads": [1],
        "redo": {"archive": [str(archive)]},
        "dictionary": str(dictionary),
        **more,
    }


def test_the_real_logs_hold_one_transaction(tmp_path: Path) -> None:
    source = open_source("logs", "oracle", config(real_logs().first.parent, dictionary(tmp_path / "dictionary.json")))
    encoders = Encoders()
    stream = source.stream({}, {}, encoders)
    registered = stream.poll(frozenset())
    assert not registered.transactions
    polled = stream.poll(frozenset())
    (found,) = polled.transactions
    assert (found.thread, found.txid, found.order.major, found.count) == (1, TXID, COMMIT_SCN, 1)
    assert found.commit_ts_us == 1772847880_000_000
    (change,) = [encoders.decode(frame, 1) for frame in found.changes]
    assert change == PastChange("c", "OLR_TEST.TEST_CDC", None, (1, "hello world"))
    # the last log is closed: its next SCN − 1 is proved
    assert polled.marks[1].order.major == 2267723 - 1
    stream.close()


def test_after_a_restart_it_does_not_come_again(tmp_path: Path) -> None:
    settings = config(real_logs().first.parent, dictionary(tmp_path / "dictionary.json"))
    stream = open_source("logs", "oracle", settings).stream({}, {}, Encoders())
    first = stream.poll(frozenset())
    before = {number: mark.resume for number, mark in first.marks.items()}
    after = {number: mark.resume for number, mark in stream.poll(frozenset()).marks.items()}
    stream.close()
    for resumes, expected in ((before, 1), (after, 0)):
        stream = open_source("logs", "oracle", settings).stream(resumes, {}, Encoders())
        assert sum(len(stream.poll(frozenset()).transactions) for _ in range(3)) == expected
        stream.close()


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    logs = real_logs()
    settings = config(tmp_path, dictionary(tmp_path / "dictionary.json"))
    (tmp_path / "15").write_bytes(logs.first.read_bytes())
    stream = open_source("logs", "oracle", settings).stream({}, {}, Encoders())
    resumes = {1: stream.poll(frozenset()).marks[1].resume}
    stream.close()
    (tmp_path / "16").write_bytes(logs.second.read_bytes())
    raw = json.loads(resumes[1])
    raw[2] = raw[3] = [14, 0, 0]
    stream = open_source("logs", "oracle", settings).stream({1: json.dumps(raw).encode()}, {}, Encoders())
    with pytest.raises(LogGapError, match="log 14 of thread 1"):
        stream.poll(frozenset())
    stream.close()


def test_files_alone_have_no_rows_to_copy(tmp_path: Path) -> None:
    source = open_source("logs", "oracle", config(real_logs().first.parent, dictionary(tmp_path / "dictionary.json")))
    assert source.tables_to_copy() == []
    assert source.filled_columns("OLR_TEST.TEST_CDC") == set()
    with pytest.raises(SourceError, match="no database to copy"):
        source.begin_view(["OLR_TEST.TEST_CDC"])


def test_wrong_settings_are_told(tmp_path: Path) -> None:
    path = dictionary(tmp_path / "dictionary.json")
    with pytest.raises(ConfigError, match="`threads` must name"):
        open_source("logs", "oracle", config(tmp_path, path, threads=[]))
    with pytest.raises(SourceError, match="logs of no databases"):
        open_source("logs", "oracle", config(tmp_path / "nowhere", path)).incarnation()


def test_a_table_without_a_key_is_refused_unless_the_operator_wants_its_rows(tmp_path: Path) -> None:
    path = dictionary(tmp_path / "dictionary.json", key=())
    archive = real_logs().first.parent
    with pytest.raises(StartRefusedError, match=r"OLR_TEST\.TEST_CDC"):
        open_source("logs", "oracle", config(archive, path)).stream({}, {}, Encoders())
    open_source("logs", "oracle", config(archive, path, without_key="row_images")).stream({}, {}, Encoders()).close()
