"""A lake that begins later than its group: with a copy of all tables at the present gsn, and nothing from before."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.copying.conftest import NewCopiedGroup
from tests.integration.copying.test_tables_are_copied import change, state
from tests.support.copied_group import CopiedGroup

from lowwater.control import commands as words
from lowwater.control.fold import ControlFold
from lowwater.errors import LakeError, StaleTableError
from lowwater.kafka import topics
from lowwater.kafka.client import client_settings
from lowwater.kafka.consumer import read_to_end
from lowwater.lake import Lake
from lowwater.lake.chain.manifest import ALL_TABLES, ManifestKind
from lowwater.lake.read.verify import verify
from lowwater.lake.store.base import open_lake_store
from lowwater.records.types import Control, CopyRequest

_TABLE = """
CREATE TABLE accounts (id int8 PRIMARY KEY, name text, balance numeric(12,2));
INSERT INTO accounts SELECT n, 'account ' || n, n * 1.5 FROM generate_series(1, 50) n;
ANALYZE accounts
"""
ROWS = {n: f"account {n}" for n in range(1, 51)}


def _requests(group: CopiedGroup) -> tuple[CopyRequest, ...]:
    fold = ControlFold()
    for message in read_to_end(group.settings.kafka, topics.CONTROL)[0]:
        fold.apply(group.topic.codec.decode(message.value() or b"", Control))
    return fold.get(words.SOURCE, group.name).control.copies


def _forget(group: CopiedGroup) -> None:
    """As the topic's retention does it: all that is there now."""
    topic = topics.transactions(group.name)
    _, end = read_to_end(group.settings.kafka, topic)
    client = AdminClient(client_settings(group.settings.kafka))
    for future in client.delete_records([TopicPartition(topic, 0, end)]).values():
        future.result()


def _first_lake(group: CopiedGroup) -> None:
    group.database.execute(_TABLE)
    group.plan("public.accounts", "c1", 20)
    change(group, "u", 2, "changed")
    group.land()
    group.copied("c1")
    group.land()
    assert state(group, "accounts") == ROWS | {2: "changed"}


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_new_lake_begins_with_a_copy_at_the_present_gsn(
    new_copied_group: NewCopiedGroup, tmp_path: Path, is_forgotten: bool
) -> None:
    group = new_copied_group()
    _first_lake(group)
    # planned for the lake before: it becomes readable, and nothing of it is in the new one
    group.plan("public.accounts", "c2", 20, replaces="c1")
    begins = group.topic.gsn
    if is_forgotten:
        change(group, "u", 9, "later")
        begins += 1
        _forget(group)
        change(group, "u", 9, "later")
    group.use_lake(tmp_path / "second")
    group.land()
    group.copied("c2")
    change(group, "u", 3, "changed, too")
    group.land()
    begun = group.chain().manifest(1)
    assert begun.kind is ManifestKind.BEGIN
    assert (begun.gsn, begun.history_from) == (group.topic.gsn - 2, group.topic.gsn - 2)
    assert begun.gsn >= begins
    [request] = _requests(group)
    assert (request.table, request.request) == (ALL_TABLES, begun.attempt)
    lake = Lake.open(group.lake)
    assert not lake.chain.copied
    with pytest.raises(StaleTableError, match=f"the lake begins at gsn {begun.gsn}"):
        lake.state("accounts")
    with pytest.raises(LakeError, match="is below the lake's history"):
        lake.at("2020-01-01T00:00:00Z")
    assert [info.stale.gsn for info in lake.tables() if info.stale] == [begun.gsn]
    # what the extractor does when it is asked
    group.database.execute("UPDATE accounts SET name = 'changed, too' WHERE id = 3")
    group.plan("public.accounts", "c3", 20, replaces="c2")
    group.land()
    assert ("c3", 1) in {(copy, chunk) for _, copy, chunk in group.mirrored_chunks()}
    readable = group.copied("c3")
    change(group, "d", 1, "")
    group.land()
    wanted = ROWS | {3: "changed, too"}
    assert state(group, "accounts", readable) == wanted
    del wanted[1]
    assert state(group, "accounts") == wanted
    assert len(_requests(group)) == 1
    config = group.settings.group(group.name).lake
    assert config is not None
    assert [found.what for found in verify(open_lake_store(config)) if not found.rubbish] == []


@pytest.mark.parametrize("point", ["begin.files_written", "begin.manifest_created", "begin.copies_asked"])
def test_killed_while_a_new_lake_begins_it_begins_once_and_asks_once(
    new_copied_group: NewCopiedGroup, tmp_path: Path, point: str
) -> None:
    group = new_copied_group()
    _first_lake(group)
    group.use_lake(tmp_path / "second")
    service = group.start(LOWWATER_FAIL_AT=point)
    service.wait(120)
    group.land()
    begun = [manifest for manifest in group.chain().log() if manifest.kind is ManifestKind.BEGIN]
    assert [manifest.n for manifest in begun] == [1]
    assert [request.request for request in _requests(group)] == [begun[0].attempt]
