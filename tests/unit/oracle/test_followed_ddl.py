"""DDL in redo, end to end: what is published, which tables are named stale, and from which order on."""

from __future__ import annotations

import struct
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.kit import Encoders
from tests.unit.oracle.test_followed import SimulatedLive
from tests.unit.simulated_rac.test_kit import TABLE, account, new_cluster

from lowwater_devkit.simulated_rac.layout import Layout
from lowwater_devkit.simulated_rac.view import SimulatedView
from lowwater_extractor.api import Polled, StaleTable
from lowwater_extractor.snapshot.stale_notes import StaleTables
from lowwater_extractor.sources.oracle.capture import CapturedObjects, redo_stream
from lowwater_extractor.sources.oracle.dictionary.live_dictionary import FollowedDictionary
from lowwater_extractor.sources.oracle.rows.changes import FrameMaker
from lowwater_extractor.sources.oracle.stream import RedoOptions, RedoStream
from lowwater_extractor.sources.oracle.types import OracleColumn, OracleType

OTHER = "BANK.TRANSFERS"


class Followed:
    """A simulated cluster whose dictionary is asked as a live one is."""

    def __init__(self, directory: Path, threads: int = 1, without: str = "") -> None:
        self.cluster = new_cluster(directory, threads)
        self.directory = directory
        self.live = SimulatedLive(owners=["BANK"])
        self.live.tables = {v.full_name: v for v in self.view().dictionary().last()}
        self.live.names = {v.object_id: v.full_name for v in self.live.tables.values()}
        self.notes: dict[str, bytes] = {}
        self.encoders = Encoders()
        known = [version for name, version in self.live.tables.items() if name != without]
        self.stream = self.open(FollowedDictionary(known, self.live, 1 << 31))
        self.resumes: dict[int, bytes] = {}
        self.poll()

    def view(self) -> SimulatedView:
        return SimulatedView("rac", Layout(self.directory))

    def open(self, dictionary: FollowedDictionary, resumes: dict[int, bytes] | None = None) -> RedoStream:
        maker = FrameMaker("rac", dictionary, self.encoders, dictionary)
        stale = StaleTables("rac", self.notes)
        return redo_stream(
            "rac", self.view(), maker, CapturedObjects(dictionary), resumes or {}, {}, RedoOptions(),
            notes=dictionary.notes, stale=stale,
        )  # fmt: skip

    def poll(self) -> Polled:
        polled = self.stream.poll(frozenset())
        self.notes |= polled.notes
        self.resumes = {number: mark.resume for number, mark in polled.marks.items()}
        return polled

    def ddl(self, text: str, table: str = TABLE) -> None:
        transaction = self.cluster.begin(1)
        self.cluster.ddl(transaction, table, text)
        self.cluster.commit(transaction)

    def rename(self, old: str, new: str) -> None:
        _, _, table = new.partition(".")
        version = self.live.tables.pop(old)
        renamed = replace(version, table=table)
        self.live.tables[new], self.live.names[version.object_id] = renamed, new

    def read(self) -> tuple[list[tuple[str, str]], dict[str, StaleTable]]:
        """(op, table) of what is published, and what is stale."""
        self.cluster.heartbeat()
        polled = self.poll()
        found = []
        for transaction in polled.transactions:
            for number, frame in enumerate(transaction.changes, 1):
                change: Any = self.encoders.decode(frame, number)
                found.append((change.op, change.table))
        return found, dict(polled.stale)


@pytest.mark.parametrize("text", ["TRUNCATE/* nightly */TABLE bank.accounts", "drop table bank.accounts purge"])
def test_statement_that_leaves_no_rows_is_published_as_truncate(tmp_path: Path, text: str) -> None:
    made = Followed(tmp_path)
    if text.startswith("drop"):
        del made.live.tables[TABLE]
    made.ddl(text)
    assert made.read() == ([("t", TABLE)], {})


@pytest.mark.parametrize(
    "clause", ["TRUNCATE PARTITION p", "/**/ drop subpartition s", "exchange partition p with table x"]
)
def test_partition_statement_names_the_table_stale_at_its_commit(tmp_path: Path, clause: str) -> None:
    made = Followed(tmp_path)
    made.ddl(f"alter table bank.accounts {clause}")
    changes, stale = made.read()
    assert changes == []
    assert set(stale) == {TABLE}
    assert stale[TABLE].order.major <= made.cluster.scn
    # named by every poll, and after a restart
    assert made.poll().stale == stale
    assert StaleTables("rac", made.notes).found == stale


def test_statement_that_is_rolled_back_changes_nothing(tmp_path: Path) -> None:
    made = Followed(tmp_path)
    transaction = made.cluster.begin(1)
    made.cluster.ddl(transaction, TABLE, "alter table bank.accounts drop partition p")
    made.cluster.rollback(transaction)
    assert made.read() == ([], {})
    assert made.live.asked == []


