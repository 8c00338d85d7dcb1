"""Chunks that a plan names land once, in Spark, and become readable with their `Copied`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.copying.conftest import NewCopiedGroup
from tests.support.copied_group import CopiedGroup

from lowwater.lake import Lake
from lowwater.lake.chain.manifest import ATTEMPTS, Layer, ManifestKind
from lowwater.lake.read.state_plan import all_files
from lowwater.lake.read.verify import verify
from lowwater.runtime.times import now_us
from lowwater_spark.maintenance.compact import compact
from lowwater_spark.maintenance.retention import retain
from lowwater_spark.maintenance.state_policy import StatePolicy
from lowwater_spark.maintenance.sweep import sweep

ROWS = 5_000
_ACCOUNTS = f"""
CREATE TABLE accounts (id int8 PRIMARY KEY, name text, balance numeric(12,2));
INSERT INTO accounts SELECT n, 'account ' || n, n * 1.5 FROM generate_series(1, {ROWS}) n;
ANALYZE accounts
"""


def state(group: CopiedGroup, table: str, gsn: int | None = None) -> dict[int, str]:
    lake = Lake.open(group.lake)
    at = lake.at() if gsn is None else lake.at(gsn)
    return {row["id"]: row["name"] for row in at.state(table).rows()}


def change(group: CopiedGroup, op: str, id_: int, name: str) -> None:
    table = group.table("public.accounts").table
    row: Any = (id_, name, 0)
    with group.topic as topic:
        topic.transaction((table, op, row if op == "d" else None, None if op == "d" else row))


def test_copied_rows_are_overlaid_by_the_changes_above_their_position(new_copied_group: NewCopiedGroup) -> None:
    group = new_copied_group()
    group.database.execute(_ACCOUNTS)
    # in the log before the copy was planned: the copy knows better
    change(group, "u", 1, "of an older time")
    chunks = group.plan("public.accounts", "c1", 1_000)
    assert len(chunks) == 5
    change(group, "u", 2, "changed")
    change(group, "d", 3, "")
    change(group, "c", ROWS + 1, "new")
    group.land()
    assert sorted(group.landed_chunks()) == [("c1", n) for n in range(1, 6)]
    assert group.mirrored_chunks() == [(f"{group.name}.public.accounts", "c1", n) for n in range(1, 6)]
    wanted = {n: f"account {n}" for n in range(1, ROWS + 1)} | {2: "changed", ROWS + 1: "new"}
    del wanted[3]
    readable = group.copied("c1")
    group.land()
    assert state(group, "accounts") == state(group, "accounts", readable) == wanted
    change(group, "u", 4, "later")
    group.land()
    assert state(group, "accounts") == wanted | {4: "later"}
    assert state(group, "accounts", readable) == wanted
    # nothing is copied again, whoever comes
    assert len(group.manifests(ManifestKind.COPY)) == 1
    assert not [d for d in verify(group.chain().store) if not d.rubbish]


def test_a_copy_before_the_first_landing_and_an_empty_table(new_copied_group: NewCopiedGroup) -> None:
    group = new_copied_group()
    group.database.execute("CREATE TABLE accounts (id int8 PRIMARY KEY, name text)")
    group.plan("public.accounts", "c1", 1_000)
    service = group.land()
    assert service._copies.status["state"] == "idle"
    [manifest] = group.manifests(ManifestKind.COPY)
    assert [(file.rows, file.chunk, file.layer) for file in manifest.files] == [(0, 1, Layer.COPY)]
    group.copied("c1")
    group.land()
    assert state(group, "accounts") == {}


def test_a_gone_snapshot_waits_for_the_plan_that_replaces_it(new_copied_group: NewCopiedGroup) -> None:
    group = new_copied_group()
    group.database.execute(_ACCOUNTS)
    group.database.execute(
        "CREATE TABLE other AS SELECT 1::int8 AS id, 'x' AS name; ALTER TABLE other ADD PRIMARY KEY (id)"
    )
    group.plan("public.accounts", "c1", 1_000)
    group.lose_snapshots()
    group.plan("public.other", "o1", 1_000)
    service = group.land()
    # the other table does not wait with it
    assert group.landed_chunks() == [("o1", 1)]
    status = service._copies.status
    assert (status["state"], status["chunks_left"], status["waiting_for_a_plan"]) == ("waiting", 5, 1)
    assert "new plan" in status["tables"][0]["waiting"]
    group.plan("public.accounts", "c2", 2_000, replaces="c1")
    service = group.land()
    assert service._copies.status["state"] == "idle"
    assert group.chain().closed_copies == {"c1"}
    group.copied("c2")
    group.land()
    assert len(state(group, "accounts")) == ROWS


def _grace_over(group: CopiedGroup) -> int:
    """Files that are removed once the grace is over; nothing is before."""
    lake = group.settings.group(group.name).lake
    assert lake is not None
    assert sweep(group.chain(), lake, now_us()).files == 0
    return sweep(group.chain(), lake, now_us() + 2 * 3600 * 10**6).files


def copies_left(group: CopiedGroup) -> set[str]:
    return {file.copy_id for file in all_files(group.chain(), f"{group.name}.public.accounts", Layer.COPY)}


def test_a_copy_that_is_replaced_half_way_is_closed_and_its_files_go(new_copied_group: NewCopiedGroup) -> None:
    group = new_copied_group()
    group.database.execute(_ACCOUNTS)
    group.plan("public.accounts", "c1", 1_000, cannot_read=(3,))
    group.land()
    assert sorted(group.landed_chunks()) == [("c1", n) for n in (1, 2, 4, 5)]
    group.plan("public.accounts", "c2", 5_000, replaces="c1")
    group.land()
    assert group.chain().closed_copies == {"c1"}
    assert copies_left(group) == {"c2"}
    assert _grace_over(group) == 4
    group.copied("c2")
    group.land()
    assert len(state(group, "accounts")) == ROWS
    assert not list(group.chain().store.list(ATTEMPTS))


def test_a_whole_copy_that_is_replaced_stays_until_the_next_one_is_readable(new_copied_group: NewCopiedGroup) -> None:
    group = new_copied_group()
    group.database.execute(_ACCOUNTS)
    group.plan("public.accounts", "c1", 1_000)
    group.land()
    # its Copied is on the way while the next copy is planned
    group.plan("public.accounts", "c2", 5_000, replaces="c1")
    group.land()
    first = group.copied("c1")
    group.land()
    assert copies_left(group) == {"c1", "c2"}
    change(group, "d", 1, "")
    # this one is never readable: the next takes its place before
    group.plan("public.accounts", "c3", 5_000, replaces="c2")
    group.land()
    assert copies_left(group) == {"c1", "c2", "c3"}
    last = group.copied("c3")
    group.land()
    group.land()
    assert group.chain().closed_copies == {"c2"}
    assert copies_left(group) == {"c1", "c3"}
    assert _grace_over(group) == 1
    assert len(state(group, "accounts", first)) == ROWS
    assert len(state(group, "accounts", last)) == ROWS


def test_a_state_that_is_folded_holds_the_copied_rows(new_copied_group: NewCopiedGroup) -> None:
    group = new_copied_group()
    group.database.execute(_ACCOUNTS)
    change(group, "u", 1, "of an older time")
    group.plan("public.accounts", "c1", 1_000)
    change(group, "u", 2, "changed")
    change(group, "d", 3, "")
    group.land()
    lake = group.settings.group(group.name).lake
    assert lake is not None
    # before the copy is readable: what is folded now must not hide what the copy will bring
    policy = StatePolicy(share=0.0, rows_min=1)
    compact(None, group.chain(), lake, policy=policy)
    readable = group.copied("c1")
    change(group, "u", 4, "later")
    group.land()
    wanted = state(group, "accounts")
    assert len(wanted) == ROWS - 1
    assert (wanted[1], wanted[2], wanted[4]) == ("account 1", "changed", "later")
    compact(None, group.chain(), lake, policy=policy)
    folded = all_files(group.chain(), f"{group.name}.public.accounts", Layer.STATE)
    assert max(file.gsn_max for file in folded) > readable
    assert copies_left(group) == {"c1"}
    assert state(group, "accounts") == wanted
    assert state(group, "accounts", readable) == wanted | {4: "account 4"}
    # retention: the state is all that is left, and nothing is copied again
    retain(None, group.chain(), lake, group.chain().head.gsn, now_us(), policy, overdue_gsn=group.chain().head.gsn)
    assert copies_left(group) == set()
    assert state(group, "accounts") == wanted
    group.land()
    assert len(group.manifests(ManifestKind.COPY)) == 1


@pytest.mark.parametrize("mask", ["null", "redact", "hash"])
def test_columns_are_hidden_before_they_are_copied(new_copied_group: NewCopiedGroup, tmp_path: Path, mask: str) -> None:
    (tmp_path / "hash_key").write_text("secret")
    columns = {
        "drop": ["public.accounts.balance"],
        "mask": {"public.accounts.name": mask},
        "hash_key": f"${{file:{tmp_path}/hash_key}}",
    }
    group = new_copied_group(columns=columns)
    group.database.execute(_ACCOUNTS)
    group.plan("public.accounts", "c1", 10_000)
    group.land()
    group.copied("c1")
    group.land()
    found = Lake.open(group.lake).at().state("accounts").arrow().sort_by("id")
    assert found.equals(group.table("public.accounts").streamed("id"))
    assert found.schema.names == ["id", "name"]
