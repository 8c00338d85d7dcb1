"""The catalogue is asked in several steps, and tables are altered in between."""

from __future__ import annotations

from typing import Any

import pytest

from lowwater.errors import SourceLostError
from lowwater_extractor.sources.mysql.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.mysql.config import MysqlConfig

Rows = list[tuple[Any, ...]]


def column(name: str, key: str = "") -> tuple[Any, ...]:
    return ("d", "t", name, "int", "int", None, 10, 0, None, None, None, "", "NO", key)


class Asked(DatabaseCatalogue):
    """Answers one look after the other: tables, columns and keys as they were when each was asked."""

    def __init__(self, *looks: tuple[Rows, Rows]) -> None:
        super().__init__(MysqlConfig(host="h", user="u", tables=["d.*"]), "s")
        self.looks = list(looks)
        self.left = list(looks)

    def ask(self, text: str, *values: object) -> Rows:
        columns, keys = self.left[0] if self.left else self.looks[-1]
        if "information_schema.COLUMNS" in text:
            return columns
        if "information_schema.STATISTICS" in text:
            return keys
        self.left = self.left[1:]
        return [("d", "t", "BASE TABLE")]


def test_a_table_made_between_two_answers_is_looked_at_again() -> None:
    """`DROP TABLE IF EXISTS child` was read just as the table was made: no columns yet, and then a key."""
    catalogue = Asked(([], [("d", "t", "id")]), ([column("id", "PRI"), column("n")], [("d", "t", "id")]))
    found = catalogue.find("d", "t")
    assert found is not None
    assert found.key == ("id",)
    assert [wire.name for wire in found.map.columns] == ["id", "n"]


def test_a_key_that_changes_between_two_answers_is_not_that_of_the_old_columns() -> None:
    old, new = [column("a", "PRI"), column("b")], [column("a"), column("b", "PRI")]
    catalogue = Asked((old, [("d", "t", "b")]), (new, [("d", "t", "b")]))
    found = catalogue.find("d", "t")
    assert found is not None
    assert found.key == ("b",)


def test_a_unique_index_is_no_primary_key() -> None:
    """`COLUMN_KEY` calls it one where there is no other."""
    catalogue = Asked(([column("a", "PRI")], []))
    found = catalogue.find("d", "t")
    assert found is not None
    assert found.key == ()


def test_a_table_that_is_gone_before_its_columns_are_asked_is_not_there() -> None:
    assert Asked(([], [])).find("d", "t") is None


def test_a_table_that_is_altered_all_the_time_is_tried_again_later() -> None:
    looks: list[tuple[Rows, Rows]] = [([column(f"c{n}", "PRI")], []) for n in range(40)]
    with pytest.raises(SourceLostError, match=r"d\.t was altered while its definition was read"):
        Asked(*looks).find("d", "t")
