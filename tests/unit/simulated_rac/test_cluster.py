"""The logs of a cluster in real format: their headers, their order, and which records a transaction leaves."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.unit.simulated_rac.walk import Record, block1, records, xor

from lowwater.codec.table import INT64, STRING, Column, TableSchema
from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_devkit.simulated_rac.redo.cells import whole_number
from lowwater_devkit.simulated_rac.redo.log import Form, flagged_scn, plain_scn
from lowwater_devkit.simulated_rac.script import Script
from lowwater_devkit.simulated_rac.workload import BANK, Bank, BankOptions
from lowwater_extractor.sources.oracle.rows.value_writing import encode_number

TABLE = "BANK.ACCOUNTS"
OPEN = b"\xff" * 8


def new_cluster(directory: Path, threads: int = 2, **options: Any) -> Cluster:
    return Cluster(directory, threads, tables=BANK, **options)


def account(number: int, cents: int = 100) -> tuple[int, int, int, int]:
    return number, 1, cents, 5


def log_of(cluster: Cluster, thread: int) -> bytes:
    sequence = cluster.instances[thread].sequence
    return cluster.layout.online(thread, sequence % cluster.groups).read_bytes()


def current(cluster: Cluster, thread: int) -> list[Record]:
    """The records of the log that is being written."""
    instance = cluster.instances[thread]
    return list(records(log_of(cluster, thread), instance.offset // cluster.form.block_bytes))


def opcodes(cluster: Cluster, thread: int) -> list[str]:
    """Of each record that has vectors, except for what the log writer writes by itself."""
    return [
        " ".join(f"{v.layer}.{v.code}" for v in record.vectors())
        for record in current(cluster, thread)
        if record.flags & 1
    ]


# --- logs


def test_headers_of_an_open_and_of_a_closed_log(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, groups=2)
    first = cluster.instances[1].enabled_scn
    txn = cluster.begin(1)
    cluster.insert(txn, TABLE, account(1))
    cluster.commit(txn)
    raw = log_of(cluster, 1)
    head = block1(raw)
    assert (head.thread, head.sequence, head.used) == (1, 1, 0xFFFFFFFF)
    assert (head.first_scn, head.next_scn) == (flagged_scn(Form(), first), OPEN)
    assert raw[512 + 92 : 512 + 156].startswith(f"T 0001, S 0000000001, SCN 0x{first:016x}-0xffffffffffffffff".encode())
    used = cluster.instances[1].offset // 512
    cluster.switch(1)
    archived = cluster.layout.archive(1, 1).read_bytes()
    head = block1(archived)
    assert head.used == used == len(archived) // 512
    assert head.next_scn == flagged_scn(Form(), cluster.scn)
    assert head.lwn_blocks_max == 2
    assert struct.unpack_from("<I", archived, 24) == (used - 1,)
    assert xor(archived[:512]) == xor(archived[512:1024]) == 0
    # the online log says the same, and the next one begins where it ends
    assert cluster.layout.online(1, 1).read_bytes()[512:1024] == archived[512:1024]
    assert block1(log_of(cluster, 1)).first_scn == head.next_scn


def test_a_reused_group_still_has_older_blocks_behind_what_is_written(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1, groups=2)
    txn = cluster.begin(1)
    for number in range(50):
        cluster.insert(txn, TABLE, account(number))
    cluster.flush()
    end = cluster.instances[1].offset
    cluster.switch(1)
    cluster.switch(1)
    cluster.heartbeat()
    raw = log_of(cluster, 1)
    assert cluster.instances[1].offset < end
    assert struct.unpack_from("<II", raw, end - 512 + 4) == (end // 512 - 1, 1)
    assert len(current(cluster, 1)) == 1


def test_a_torn_lwn_does_not_check_until_it_is_written_again(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    txn = cluster.begin(1)
    for number in range(5):
        cluster.insert(txn, TABLE, account(number))
    at = cluster.instances[1].offset
    for keep in (7, 60, 512, 700, 100_000):
        cluster.tear(1, keep)
        raw = log_of(cluster, 1)
        blocks = struct.unpack_from("<I", raw, at + 16 + 28)[0] if keep > 60 else 1
        good = [raw[a] == 1 and not xor(raw[a : a + 512]) for a in range(at, at + blocks * 512, 512)]
        assert not all(good)
    cluster.flush()
    assert len(current(cluster, 1)) == 5


@pytest.mark.parametrize("seed", range(6))
def test_scns_never_fall_and_lwns_keep_their_bounds(tmp_path: Path, seed: int) -> None:
    cluster = Cluster(tmp_path, 2, tables=BANK, log_bytes=8000, lwn_bytes=900, noise=1 + seed % 3)
    script = Script(cluster, seed)
    for _ in range(150):
        script.step()
    script.finish()
    for instance in cluster.instances.values():
        cluster.switch(instance.thread)
        floor = 0
        for sequence in range(1, instance.sequence):
            raw = cluster.layout.archive(instance.thread, sequence).read_bytes()
            head = block1(raw)
            floor = max(floor, struct.unpack("<I4x", head.first_scn)[0])
            floor = _check_bounds(list(records(raw, head.used)), floor)
            assert floor <= struct.unpack("<I4x", head.next_scn)[0]
    cluster.close()


def _check_bounds(those: list[Record], floor: int) -> int:
    lower = upper = 0
    for record in those:
        if record.flags & 4:
            lower, upper = struct.unpack_from("<Q8xQ", record.data, 40)
            assert floor <= lower
            floor = upper
        assert lower <= record.scn() < upper
        list(record.vectors())
    return floor


def test_the_dictionary(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    raw = json.loads(cluster.layout.dictionary.read_bytes())
    tables = {table["table"]: table for table in raw["tables"]}
    assert tables["ACCOUNTS"]["object_id"] == 72726
    assert [column["type"] for column in tables["TRANSFERS"]["columns"]] == [2, 2, 2, 2, 2, 181]
    cluster.add_table(TableSchema("", "BANK", "LATE", 1, (Column("ID", INT64, nullable=False),), ("ID",)))
    late = json.loads(cluster.layout.dictionary.read_bytes())["tables"][-1]
    assert (late["table"], late["from_scn"]) == ("LATE", cluster.scn)
    # what the database changes by itself is not in it
    txn = cluster.begin(1, system=True)
    cluster.insert(txn, TABLE, account(1))
    cluster.commit(txn)
    objects = {int.from_bytes(v.fields[1][:4], "little") for one in current(cluster, 1) for v in one.vectors()
               if (v.layer, v.code) == (5, 1) and len(v.fields) > 2}  # fmt: skip
    assert objects
    assert not objects & {table["object_id"] for table in [*tables.values(), late]}


# --- transactions


def test_the_records_of_a_transaction(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    txn = cluster.begin(1)
    cluster.insert(txn, TABLE, account(1))
    cluster.update(txn, TABLE, account(1), account(1, 200))
    savepoint = cluster.savepoint(txn)
    cluster.delete(txn, TABLE, account(1, 200))
    cluster.rollback_to(txn, savepoint)
    cluster.commit(txn)
    empty = cluster.begin(1)
    cluster.commit(empty)
    again = cluster.begin(1)
    cluster.insert(again, TABLE, account(2))
    cluster.rollback(again)
    assert opcodes(cluster, 1) == [
        "5.2 5.1 11.2 5.19",
        "5.1 11.5",
        "5.1 11.3",
        "11.2 5.6",
        "5.4 24.4",
        "5.2 5.1 11.2 5.20",
        "11.3 5.11",
        "5.4",
    ]
    last = next(current(cluster, 1)[-1].vectors())
    assert last.fields[0][16] == 0x04
    assert cluster.open == {}


def test_many_rows_are_one_change(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    txn = cluster.begin(1)
    rows = [account(number) for number in range(95, 105)]
    cluster.insert_many(txn, TABLE, rows)
    savepoint = cluster.savepoint(txn)
    cluster.delete_many(txn, TABLE, rows[:3])
    with pytest.raises(ValueError, match="inside a statement"):
        cluster.rollback_to(txn, savepoint + 1)
    cluster.rollback_to(txn, savepoint)
    cluster.commit(txn)
    # two blocks of 100 rows
    assert opcodes(cluster, 1)[:4] == ["5.2 5.1 11.11 5.19", "5.1 11.11", "5.1 11.12", "11.11 5.6"]
    assert [change.after for change in cluster.history[0].changes] == rows


def test_rows_in_pieces_and_rows_that_migrate(tmp_path: Path) -> None:
    columns = [Column("ID", INT64, nullable=False), *[Column(f"C{at}", STRING) for at in range(3)]]
    table = TableSchema("", "S", "T", 1, tuple(columns), ("ID",))
    cluster = Cluster(tmp_path, 1, tables=[table], piece_bytes_max=1000, migrate_bytes=500)
    txn = cluster.begin(1)
    long = (1, "a" * 900, "b" * 900, "c" * 900)
    cluster.insert(txn, "S.T", long)
    cluster.update(txn, "S.T", long, (1, "a" * 900, "x" * 900, "c" * 900))
    cluster.delete(txn, "S.T", (1, "a" * 900, "x" * 900, "c" * 900))
    cluster.update(txn, "S.T", (2, "a", "b", "c"), (2, "a" * 600, "b", "c"))
    cluster.update(txn, "S.T", (2, "a" * 600, "b", "c"), (2, "a" * 600, "b", "d"))
    cluster.update(txn, "S.T", (2, "a" * 100, "b", "d"), (2, "a" * 700, "b", "d"))
    cluster.delete(txn, "S.T", (2, "a" * 700, "b", "d"))
    cluster.commit(txn)
    expected = ["11.2"] * 3 + ["11.16", "11.5", "11.16"] + ["11.3"] * 3 + ["11.2", "11.6", "11.5"]
    expected += ["11.2", "11.3", "11.8"] + ["11.3"] * 2
    assert [one.replace("5.2 ", "").split()[1] for one in opcodes(cluster, 1)[:-1]] == expected


@pytest.mark.parametrize(("supplemental", "sizes"), [("all", 7), ("key", 5), ("none", 0)])
def test_supplemental_logging(tmp_path: Path, supplemental: str, sizes: int) -> None:
    cluster = new_cluster(tmp_path, 1, supplemental=supplemental)
    txn = cluster.begin(1)
    cluster.insert(txn, TABLE, account(1))
    cluster.update(txn, TABLE, account(1), account(1, 7))
    cluster.commit(txn)
    undo = next(current(cluster, 1)[1].vectors())
    # two, KTB, KDO, a column list and one column; then the group's head, numbers, lengths, values
    assert len(undo.fields) == 6 + max(0, sizes - 1)


# --- several threads


def test_each_branch_of_an_xa_transaction_has_its_own_xid_and_commit(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    txn = cluster.begin(1, xa=True)
    cluster.insert(txn, TABLE, account(1), thread=1)
    cluster.insert(txn, TABLE, account(2), thread=2)
    scn = cluster.commit(txn)
    for thread in (1, 2):
        assert [one.split()[0] for one in opcodes(cluster, thread)] == ["5.2", "5.12", "5.4"]
        assert current(cluster, thread)[-1].scn() == scn
    assert [(one.thread, one.scn, len(one.changes)) for one in cluster.history] == [(1, scn, 1), (2, scn, 1)]
    assert len({one.xid for one in cluster.history}) == 2


def test_a_prepared_transaction_is_ended_by_another_instance(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    txn = cluster.begin(1, xa=True)
    cluster.insert(txn, TABLE, account(1))
    cluster.prepare(txn)
    cluster.stop(1)
    cluster.recover(1, by=2)
    scn = cluster.commit(txn, thread=2)
    (record,) = [one for one in current(cluster, 2) if one.flags & 1]
    end = next(record.vectors())
    assert (end.layer, end.code, (end.kind - 15) // 2) == (5, 4, txn.xid >> 48)
    assert [(one.xid, one.thread, one.scn) for one in cluster.history] == [(txn.xid, 2, scn)]


def test_what_an_instance_has_left_is_rolled_back_in_the_thread_of_another(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    txn = cluster.begin(1)
    for number in range(3):
        cluster.insert(txn, TABLE, account(number))
    cluster.flush(1)
    # neither this change nor that one going back was ever in the log
    cluster.insert(txn, TABLE, account(9))
    cluster.rollback_to(txn, 2)
    cluster.stop(1)
    cluster.recover(1, by=2)
    assert opcodes(cluster, 2) == ["11.3 5.6", "11.3 5.6", "11.3 5.11", "5.4"]
    usns = {(v.kind - 15) // 2 for one in current(cluster, 2) if one.flags & 1 for v in one.vectors() if v.layer == 5}
    assert usns == {txn.xid >> 48}
    assert cluster.history == []
    assert cluster.open == {}


def test_a_slot_is_not_taken_while_its_transaction_is_open(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1, keep_history=False)
    older = cluster.begin(1)
    cluster.insert(older, TABLE, account(1))
    seen = set()
    for number in range(1100):
        txn = cluster.begin(1)
        cluster.insert(txn, TABLE, account(number))
        seen.add(txn.xid >> 32)
        cluster.commit(txn, flush=False)
    assert older.xid >> 32 not in seen
    assert len(seen) == 511


def test_the_banks_sum_is_right_with_xa_too(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 3)
    bank = Bank(cluster, BankOptions(accounts=50, transactions=60, xa=0.5, rollbacks=0.1, savepoints=0.1))
    for _ in bank.steps():
        pass
    balances: dict[int, int] = {}
    for entry in sorted(cluster.history, key=lambda one: one.scn):
        for change in entry.changes:
            if change.table == TABLE and change.after is not None:
                balances[change.after[0]] = change.after[2]
        if len(balances) == 50:
            assert sum(balances.values()) == bank.total_cents


def test_the_same_seed_gives_the_same_logs(tmp_path: Path) -> None:
    contents = []
    for name in ("first", "second"):
        cluster = new_cluster(tmp_path / name, log_bytes=20_000, noise=2)
        script = Script(cluster, 5)
        for _ in range(120):
            script.step()
        script.finish()
        cluster.close()
        paths = sorted((tmp_path / name).rglob("*.log"))
        contents.append([(path.name, path.read_bytes()) for path in paths])
    assert contents[0] == contents[1]
    assert len(contents[0]) > 8


def test_another_incarnation_begins_anew(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    for _ in range(3):
        cluster.switch(1)
    txn = cluster.begin(1)
    cluster.insert(txn, TABLE, account(1))
    cluster.reset_logs()
    raw = log_of(cluster, 1)
    assert block1(raw).sequence == 1
    assert struct.unpack_from("<I", raw, 512 + 160) == (2,)
    assert cluster.open == {}
    again = cluster.begin(1)
    cluster.insert(again, TABLE, account(1))
    cluster.commit(again)
    assert opcodes(cluster, 1)[0].startswith("5.2 5.1 11.2")


# --- values


def test_whole_numbers_by_the_short_way() -> None:
    numbers = [0, 1, 9, 10, 99, 100, 101, 9999, 10_000, 10_001, 1_000_000, 123_456_789, 10**17, 10**18 - 1, 10**37]
    for number in numbers:
        assert whole_number(number) == encode_number(number)
        assert whole_number(-number) == encode_number(-number)


def test_scns_of_all_sizes() -> None:
    assert plain_scn(Form(), 0x1234_5678_9ABC) == bytes.fromhex("bc9a78563412 0000")
    assert flagged_scn(Form(), 0x1234_5678_9ABC) == bytes.fromhex("bc9a7856 0080 3412")
    assert flagged_scn(Form(), 5 << 48 | 1) == bytes.fromhex("01000000 0580 0000")
    assert flagged_scn(Form(big_endian=True), 1) == bytes.fromhex("00000001 8000 0000")


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="513"):
        Form(block_bytes=513)
    with pytest.raises(ValueError, match="all, key or none"):
        new_cluster(tmp_path, supplemental="some")
