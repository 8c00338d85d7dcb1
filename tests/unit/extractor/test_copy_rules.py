"""Which tables are copied, and which copies are given up: without a database or Kafka."""

from __future__ import annotations

import pytest

from lowwater.codec.table import INT32, Column, TableSchema
from lowwater.records.positions import Order
from lowwater.records.types import TableCopy
from lowwater_extractor.snapshot.copy_rules import given_up_tables, needs_copy, wanted_tables

AT = Order.mark(5)


class Landed:
    """Whole copies, by their ids."""

    def __init__(self, *whole: str) -> None:
        self._whole = whole

    def poll(self) -> None:
        return None

    def has_all(self, copy: TableCopy) -> bool:
        return copy.copy in self._whole

    def close(self) -> None:
        return None


def table(name: str) -> TableSchema:
    return TableSchema("s", "n", name, 1, (Column("id", INT32),), ("id",))


def copies(**is_copied: bool) -> dict[str, TableCopy]:
    return {f"n.{n}": TableCopy(f"n.{n}", f"copy-{n}", 2, 7, AT, AT, is_copied=i) for n, i in is_copied.items()}


def test_what_is_not_whole_is_copied_anew_or_given_up() -> None:
    known = copies(readable=True, whole=False, part=False, gone_part=False, gone_whole=False, gone_readable=True)
    tables = [table(name) for name in ("new", "readable", "whole", "part")]
    landed = Landed("copy-whole", "copy-gone_whole")
    assert wanted_tables(tables, known, landed) == ["n.new", "n.part"]
    # the view of a copy is gone with its process, and nobody plans this one again
    assert given_up_tables(tables, known, landed) == ["n.gone_part"]


@pytest.mark.parametrize(
    ("old", "new", "filled", "wanted"),
    [
        ({"a": "int"}, {"a": "int", "b": "int"}, set(), False),
        ({"a": "int"}, {"a": "int", "b": "int"}, {"b"}, True),
        ({"a": "int", "b": "int"}, {"a": "int"}, set(), False),
        ({"a": "int"}, {"b": "int"}, set(), True),
        ({"a": "int"}, {"a": "long"}, set(), False),
        ({"a": "int"}, {"a": "string"}, set(), True),
    ],
)
def test_rows_are_copied_anew_where_the_log_does_not_tell_of_them(
    old: dict[str, str], new: dict[str, str], filled: set[str], wanted: bool
) -> None:
    assert needs_copy(old, new, filled) is wanted
