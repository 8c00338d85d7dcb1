"""A dictionary that follows the database: DDL, what is younger than it, and what a restart remembers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from lowwater.errors import LogUnknownError, StartRefusedError
from lowwater_extractor.sources.oracle.altered_tables import Followed
from lowwater_extractor.sources.oracle.ddl import parse
from lowwater_extractor.sources.oracle.dictionary.dictionary import TableVersion
from lowwater_extractor.sources.oracle.dictionary.live_dictionary import FollowedDictionary
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.types import OracleColumn, OracleType

NEWEST = 500


def table(columns: int, scn: int = 0, partitions: tuple[int, ...] = (), number: int = 100) -> TableVersion:
    found = tuple(OracleColumn(f"C{n}", n, OracleType.NUMBER, 22) for n in range(1, columns + 1))
    return TableVersion("s", "BANK", f"T{number}", number, found, 3, Scn(scn), partition_ids=partitions)


@dataclass
class SimulatedLive:
    """What the database would answer, and what it was asked."""

    tables: dict[str, TableVersion] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    asked: list[tuple[object, ...]] = field(default_factory=list)
    owners: Sequence[str] = ("BANK",)
    data: dict[int, str] = field(default_factory=dict)
    scn: int = 50

    def wants(self, owner: str, table: str) -> bool:
        return owner == "BANK" and table != "ZZZ"

    def read(self, scn: int, only: str = "") -> list[TableVersion]:
        self.asked.append(("read", scn, only))
        return [self.tables[only].since(Scn(scn))] if only in self.tables else []

    def name_of(self, object_id: int, scn: int) -> str | None:
        self.asked.append(("name", scn, object_id))
        return self.names.get(object_id)

    def name_of_data(self, data_object: int, scn: int) -> str | None:
        self.asked.append(("data", scn, data_object))
        return self.data.get(data_object)

    def identities(self) -> tuple[int, dict[str, int]]:
        return self.scn, {name: version.object_id for name, version in self.tables.items()}

    def newest_object(self) -> int:
        return NEWEST


def followed(live: SimulatedLive, *versions: TableVersion) -> FollowedDictionary:
    return FollowedDictionary(versions, live, NEWEST)


def columns(dictionary: FollowedDictionary, scn: int, number: int = 100) -> int:
    return len(dictionary.span(3, number, Scn(scn))[0].columns)


def after(dictionary: FollowedDictionary, text: str, number: int = 100, scn: int = 50) -> Followed:
    statement = parse(text)
    assert statement is not None
    return dictionary.after(3, number, statement, Scn(scn))


def test_after_ddl_the_table_is_read_as_of_its_commit_and_holds_above_it() -> None:
    live = SimulatedLive({"BANK.T100": table(3)})
    dictionary = followed(live, table(2))
    found = after(dictionary, "alter table bank.t100 add (c3 number)")
    assert (found.stale, found.joined, [len(v.columns) for v in found.versions]) == ({}, set(), [3])
    assert live.asked == [("read", 50, "BANK.T100")]
    assert (columns(dictionary, 51), columns(dictionary, 50)) == (3, 2)


def test_rows_that_partitions_took_along_make_the_table_stale() -> None:
    live = SimulatedLive({"BANK.T100": table(2), "BANK.T101": table(2, number=101)})
    dictionary = followed(live, table(2), table(2, number=101))
    found = after(dictionary, "alter table t100 exchange partition p with table t101")
    assert found.stale == dict.fromkeys(["BANK.T100", "BANK.T101"], "ALTER TABLE … EXCHANGE PARTITION")


def test_name_with_another_object_is_stale_and_the_old_object_is_foreign() -> None:
    """DROP and CREATE, a swap of names, an online redefinition: whatever the statement says."""
    new = replace(table(2, number=90), table="T100")
    live = SimulatedLive({"BANK.T100": new})
    dictionary = followed(live, table(2))
    revision = dictionary.revision
    found = after(dictionary, "alter table bank.t100 parallel 2")
    assert "another object" in found.stale["BANK.T100"]
    # its object is older than the dictionary, and was not captured
    assert found.joined == {"BANK.T100"}
    assert dictionary.revision > revision
    assert not dictionary.is_foreign(3, 100, Scn(50))
    assert dictionary.is_foreign(3, 100, Scn(51))
    again = FollowedDictionary.remembered("s", dictionary.notes(), live)
    assert again.is_foreign(3, 100, Scn(51))
    assert again.find(3, 90, Scn(51)) is not None


def test_renamed_table_takes_its_object_along() -> None:
    renamed = replace(table(2), table="NEW")
    live = SimulatedLive({"BANK.NEW": renamed})
    dictionary = followed(live, table(2))
    found = after(dictionary, "rename t100 to new")
    assert found.stale == {"BANK.NEW": "RENAME: the name belongs to another object, with other rows"}
    assert dictionary.span(3, 100, Scn(50))[0].table == "T100"
    assert dictionary.span(3, 100, Scn(51))[0].table == "NEW"
    assert not dictionary.is_foreign(3, 100, Scn(51))
    # renamed to a name that is not captured
    live.tables.clear()
    assert after(dictionary, "rename new to zzz", scn=70).stale == {}
    assert dictionary.is_foreign(3, 100, Scn(71))


def test_table_that_is_renamed_into_a_captured_name_joins_and_is_stale() -> None:
    joins = replace(table(2, number=77), table="T100")
    live = SimulatedLive({"BANK.T100": joins})
    found = after(followed(live), "alter table bank.stage rename to t100", number=77)
    assert set(found.stale) == found.joined == {"BANK.T100"}


def test_column_that_is_dropped_and_added_again_makes_the_table_stale() -> None:
    before = table(3)
    columns_ = (before.columns[0], before.columns[2], replace(before.columns[1], number=4))
    hidden = replace(before.columns[1], name="SYS_C2", is_hidden=True)
    now = replace(before, columns=(*columns_, hidden))
    live = SimulatedLive({"BANK.T100": now})
    found = after(followed(live, before), "alter table t100 add (c2 number)")
    assert "added again: C2" in found.stale["BANK.T100"]


def test_table_that_a_cascade_may_have_emptied_is_stale() -> None:
    live = SimulatedLive({"BANK.T100": table(2), "BANK.T101": table(2, number=101)})
    dictionary = followed(live, table(2), table(2, number=101))
    assert set(after(dictionary, "truncate table bank.t100 cascade").stale) == {"BANK.T100", "BANK.T101"}
    # what is there as before is as before
    assert after(dictionary, "drop tablespace x including contents", number=0, scn=55).stale == {}
    assert after(dictionary, "truncate cluster c", number=0, scn=56).stale == {}
    live.tables.clear()
    assert set(after(dictionary, "drop user bank cascade", number=0, scn=60).stale) == {"BANK.T100", "BANK.T101"}


def test_object_of_another_table_is_asked_for_again_after_its_ddl() -> None:
    live = SimulatedLive()
    dictionary = followed(live)
    assert dictionary.is_foreign(3, 600, Scn(40))
    live.tables["BANK.T600"], live.names[600] = table(2, number=600), "BANK.T600"
    after(dictionary, "rename interim to t600", number=600)
    assert not dictionary.is_foreign(3, 600, Scn(60))


def test_table_that_joins_later_is_checked() -> None:
    def refuse(version: TableVersion) -> None:
        raise StartRefusedError(version.full_name)

    live = SimulatedLive({"BANK.T502": table(1, number=502)}, {502: "BANK.T502"})
    dictionary = FollowedDictionary([table(2)], live, NEWEST, refuse)
    with pytest.raises(StartRefusedError, match="T502"):
        dictionary.is_foreign(3, 502, Scn(60))


def test_a_restart_remembers_versions() -> None:
    live = SimulatedLive({"BANK.T100": table(3), "BANK.T101": table(5, number=101)})
    dictionary = followed(live, table(2), table(4, number=101))
    notes = dictionary.notes()
    assert dictionary.notes() == {}
    after(dictionary, "alter table t100 add (c3 number)")
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
    assert not dictionary.is_foreign(3, 501, Scn(60))
    assert dictionary.span(3, 501, Scn(60))[0].table == "T100"
    assert dictionary.notes()


def test_a_new_table_is_captured_and_a_strange_one_is_passed_over() -> None:
    live = SimulatedLive({"BANK.T502": table(1, number=502)}, {502: "BANK.T502"})
    dictionary = followed(live, table(2))
    assert not dictionary.is_foreign(3, 502, Scn(60))
    assert columns(dictionary, 60, 502) == 1
    assert dictionary.is_foreign(3, 503, Scn(60))
    assert dictionary.is_foreign(3, 503, Scn(61))
    assert live.asked.count(("name", 60, 503)) == 1
    assert ("name", 61, 503) not in live.asked


def test_an_old_object_that_nobody_knows_is_an_error() -> None:
    dictionary = followed(SimulatedLive(), table(2))
    assert not dictionary.is_foreign(3, 99, Scn(60))
    with pytest.raises(LogUnknownError, match="object 99"):
        dictionary.span(3, 99, Scn(60))


def test_name_that_got_another_object_without_ddl_in_the_log_is_found_and_stale() -> None:
    live = SimulatedLive({"BANK.T100": replace(table(2, number=90), table="T100")}, scn=50)
    dictionary = followed(live, table(2))
    assert dictionary.verify(Scn(40)) is None
    # the database was asked at SCN 50: not before that was read
    assert dictionary.verify(Scn(49)) is None
    found = dictionary.verify(Scn(50))
    assert found is not None
    assert found.stale == {"BANK.T100": "a statement that was not found in the log"}
    assert found.joined == {"BANK.T100"}
    assert dictionary.is_foreign(3, 100, Scn(51))
    assert dictionary.verify(Scn(60)) is None
    assert dictionary.verify(Scn(60)) is None


def test_name_whose_ddl_is_still_to_be_read_is_not_taken_for_lost() -> None:
    new = replace(table(2, number=600), table="T100")
    live = SimulatedLive({"BANK.T100": new}, {600: "BANK.T100"}, scn=50)
    dictionary = followed(live, table(2))
    assert dictionary.verify(Scn(40)) is None
    after(dictionary, "rename stage to t100", number=600, scn=45)
    assert dictionary.verify(Scn(50)) is None
