"""What the log does not carry: it is `unchanged` with the reason; a LOB can be asked for as of the commit."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.simulated_oracle import Rows, SimulatedOracle
from tests.unit.oracle.test_changes import TS, Encoders, maker, number, table, text, want
from tests.unit.oracle.vector_builder import Build

from lowwater_extractor.sources.oracle import metrics
from lowwater_extractor.sources.oracle.config import OracleConfig
from lowwater_extractor.sources.oracle.dictionary.dictionary import Dictionary, TableVersion
from lowwater_extractor.sources.oracle.rows import lobs
from lowwater_extractor.sources.oracle.rows.changes import Changes, FrameMaker
from lowwater_extractor.sources.oracle.rows.lob_fetch import LobFetch
from lowwater_extractor.sources.oracle.rows.row_decoder import OUT_OF_LINE
from lowwater_extractor.sources.oracle.rows.value_writing import encode_number, encoder
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.types import OracleColumn, OracleType

CLOB = OracleColumn("C", 2, OracleType.CLOB, charset_form=1, charset="AL32UTF8")
XML = OracleColumn("X", 4, OracleType.OPAQUE)
SCN = 4711


class Answering(SimulatedOracle):
    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self.lobs = rows
        self.questions: list[tuple[str, dict[str, Any]]] = []

    def ask(self, sql: str, **binds: Any) -> Rows:
        self.questions.append((sql, binds))
        return self.lobs


def frames(version: TableVersion, database: SimulatedOracle, *data: bytes) -> list[Any]:
    maker = FrameMaker("bank", Dictionary([version]), Encoders(), lobs=LobFetch(database))
    return list(Changes(maker, data, TS, Scn(SCN)))


def not_in_log(column: str, why: str) -> float:
    return float(metrics.NOT_IN_LOG.labels("bank", "BANK.ACCOUNTS", column, why)._value.get())


def test_a_lob_that_lies_elsewhere_is_unchanged_and_counted() -> None:
    clob = OracleColumn("C", 2, OracleType.CLOB, charset_form=1, charset="AL32UTF8")
    version = table(number("ID", 1), clob, text("T", 3), supplemental=("all",))
    made, build, before = maker(version), Build(), not_in_log("C", OUT_OF_LINE)
    one, inline = encode_number(1), encoder(clob)("text")
    distant = lobs.distant_locator(is_text=True)
    data = [build.insert([one, inline, b"t"]), build.insert([one, distant, b"t"])]
    # an update that does not touch it
    data.append(build.update({3: b"t"}, {3: b"u"}, {1: one}))
    assert list(made.frames(data, TS)) == [
        want(version, "c", None, [1, "text", b"t"]),
        want(version, "c", None, [1, None, b"t"], ["C"]),
        want(version, "u", [1, None, b"t"], [1, None, b"u"], ["C"]),
    ]
    assert not_in_log("C", OUT_OF_LINE) == before + 1


def test_types_that_the_log_does_not_have() -> None:
    version = table(number("ID", 1), OracleColumn("X", 2, OracleType.OPAQUE, nullable=False))
    made = maker(version)
    data = [Build().insert([encode_number(1), b"\x01\x02"])]
    assert list(made.frames(data, TS)) == [want(version, "c", None, [1, None], ["X"])]
    assert not_in_log("X", "an XMLTYPE or another opaque type") == 1


def test_only_what_was_written_elsewhere_is_asked_for() -> None:
    version = table(number("ID", 1), CLOB, text("T", 3), XML, supplemental=("all",))
    build, database = Build(), Answering([("long text",)])
    one, distant = encode_number(1), lobs.distant_locator(is_text=True)
    found = frames(
        version,
        database,
        build.insert([one, encoder(CLOB)("in the row"), b"t", b"x"]),
        build.insert([one, distant, b"t", b"x"]),
        build.update({3: b"t"}, {3: b"u"}, {1: one}),
        build.delete([one, distant, b"u", b"x"]),
    )
    assert found == [
        want(version, "c", None, [1, "in the row", b"t", None], ["X"]),
        want(version, "c", None, [1, "long text", b"t", None], ["X"]),
        want(version, "u", [1, None, b"t", None], [1, None, b"u", None], ["C", "X"]),
        want(version, "d", [1, None, b"u", None], None),
    ]
    asked = 'SELECT "C" FROM "BANK"."ACCOUNTS" AS OF SCN :scn WHERE "ID" = :k0'
    assert database.questions == [(asked, {"scn": SCN, "k0": 1})]


def test_a_row_that_was_gone_by_the_commit_has_none() -> None:
    version = table(text("ID", 1), CLOB, supplemental=("all",))
    database = Answering([])
    (found,) = frames(version, database, Build().insert(["é".encode(), lobs.distant_locator(is_text=True)]))
    assert found == want(version, "c", None, ["é", None], ["C"])
    # texts are bound as texts, not as the bytes that they are in the log
    assert database.questions[0][1]["k0"] == "é"


def test_it_needs_a_database() -> None:
    settings: dict[str, Any] = {"tables": ["BANK.*"], "lob_fetch": "at_commit"}
    assert OracleConfig(**settings, host="db", service="FREE", user="u").capture == "redo"
    with pytest.raises(ValueError, match="at_commit needs a database connection"):
        OracleConfig(**{**settings, "threads": [1], "redo": {"archive": ["/arch"]}, "dictionary": "/tables.json"})
