"""What is kept of a table, and what a difference to it means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowwater.errors import CodecError
from lowwater_extractor.sources.postgres.catalogue_watch.table_facts import (
    ColumnFacts,
    KnownTable,
    PartFacts,
    TableFacts,
    TypeFacts,
    known_of,
    what_changed,
)


def plain(*names: str) -> dict[int, ColumnFacts]:
    return {attnum: ColumnFacts(name, False) for attnum, name in enumerate(names, 1)}


TABLE = TableFacts("public.t", 16_500, 16_500, 17_000, (1,), plain("id", "n", "note"), 3, 77)
PARTED = replace(TABLE, parts=(PartFacts(1, "7-false-1", True), PartFacts(2, "8-false-2", True)))
MOOD = TypeFacts({10: "sad", 12: "ok"})


def test_what_is_kept_reads_as_it_was_written() -> None:
    known = known_of(replace(PARTED, types={5: MOOD, 6: TypeFacts(shape="1:23:-1")}), None)
    assert KnownTable.unpack(known.pack()) == known


def test_what_cannot_be_read_is_refused() -> None:
    for data in (b"", b"[]", b'[1,2,3,4,5,"xyz","",{}]', b"{}"):
        with pytest.raises(CodecError, match="cannot be read"):
            KnownTable.unpack(data)


def test_the_same_table_has_not_changed() -> None:
    for facts in (TABLE, PARTED, replace(TABLE, types={5: MOOD})):
        assert what_changed(known_of(facts, None), facts) == ""


def test_another_file_alone_is_no_change_and_with_other_columns_it_is() -> None:
    known = known_of(TABLE, None)
    assert what_changed(known, replace(TABLE, filenode=9)) == ""
    assert what_changed(known, replace(TABLE, columns_version=9)) == ""
    assert "rewritten" in what_changed(known, replace(TABLE, filenode=9, columns_version=9))


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (replace(TABLE, oid=9), "another table"),
        (replace(TABLE, published=9), "publication"),
        (replace(TABLE, key=(1, 2)), "key"),
        (replace(TABLE, columns=plain("id", "m", "note")), "column m had another name"),
        (replace(TABLE, columns={**TABLE.columns, 4: ColumnFacts("c", True)}, columns_ever=4), "added with values"),
        (
            replace(TABLE, columns={1: TABLE.columns[1], 3: TABLE.columns[3], 4: TABLE.columns[2]}, columns_ever=4),
            "column n was dropped and added again",
        ),
    ],
)
def test_a_change_is_named(facts: TableFacts, why: str) -> None:
    assert why in what_changed(known_of(TABLE, None), facts)


def test_a_column_that_was_dropped_long_ago_is_known_when_it_comes_again() -> None:
    without = replace(TABLE, columns={1: TABLE.columns[1], 3: TABLE.columns[3]})
    known = known_of(without, known_of(TABLE, None))
    assert what_changed(known, without) == ""
    known = known_of(without, KnownTable.unpack(known.pack()))
    again = replace(without, columns={**without.columns, 4: ColumnFacts("n", False)}, columns_ever=4)
    assert "dropped and added again" in what_changed(known, again)
    other = replace(without, columns={**without.columns, 4: ColumnFacts("m", False)}, columns_ever=4)
    assert what_changed(known, other) == ""
    # of another table under this name nothing is known
    assert known_of(replace(other, oid=9), known).columns[1] == 0


def test_partitions_that_are_made_are_no_change_and_all_others_are() -> None:
    known = known_of(PARTED, None)
    one, two = PARTED.parts
    made, attached = PartFacts(3, "9-false-3", True), PartFacts(3, "9-false-3", False)
    assert what_changed(known, replace(PARTED, parts=(one, two, made))) == ""
    assert "attached" in what_changed(known, replace(PARTED, parts=(one, two, attached)))
    assert "detached" in what_changed(known, replace(PARTED, parts=(one, made)))
    assert "truncated" in what_changed(known, replace(PARTED, parts=(one, replace(two, version="8-false-99"))))


def test_labels_that_are_added_are_no_change_and_renamed_ones_are() -> None:
    known = known_of(replace(TABLE, types={5: MOOD, 6: TypeFacts(shape="1:23:-1")}), None)
    more = {5: TypeFacts({**MOOD.labels, 14: "glad"}), 6: TypeFacts(shape="1:23:-1")}
    assert what_changed(known, replace(TABLE, types=more)) == ""
    assert what_changed(known, replace(TABLE, types={})) == "", "the columns of these types are gone"
    assert "type" in what_changed(known, replace(TABLE, types={5: TypeFacts({10: "sad", 12: "fine"})}))
    assert "type" in what_changed(known, replace(TABLE, types={6: TypeFacts(shape="1:23:-1,2:25:-1")}))
