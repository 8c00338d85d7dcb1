"""What a table is, read out of the text that the database keeps of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.codec import table as types
from lowwater.errors import LogUnknownError
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.relations import problem
from lowwater_extractor.sources.turso.schema.definitions import CellType, Definition, Definitions, affinity, quoted


def _read(sql: str, name: str = "t", **wanted: CellType) -> Definition:
    return Definitions("s", {f"main.{name}.{column}": kind for column, kind in wanted.items()}).definition(name, sql)


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("INTEGER", "integer"), ("bigint", "integer"), ("UNSIGNED BIG INT", "integer"), ("POINT", "integer"),
        ("VARCHAR(10)", "text"), ("clob", "text"), ("TEXT", "text"), ("BLOB", "blob"), ("F32_BLOB(3)", "blob"),
        ("REAL", "real"), ("double precision", "real"), ("FLOAT", "real"),
        ("NUMERIC", "any"), ("DECIMAL(10,2)", "any"), ("BOOLEAN", "any"), ("DATETIME", "any"), ("ANY", "any"),
        ("", "any"),
    ],
)  # fmt: skip
def test_a_columns_type_follows_its_affinity(declared: str, kind: str) -> None:
    assert affinity(declared) == kind


def test_columns_key_and_rowid_of_a_table() -> None:
    found = _read("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT DEFAULT 'x', b REAL, c, d INT DEFAULT NULL)")
    assert (found.full_name, found.key, found.alias, found.has_rowid) == ("main.t", ("id",), "id", True)
    assert [(cell.name, str(cell.type)) for cell in found.cells] == [
        ("id", "integer"), ("a", "text"), ("b", "real"), ("c", "any"), ("d", "integer"),
    ]  # fmt: skip
    assert [cell.name for cell in found.cells if cell.is_filled] == ["a"]


@pytest.mark.parametrize(
    ("sql", "key", "alias"),
    [
        ("CREATE TABLE t (a TEXT, b INT, PRIMARY KEY (b, a))", ("b", "a"), ""),
        ("CREATE TABLE t (a INT PRIMARY KEY, b)", ("a",), ""),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY DESC, b)", ("a",), ""),
        ("CREATE TABLE t (a INTEGER, b, PRIMARY KEY (a))", ("a",), "a"),
        ("CREATE TABLE t (a, b)", (), ""),
    ],
)
def test_only_a_lone_integer_key_is_the_rowid(sql: str, key: tuple[str, ...], alias: str) -> None:
    found = _read(sql)
    assert (found.key, found.alias) == (key, alias)


def test_generated_columns_are_not_in_records() -> None:
    found = _read("CREATE TABLE t (a INT PRIMARY KEY, v INT GENERATED ALWAYS AS (a + 1), b TEXT)")
    assert [cell.name for cell in found.cells] == ["a", "b"]


def test_the_config_has_the_last_word_on_a_type() -> None:
    found = _read("CREATE TABLE t (a INTEGER PRIMARY KEY, at DATETIME)", at=CellType.TEXT)
    assert found.schema("s").columns[1].type == types.STRING


def test_a_table_without_a_key_is_known_by_its_rowid() -> None:
    schema = _read("CREATE TABLE t (a, b)").schema("s")
    assert ([column.name for column in schema.columns], schema.key) == (["rowid", "a", "b"], ("rowid",))


def test_where_only_keys_are_captured_there_are_no_other_columns() -> None:
    schema = _read("CREATE TABLE t (id INTEGER PRIMARY KEY, b TEXT)").schema("s", keys_only=True)
    assert [column.name for column in schema.columns] == ["id"]


def test_a_text_that_is_none_is_refused() -> None:
    with pytest.raises(LogUnknownError, match="cannot be read"):
        _read("CREATE GARDEN t")


@given(st.text(min_size=1, max_size=20).filter(lambda name: "\x00" not in name and name.isprintable()))
def test_any_name_can_be_quoted(name: str) -> None:
    if name.lower().startswith(("sqlite_", "__turso")):
        return
    found = _read(f"CREATE TABLE {quoted(name)} (a INTEGER PRIMARY KEY, {quoted(name + 'x')} TEXT)", name)
    assert [cell.name for cell in found.cells] == ["a", name + "x"]


@pytest.mark.parametrize(
    ("sql", "settings", "said"),
    [
        ("CREATE TABLE t (a TEXT PRIMARY KEY) WITHOUT ROWID", {}, "WITHOUT ROWID"),
        ("CREATE TABLE t (a, b)", {}, "no primary key"),
        ("CREATE TABLE t (a TEXT PRIMARY KEY)", {"capture": "after"}, "does not contain the key of a deleted row"),
        ("CREATE TABLE t (a TEXT PRIMARY KEY)", {"capture": "id", "copy_tables": False}, "does not contain the key"),
    ],
)
def test_what_cannot_be_captured_is_said_at_the_start(sql: str, settings: dict[str, Any], said: str) -> None:
    found = problem(_read(sql), TursoConfig(path=Path("x.db"), tables=["main.*"], **settings))
    assert found is not None
    assert said in found[0]
    assert found[1]


@pytest.mark.parametrize(
    ("sql", "settings"),
    [
        ("CREATE TABLE t (a, b)", {"without_key": "rowid"}),
        ("CREATE TABLE t (a TEXT PRIMARY KEY)", {}),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY)", {"capture": "after"}),
        ("CREATE TABLE t (a TEXT PRIMARY KEY)", {"mode": "full_refresh", "capture": "after"}),
    ],
)
def test_what_can_be_captured_is_let_be(sql: str, settings: dict[str, Any]) -> None:
    assert problem(_read(sql), TursoConfig(path=Path("x.db"), tables=["main.*"], **settings)) is None


@pytest.mark.parametrize("name", ['we"ird.täble', "quo`te", "it's"])
def test_names_that_the_engine_does_not_quote_itself_are_read(name: str) -> None:
    """A rename gives such a name to a table with AUTOINCREMENT; CREATE with that name is refused."""
    quoted = name.replace('"', '""')
    definitions = Definitions("s", {})
    for _ in range(2):
        sql = f'CREATE TABLE "{quoted}" (id INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT, "(" REAL)'
        found = definitions.definition(name, sql)
        assert (found.name, found.alias, [cell.name for cell in found.cells]) == (name, "id", ["id", "what", "("])
