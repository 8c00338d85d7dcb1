"""Oracle's redo: scanned beside reading it and checking its checksums alone."""

from __future__ import annotations

import os
import time
from decimal import Decimal
from pathlib import Path

import numpy as np

from bench import extractor
from bench.common import Bench, Result, peak_mb, wait_until
from lowwater.runtime.service import collect_rarely
from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_devkit.simulated_rac.layout import Layout
from lowwater_devkit.simulated_rac.view import SimulatedView
from lowwater_devkit.simulated_rac.workload import BANK
from lowwater_extractor.sources.oracle.redo.blocks import Bytes, find_bad
from lowwater_extractor.sources.oracle.redo.events import Captured, Lwn
from lowwater_extractor.sources.oracle.redo.file_header import HEADER_BYTES, LogHeader, unpack_header
from lowwater_extractor.sources.oracle.redo.layout import Place
from lowwater_extractor.sources.oracle.redo.reader import ThreadReader

#: as much as the service reads at once of one thread
_SLICE = 4 << 20
_ACCOUNTS, _TRANSFERS = (table.full_name for table in BANK)
_AT, _RATE = 1_700_000_000_000_000, Decimal("1.0000")


def scan(bench: Bench) -> None:
    """One log, of which one change in a hundred, or every one, is of a captured table."""
    changes = int(400_000 * bench.scale)
    bench.say(f"writing {changes:,} changes as redo")
    # as the extractor does
    collect_rarely()
    directory = bench.directory / "redo"
    _write(directory, changes)
    view = SimulatedView("bench", Layout(directory))
    path = view.files.find_online(1, 1)
    assert path is not None
    objects = {v.full_name: (v.container, v.object_id) for v in view.dictionary()}
    # the file is as large as the log may become: what counts is what was written
    buffer = np.zeros(_SLICE, np.uint8)
    size = _check(path, buffer)[0] / 1e6
    raw = size / min(_check(path, buffer)[1] for _ in range(9))
    for name, captured, goal in (
        ("1 % captured", [objects[_ACCOUNTS]], "ratio ≥ 0.3"),
        ("all captured", list(objects.values()), "ratio ≥ 0.05"),
    ):
        events, rate = max((_scan(view, Captured.of(captured)) for _ in range(9)), key=lambda each: each[1])
        note = f"({events:,} events in {size:.0f} MB)"
        bench.add(Result(f"redo scanned, {name}", rate, "MB/s", raw, goal, note=note))


def memory(bench: Bench) -> None:
    """One large transaction through the extractor, in which others commit while it is open."""
    changes = int(1_000_000 * bench.scale)
    cluster = Cluster(bench.directory / "large", threads=1, tables=BANK, log_bytes=64 << 20, keep_history=False)
    _, service = extractor.capturing(bench, "large")
    bench.say(f"one transaction of {changes:,} changes")
    large = cluster.begin(1)
    for number in range(changes):
        cluster.insert(large, _TRANSFERS, (number, 1, 2, number, _RATE, _AT))
        if number % 10_000 == 0:
            small = cluster.begin(1)
            cluster.insert(small, _ACCOUNTS, (number, 1, 100_000, _AT))
            cluster.commit(small)
    last = cluster.commit(large)
    cluster.heartbeat()
    cluster.close()
    wait_until(lambda: extractor.is_published(service, last), 900, "the transaction")
    assert service.process is not None
    peak = peak_mb(service.process.pid)
    service.stop()
    name = f"redo: extractor's memory, one transaction of {changes / 1e6:g} M changes"
    bench.add(Result(name, peak, "MB", goal="< 300 MB", peak_mb=peak))


def _write(directory: Path, changes: int) -> None:
    cluster = Cluster(directory, threads=1, tables=BANK, log_bytes=4 << 30, keep_history=False, noise=3)
    for start in range(0, changes, 10):
        transaction = cluster.begin(1)
        for number in range(start, start + 10):
            if number % 100 == 0:
                cluster.insert(transaction, _ACCOUNTS, (number, 1, 100_000, _AT))
            else:
                cluster.insert(transaction, _TRANSFERS, (number, 1, 2, number, _RATE, _AT))
        cluster.commit(transaction, flush=start % 1000 == 0)
    cluster.heartbeat()
    cluster.close()


def _check(path: Path, buffer: Bytes) -> tuple[int, float]:
    """Bytes that were written, and seconds to read the log and to check every block."""
    started = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        head = unpack_header(file.read(HEADER_BYTES) or b"")
        assert isinstance(head, LogHeader)
        block = head.form.block_size
        at = head.first_offset
        while got := os.preadv(file.fileno(), [buffer.data], at) // block * block:
            bad = find_bad(buffer[:got].reshape(-1, block), at // block, head.sequence, head.form)
            at += got if bad is None else bad.good * block
            if bad is not None:
                break
    return at, time.perf_counter() - started


def _scan(view: SimulatedView, captured: Captured) -> tuple[int, float]:
    """Events, and MB a second behind the first slice: for that one a reader, which lives on, gets its memory."""
    reader = ThreadReader("bench", 1, view.identity, view.files, captured, Place(1, 0), slice_max=_SLICE)
    found = reader.next()
    events, first = len(found.events) if isinstance(found, Lwn) else 0, reader.offset
    started = time.perf_counter()
    while (found := reader.next()) is not None:
        if isinstance(found, Lwn):
            events += len(found.events)
    seconds = time.perf_counter() - started
    reader.close()
    return events, (reader.offset - first) / 1e6 / seconds
