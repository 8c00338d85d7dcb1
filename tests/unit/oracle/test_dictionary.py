"""Tables by object and SCN; there and back through JSON; what cannot be captured is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lowwater.codec.table import ColumnKind
from lowwater.errors import ConfigError, LogUnknownError, StartRefusedError
from lowwater_extractor.sources.oracle.dictionary.dictionary import ALL, Dictionary, TableVersion, with_options
from lowwater_extractor.sources.oracle.dictionary.file import from_json, load, save, table_to_json, to_json
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.types import OracleColumn, OracleType

ID = OracleColumn("ID", 1, OracleType.NUMBER, 22, 9, 0, nullable=False)
NAME = OracleColumn("NAME", 2, OracleType.VARCHAR2, 100, charset_form=1, charset="AL32UTF8")


def table(**more: Any) -> TableVersion:
    described: dict[str, Any] = {"columns": (ID, NAME), "container": 3, "key": ("ID",), "object_id": 70, **more}
    return TableVersion("bank", "BANK", "ACCOUNTS", **described)


class TestVersions:
    def test_from_its_scn_until_the_next(self) -> None:
        old, new = table(from_scn=10), table(from_scn=20, columns=(ID,))
        dictionary = Dictionary([new, old])
        assert dictionary.find(3, 70, Scn(9)) is None
        assert [dictionary.find(3, 70, Scn(scn)) for scn in (10, 19, 20, 99)] == [old, old, new, new]
        assert dictionary.span(3, 70, Scn(15)) == (old, 10, 20)
        assert dictionary.span(3, 70, Scn(25)) == (new, 20, 1 << 64)
        assert dictionary.last() == [new]
        assert list(dictionary) == [old, new]

    def test_same_object_in_another_container_is_another_table(self) -> None:
        dictionary = Dictionary([table(), table(container=4)])
        assert dictionary.objects() == {3: frozenset({70}), 4: frozenset({70})}
        with pytest.raises(LogUnknownError, match="container 5"):
            dictionary.table(5, 70, Scn(1))

    def test_partitions_are_found_by_their_own_objects(self) -> None:
        version = table(partition_ids=(71, 72))
        dictionary = Dictionary([version])
        assert dictionary.find(3, 72, Scn(0)) is version
        assert dictionary.objects() == {3: frozenset({70, 71, 72})}
        # a partition that is added later is not in the first version
        dictionary.add(table(partition_ids=(71, 72, 73), from_scn=5))
        assert dictionary.find(3, 73, Scn(4)) is None
        assert dictionary.find(3, 73, Scn(5)) is dictionary.find(3, 70, Scn(5))

    def test_read_again_at_the_same_scn(self) -> None:
        dictionary = Dictionary([table(from_scn=10)])
        again = table(from_scn=10, key=())
        dictionary.add(again)
        assert len(dictionary) == 1
        assert dictionary.find(3, 70, Scn(10)) is again


class TestTables:
    def test_published_form(self) -> None:
        hidden = OracleColumn("SYS_1", 3, OracleType.RAW, 10, is_hidden=True)
        virtual = OracleColumn("TWICE", 0, OracleType.NUMBER, 22)
        xml = OracleColumn("X", 4, OracleType.OPAQUE, nullable=False)
        version = table(columns=(ID, virtual, xml, NAME, hidden))
        assert [(c.name, c.type.kind, c.nullable) for c in version.schema.columns] == [
            ("ID", ColumnKind.INT32, False),
            ("X", ColumnKind.STRING, True),
            ("NAME", ColumnKind.STRING, True),
        ]
        assert (version.schema.namespace, version.schema.table, version.schema.key) == ("BANK", "ACCOUNTS", ("ID",))
        assert [c.number for c in version.stored] == [1, 2, 3, 4]
        assert version.not_in_log == {"X": "an XMLTYPE or another opaque type"}

    @pytest.mark.parametrize(
        ("flag", "why"),
        [("is_index_organized", "index-organized"), ("is_clustered", "cluster"), ("is_compressed", "compressed")],
    )
    def test_refused_by_name(self, flag: str, why: str) -> None:
        with pytest.raises(StartRefusedError, match=rf"BANK\.ACCOUNTS cannot be captured.*{why}"):
            Dictionary([table(**{flag: True})])

    @pytest.mark.parametrize(
        ("more", "why"),
        [
            ({"columns": (ID, replace(NAME, number=3))}, "segment columns"),
            ({"columns": (ID, replace(NAME, name="ID"))}, "one name"),
            ({"key": ("NO",)}, "NO"),
        ],
    )
    def test_contradictions(self, more: dict[str, Any], why: str) -> None:
        with pytest.raises(StartRefusedError, match=why):
            table(**more)

    def test_statement_that_mends(self) -> None:
        assert table().log_statement().endswith("(PRIMARY KEY) COLUMNS")
        assert table(key=()).log_statement() == 'ALTER TABLE "BANK"."ACCOUNTS" ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS'

    def test_what_the_operator_wants_of_single_columns(self) -> None:
        version = with_options(table(), frozenset({"BANK.ACCOUNTS.ID"}), frozenset({"BANK.ACCOUNTS.NAME"}))
        assert version.schema.columns[0].type.kind is ColumnKind.STRING
        assert version.columns[1].on_bad_text == "replace"


class TestFile:
    def test_there_and_back(self, tmp_path: Path) -> None:
        guard = OracleColumn("G", 3, OracleType.RAW, 126, is_hidden=True, is_guard=True)
        added = OracleColumn("N", 4, OracleType.NUMBER, 22, default=b"\xc1\x02", guard=0)
        rich = table(
            columns=(ID, NAME, guard, added),
            supplemental=(ALL,),
            partition_ids=(71,),
            data_object_ids=(70, 90),
            from_scn=7,
        )
        dictionary = Dictionary([table(), rich, table(container=4, namespace="PDB.BANK")])
        save(dictionary, tmp_path / "dictionary.json")
        assert list(load("bank", tmp_path / "dictionary.json")) == list(dictionary)
        assert to_json(from_json("bank", json.loads(json.dumps(to_json(dictionary))))) == to_json(dictionary)

    def test_only_what_is_not_as_usual_is_written(self) -> None:
        assert table_to_json(table())["columns"][0] == {
            "name": "ID", "number": 1, "type": 2, "length": 22, "precision": 9, "scale": 0, "nullable": False
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("raw", "why"),
        [
            ([], "format"),
            ({"format": 2, "tables": []}, "format 2"),
            ({"format": 1, "tables": [{}]}, "table 1: `owner` is missing"),
            ({"format": 1, "tables": [7]}, "table 1: it is not a JSON object"),
            ({"format": 1, "tables": [{"owner": "A", "other": 1}]}, "unknown fields: other"),
        ],
    )
    def test_errors_say_where(self, raw: Any, why: str) -> None:
        with pytest.raises(ConfigError, match=why):
            from_json("bank", raw)

    @pytest.mark.parametrize(
        ("field", "value", "why"),
        [
            ("number", "1", "`number` is '1', where int"),
            ("nullable", 1, "`nullable` is 1, where bool"),
            ("number", True, "`number` is True"),
            ("default", "xyz", "not hexadecimal"),
        ],
    )
    def test_errors_of_a_column(self, field: str, value: Any, why: str) -> None:
        raw = to_json(Dictionary([table()]))
        raw["tables"][0]["columns"][0][field] = value
        with pytest.raises(ConfigError, match=r"table 1 \(BANK\.ACCOUNTS\), column 1") as found:
            from_json("bank", raw)
        assert why in str(found.value)

    def test_errors_of_the_file(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="cannot be read"):
            load("bank", tmp_path / "none.json")
        (tmp_path / "bad.json").write_text("{")
        with pytest.raises(ConfigError, match="not JSON"):
            load("bank", tmp_path / "bad.json")
