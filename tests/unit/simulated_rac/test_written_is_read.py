"""Random workloads, written as real redo and read by the reader of real redo, give the cluster's own history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.simulated_rac.shop import TABLES, Shop

from lowwater.codec.table import ColumnKind
from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_devkit.simulated_rac.redo.log import Form
from lowwater_devkit.simulated_rac.script import Script
from lowwater_devkit.simulated_rac.workload import BANK
from lowwater_extractor.sources.oracle.dictionary.dictionary import Dictionary
from lowwater_extractor.sources.oracle.dictionary.file import from_json
from lowwater_extractor.sources.oracle.redo import codes
from lowwater_extractor.sources.oracle.redo.events import Captured, Event
from lowwater_extractor.sources.oracle.redo.file_header import Identity
from lowwater_extractor.sources.oracle.redo.files import LogDirectories
from lowwater_extractor.sources.oracle.redo.layout import Place
from lowwater_extractor.sources.oracle.redo.reader import LogEnd, ThreadReader
from lowwater_extractor.sources.oracle.rows.row_changes import Joiner
from lowwater_extractor.sources.oracle.rows.row_decoder import TableRows

XID = (1 << 64) - 1


def _dictionary(directory: Path) -> Dictionary:
    return from_json("rac", json.loads((directory / "dictionary.json").read_bytes()))


def _events(directory: Path, thread: int, dictionary: Dictionary) -> Iterator[tuple[int, int, Event]]:
    """(SCN, thread, event) of a whole thread."""
    control = json.loads((directory / "control.json").read_bytes())
    identity = Identity(control["database"], control["resetlogs"])
    files = LogDirectories("rac", identity, [directory / "online"], [directory / "archive"])
    captured = Captured.of((table.container, table.object_id) for table in dictionary)
    reader = ThreadReader("rac", thread, identity, files, captured, Place(1, 0), slice_max=1 << 16)
    floor = 0
    while (found := reader.next()) is not None:
        if isinstance(found, LogEnd):
            assert found.next_scn >= floor
            floor = max(floor, found.next_scn)
            continue
        assert found.scn >= floor, "an LWN below the upper bound of the one before"
        floor = found.upper
        for event in found.events:
            assert found.scn <= event[0] < found.upper
            yield event[0], thread, event
    reader.close()


Change = tuple[str, str, tuple[Any, ...] | None, tuple[Any, ...] | None]
Found = tuple[int, int, int, int, bool, list[Change]]


def read_all(cluster: Cluster) -> list[Found]:
    """Committed transactions that have changes: xid, thread, SCN, seconds, system, changes."""
    directory = cluster.layout.root
    dictionary = _dictionary(directory)
    tables = {version.object_id: (version.full_name, TableRows(version)) for version in dictionary}
    every = [event for thread in cluster.instances for event in _events(directory, thread, dictionary)]
    # what follows in another thread has a higher SCN, and in a thread SCNs do not fall
    every.sort(key=lambda event: event[0])
    rows: dict[int, list[bytes]] = {}
    flags: dict[int, int] = {}
    found: list[Found] = []
    for scn, thread, (_, whole, code, _, data) in every:
        xid, operation = whole & XID, code & codes.OPERATION
        if code & codes.ROW:
            rows[xid].append(data)
        elif operation == codes.BEGIN:
            assert xid not in rows, "begins twice"
            rows[xid], flags[xid] = [], code & codes.ARGUMENT
        elif operation == codes.UNDO:
            # the slot alone: whoever is open in it
            (owner,) = [each for each in rows if each >> 32 == xid >> 32]
            assert rows[owner], "undo without a change"
            _check_undone(rows[owner].pop(), data)
        elif operation in (codes.COMMIT, codes.ROLLBACK):
            changes = [_change(tables, one) for one in _joined(rows.pop(xid))]
            if operation == codes.ROLLBACK:
                assert not changes, "a rollback that leaves changes"
            elif changes:
                found.append((xid, thread, scn, int.from_bytes(data[:4], "little"), bool(flags[xid]), changes))
        else:
            assert operation in (codes.PREPARE, codes.DDL)
    assert not rows, "transactions without an end"
    return found


def _check_undone(row: bytes, undo: bytes) -> None:
    assert row[:4] == undo[:4], "undo of another object"


def _joined(rows: list[bytes]) -> Iterator[Any]:
    joiner = Joiner()
    for row in rows:
        yield from joiner.add(row)
    joiner.end()


def _change(tables: dict[int, tuple[str, TableRows]], change: Any) -> Change:
    name, rows = tables[change.object_id]
    before, after, unchanged = rows.values(change)
    assert not unchanged
    return change.op, name, _natural(rows, before), _natural(rows, after)


def _natural(rows: TableRows, values: list[Any] | None) -> tuple[Any, ...] | None:
    """Texts come as UTF-8."""
    if values is None:
        return None
    kinds = [column.type.kind for column in rows.version.schema.columns]
    return tuple(
        value.decode() if kind is ColumnKind.STRING and isinstance(value, bytes) else value
        for kind, value in zip(kinds, values, strict=True)
    )


def check(cluster: Cluster) -> None:
    found = sorted(read_all(cluster), key=lambda one: one[:3])
    captured = [entry for entry in cluster.history if not entry.system]
    wanted = sorted(captured, key=lambda one: (one.xid, one.thread, one.scn))
    heads = [(one.xid, one.thread, one.scn, one.time_us // 1_000_000, one.system) for one in wanted]
    assert [one[:5] for one in found] == heads
    for ours, theirs in zip(found, wanted, strict=True):
        assert [change[:2] for change in ours[5]] == [change[:2] for change in theirs.changes], theirs.txid
        for one, other in zip(ours[5], theirs.changes, strict=True):
            assert one == tuple(other)


FORMS = [Form(), Form(block_bytes=1024), Form(block_bytes=4096), Form(big_endian=True)]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.block_bytes}{'big' if form.big_endian else ''}")
@pytest.mark.parametrize("seed", range(3))
def test_rows_of_all_shapes(tmp_path: Path, seed: int, form: Form) -> None:
    cluster = Cluster(
        tmp_path,
        2,
        tables=TABLES,
        form=form,
        log_bytes=400_000,
        lwn_bytes=[2000, 60_000, 1 << 18][seed],
        migrate_bytes=[0, 100, 30][seed],
        noise=[0, 2, 5][seed],
    )
    shop = Shop(cluster, seed)
    for _ in range(40):
        shop.step()
    shop.finish()
    cluster.close()
    assert len(cluster.history) > 5
    check(cluster)


@pytest.mark.parametrize("seed", range(30))
def test_everything_that_a_cluster_can_go_through(tmp_path: Path, seed: int) -> None:
    cluster = Cluster(
        tmp_path,
        1 + seed % 3,
        tables=BANK,
        groups=2 + seed % 2,
        log_bytes=[1500, 4000, 20_000][seed % 3],
        lwn_bytes=[300, 1000, 100_000][seed // 3 % 3],
        noise=seed % 4,
    )
    script = Script(cluster, seed)
    for _ in range(200):
        script.step()
    script.finish()
    cluster.close()
    check(cluster)