def test_renamed_table_leaves_its_name_empty_and_makes_the_new_one_stale(tmp_path: Path) -> None:
    made = Followed(tmp_path)
    made.rename(TABLE, "BANK.OLD")
    made.ddl("rename accounts to old")
    transaction = made.cluster.begin(1)
    made.cluster.insert(transaction, TABLE, row_of(TABLE))
    made.cluster.commit(transaction)
    changes, stale = made.read()
    assert changes == [("t", TABLE), ("c", "BANK.OLD")]
    assert set(stale) == {"BANK.OLD"}


def test_table_renamed_to_a_name_that_is_not_captured_is_not_published(tmp_path: Path) -> None:
    made = Followed(tmp_path)
    del made.live.tables[TABLE]
    made.ddl("alter table bank.accounts rename to zzz")
    transaction = made.cluster.begin(1)
    made.cluster.insert(transaction, TABLE, row_of(TABLE))
    made.cluster.commit(transaction)
    assert made.read() == ([("t", TABLE)], {})


def test_table_that_joins_by_its_new_name_is_stale_until_what_was_open_has_ended(tmp_path: Path) -> None:
    """Its object was not captured: rows of it in a thread that is read further, or before, were passed over."""
    made = Followed(tmp_path, threads=2, without=OTHER)
    cluster = made.cluster
    opened = cluster.begin(2)
    cluster.insert(opened, OTHER, row_of(OTHER))
    assert made.read() == ([], {})
    made.ddl("rename stage to transfers", OTHER)
    changes, stale = made.read()
    assert (changes, set(stale)) == ([], {OTHER})
    after = cluster.begin(1)
    cluster.insert(after, OTHER, row_of(OTHER))
    cluster.commit(after)
    assert made.read()[0] == [("c", OTHER)]
    cluster.commit(opened)
    later = made.read()[1]
    assert later[OTHER] > stale[OTHER]
    assert later[OTHER].order.major <= cluster.scn


def row_of(table: str, number: int = 1) -> tuple[Any, ...]:
    return account(number) if table == TABLE else (number, 1, 2, 3, Decimal("1.0"), 4)


def load(made: Followed, data_object: int, opcode: tuple[int, int] = (19, 1)) -> None:
    cluster = made.cluster
    scn = cluster.advance()
    body = struct.pack("<I", data_object) + bytes(36)
    head = struct.pack(
        "<BBHHHI8sBBHHHHH", *opcode, 1, 24, data_object >> 16, 7, bytes(8), 1, 0, data_object & 0xFFFF, 3, 0, 0, 0
    )
    vector = head + struct.pack("<HH", 4, len(body)) + body
    cluster.instances[1].record(scn, None, cluster._vectors.record(scn, vector))
    cluster.instances[1].flush(cluster.now_us())
    cluster.write_control()


@pytest.mark.parametrize("opcode", [(19, 1), (19, 2), (19, 4)])
def test_direct_load_makes_its_table_stale_until_what_was_open_has_committed(
    tmp_path: Path, opcode: tuple[int, int]
) -> None:
    made = Followed(tmp_path)
    transaction = made.cluster.begin(1)
    made.cluster.insert(transaction, OTHER, row_of(OTHER))
    made.cluster.instances[1].flush(made.cluster.now_us())
    load(made, made.live.tables[TABLE].object_id, opcode)
    first = made.read()[1]
    assert set(first) == {TABLE}
    made.cluster.commit(transaction)
    changes, second = made.read()
    assert changes == [("c", OTHER)]
    assert second[TABLE] > first[TABLE]
    later = made.cluster.begin(1)
    made.cluster.insert(later, OTHER, row_of(OTHER, 2))
    made.cluster.commit(later)
    assert made.read()[1] == second


def test_direct_load_into_a_truncated_table_is_found_by_its_new_data_object(tmp_path: Path) -> None:
    made = Followed(tmp_path)
    young, building = (1 << 31) + 5, (1 << 31) + 6
    made.live.data[young] = TABLE
    load(made, building)
    load(made, building)
    assert made.read()[1] == {}
    assert [asked for asked in made.live.asked if asked[0] == "data"][1:] == []
    load(made, young)
    assert set(made.read()[1]) == {TABLE}


def test_altered_table_is_seen_in_its_new_version_before_a_change_comes(tmp_path: Path) -> None:
    """A column with a default has a value in rows that are never written: its copy must be compared."""
    made = Followed(tmp_path)
    transaction = made.cluster.begin(1)
    made.cluster.insert(transaction, TABLE, row_of(TABLE))
    made.cluster.commit(transaction)
    old = made.live.tables[TABLE]
    added = OracleColumn("ADDED", len(old.stored) + 1, OracleType.NUMBER, 22, 9, 0, default=bytes([0xC1, 2]))
    made.live.tables[TABLE] = replace(old, columns=(*old.columns, added))
    made.ddl("alter table bank.accounts add (added number(9) default 1 not null)")
    # the insert from before is framed behind it
    assert made.read() == ([("c", TABLE)], {})
    assert made.stream.seen[TABLE].columns[-1].name == "ADDED"
