"""A dictionary that follows the database: DDL, what is younger than it, and what a restart remembers."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from lowwater.errors import LogUnknownError
from lowwater_extractor.sources.oracle.columns import OracleColumn, OracleType
from lowwater_extractor.sources.oracle.dictionary import TableVersion
from lowwater_extractor.sources.oracle.followed import FollowedDictionary

NEWEST = 500


def table(columns: int, scn: int = 0, partitions: tuple[int, ...] = (), number: int = 100) -> TableVersion:
    found = tuple(OracleColumn(f"C{n}", n, OracleType.NUMBER, 22) for n in range(1, columns + 1))
    return TableVersion("s", "BANK", f"T{number}", number, found, 3, scn, partition_ids=partitions)


@dataclass
class SimulatedLive:
    """What the database would answer, and what it was asked."""

    tables: dict[str, TableVersion] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    asked: list[tuple[object, ...]] = field(default_factory=list)

    def read(self, scn: int, only: str = "") -> list[TableVersion]:
        self.asked.append(("read", scn, only))
        return [self.tables[only].since(scn)] if only in self.tables else []

    def name_of(self, object_id: int, scn: int) -> str | None:
        self.asked.append(("name", scn, object_id))
        return self.names.get(object_id)

    def newest_object(self) -> int:
        return NEWEST


def followed(live: SimulatedLive, *versions: TableVersion) -> FollowedDictionary:
    return FollowedDictionary(versions, live, NEWEST)


def columns(dictionary: FollowedDictionary, scn: int, number: int = 100) -> int:
    return len(dictionary.span(3, number, scn)[0].columns)


def test_after_ddl_the_table_is_read_as_of_the_next_change() -> None:
    live = SimulatedLive({"BANK.T100": table(3)})
    dictionary = followed(live, table(2))
    dictionary.altered(3, 100, scn=50)
    assert columns(dictionary, 40) == 2
    assert live.asked == []
    assert columns(dictionary, 60) == 3
    assert live.asked == [("read", 60, "BANK.T100")]
    # from the DDL on, not from the change; and what is older stays as it was
    assert (columns(dictionary, 51), columns(dictionary, 50)) == (3, 2)
    assert live.asked == [("read", 60, "BANK.T100")]


def test_a_restart_remembers_versions_and_ddl_that_nobody_has_followed_yet() -> None:
    live = SimulatedLive({"BANK.T100": table(3), "BANK.T101": table(5, number=101)})
    dictionary = followed(live, table(2), table(4, number=101))
    notes = dictionary.notes()
    assert dictionary.notes() == {}
    dictionary.altered(3, 100, scn=50)
    notes |= dictionary.notes()
    again = FollowedDictionary.remembered("s", notes, live)
    assert again.newest == NEWEST
    assert (columns(again, 40), columns(again, 60), columns(again, 60, 101)) == (2, 3, 4)
    notes |= again.notes()
    later = FollowedDictionary.remembered("s", notes, live)
    live.asked.clear()
    assert (columns(later, 40), columns(later, 70)) == (2, 3)
    assert live.asked == []


def test_a_partition_that_is_younger_than_the_dictionary_is_its_tables() -> None:
    live = SimulatedLive({"BANK.T100": table(2, partitions=(501,))}, {501: "BANK.T100"})
    dictionary = followed(live, table(2))
    assert not dictionary.is_foreign(3, 501, 60)
    assert dictionary.span(3, 501, 60)[0].table == "T100"
    assert dictionary.notes()


def test_a_new_table_is_captured_and_a_strange_one_is_passed_over() -> None:
    live = SimulatedLive({"BANK.T502": table(1, number=502)}, {502: "BANK.T502"})
    dictionary = followed(live, table(2))
    assert not dictionary.is_foreign(3, 502, 60)
    assert columns(dictionary, 60, 502) == 1
    assert dictionary.is_foreign(3, 503, 60)
    assert dictionary.is_foreign(3, 503, 61)
    assert live.asked.count(("name", 60, 503)) == 1
    assert ("name", 61, 503) not in live.asked


def test_an_old_object_that_nobody_knows_is_an_error() -> None:
    dictionary = followed(SimulatedLive(), table(2))
    assert not dictionary.is_foreign(3, 99, 60)
    with pytest.raises(LogUnknownError, match="object 99"):
        dictionary.span(3, 99, 60)
