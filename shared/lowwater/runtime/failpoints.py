"""Named points in the code at which tests kill the process, as `kill -9` does.

`LOWWATER_FAIL_AT=name` kills at the first pass, `name:3` at the third; `LOWWATER_STOP_AT` stops the process there
(SIGSTOP) until it receives SIGCONT. Without these variables `fail_point` is an empty function.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

#: every fail point and the state at that point; the failure tests iterate over this table
FAIL_POINTS: dict[str, str] = {
    "extractor.after_init": "fenced the predecessor, position not yet read",
    "extractor.batch_produced": "changes and commits produced, no mark, no position",
    "extractor.marks_produced": "marks produced, position not yet",
    "extractor.position_produced": "position produced, Kafka transaction not yet committed",
    "extractor.committed": "Kafka transaction committed, source not yet acknowledged",
    "extractor.acknowledged": "source acknowledged",
    "extractor.prefix_committed": "a part of an oversized transaction committed",
    "extractor.abandon_produced": "Abandon produced, not committed",
    "extractor.chunks_produced": "a copy's chunks produced, not committed",
    "extractor.copied_produced": "Copied produced, not committed",
    "incremental.looked": "the next cursors of a sync are known, not yet in the position",
    "incremental.prepared": "the next cursors are durable, no row read",
    "incremental.some_rows": "some rows of a sync read, none published",
    "incremental.rows_read": "all rows of a sync read, none published",
    "incremental.moved": "a sync and its cursors are durable",
    "turso.file_named": "the identity of the file is stored in it, nothing was read yet",
    "turso.some_pruned": "some of the changes that are durable in Kafka are deleted from the file, others not yet",
    "turso.pruned": "all changes that are durable in Kafka are deleted from the file",
    "merger.after_init": "fenced the predecessor, progress not yet read",
    "merger.released": "released records produced, no progress",
    "merger.progress_produced": "progress produced, Kafka transaction not yet committed",
    "merger.committed": "Kafka transaction committed",
    "merger.before_delete": "progress committed, old changes not yet deleted",
    "merger.after_delete": "old changes deleted",
    "lake.checkpoint_parts": "the parts of a checkpoint of the chain written, the checkpoint itself not yet",
    "lake.checkpoint_written": "a checkpoint of the chain written, nothing names it yet",
    "begin.files_written": "a new lake for an existing group: nothing of it is written",
    "begin.manifest_created": "the first manifest of a new lake is created, no copies were requested yet",
    "begin.copies_asked": "copies of all tables of a source were requested, for a new lake",
    "land.after_init": "fenced the predecessor, manifests not yet read",
    "land.prepared": "Prepared is in the ledger topic, no file yet",
    "land.before_files": "in a task: rows written, no file in the store yet",
    "land.some_files": "in a task: its files are in the store, those of other tasks need not be",
    "land.files_written": "all files are in the store, no manifest",
    "land.manifest_created": "the manifest is created, the store's response not yet read",
    "land.landed_produced": "Landed produced, Kafka transaction not yet committed",
    "land.mirrored": "Landed and the consumer group's offsets committed",
    "compact.attempt_noted": "a compaction has stored which files it will merge, no file yet",
    "compact.files_written": "all files of a compaction are in the store, no manifest",
    "compact.manifest_created": "a compaction's manifest is created, the store's response not yet read",
    "copy.prepared": "a copy's chunks are stored and Prepared is in the ledger topic, no file yet",
    "copy.some_files": "in a task: a chunk's files are in the store, those of other chunks need not be",
    "copy.files_written": "all files of a copy's attempt are in the store, no manifest",
    "copy.manifest_created": "a copy's manifest is created, the store's response not yet read",
    "copy.landed_produced": "a copy's Landed produced, Kafka transaction not yet committed",
    "copy.mirrored": "a copy's Landed is committed to the ledger topic",
    "control.before_write": "the API accepted an operator's command and has written nothing",
    "control.written": "the command is in the control topic, neither read back nor answered",
    "control.position_changed": "a source's position was changed or deleted, the request is not answered",
    "sweep.some_deleted": "some of the unused files are deleted, others not yet",
}


def _signal_at(variable: str, wanted: str, number: int) -> Callable[[str], None]:
    name, _, nth = wanted.partition(":")
    if name not in FAIL_POINTS:
        raise ValueError(f"{variable}={wanted}: no such fail point; known: {', '.join(FAIL_POINTS)}")
    left = int(nth or 1)

    def check(here: str) -> None:
        nonlocal left
        if here == name:
            left -= 1
            if left == 0:
                # a Spark task runs in a process of its own: the application (LOWWATER_FAIL_PID) is killed, too,
                # and first, because this process cannot do it after its own end
                for pid in dict.fromkeys((int(os.environ.get("LOWWATER_FAIL_PID", os.getpid())), os.getpid())):
                    os.kill(pid, number)
                # another thread may receive the signal: this one must not continue meanwhile
                time.sleep(0.5)

    return check


def _nothing(_here: str) -> None:
    return None


def _chosen() -> Callable[[str], None]:
    for variable, number in (("LOWWATER_FAIL_AT", signal.SIGKILL), ("LOWWATER_STOP_AT", signal.SIGSTOP)):
        if os.environ.get(variable):
            return _signal_at(variable, os.environ[variable], number)
    return _nothing


fail_point: Callable[[str], None] = _chosen()
