"""Selects the small files to merge. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import File, Layer
from lowwater.lake.read.state_plan import all_files
from lowwater_spark.maintenance.merge_task import MergeItem

#: a file below this share of the target size is small
SMALL_SHARE = 0.5
#: limit of the files that are folded together, in memory
FOLD_BYTES_MAX = 48 << 20


def plan_merges(chain: Chain, table: str, file_bytes: int, fold_to: int = 0) -> list[MergeItem]:
    """The merges of a table. `fold_to`: files that end at or below this gsn are folded as they are merged."""
    streams = sorted(all_files(chain, table, Layer.STREAM), key=lambda f: (f.gsn_min, f.gsn_max, f.path))
    folded = [f for f in streams if f.gsn_max <= fold_to and f.key]
    items = []
    for files in groups(folded, min(file_bytes, FOLD_BYTES_MAX)):
        # a change of another version in between would have to be folded with them
        items.append(MergeItem(chain.versions[files[0].schema_id].avro, files, folds=_is_alone(files, streams)))
    taken = {file.path for item in items for file in item.files}
    plain = [f for f in streams if f.path not in taken]
    items += [MergeItem(chain.versions[g[0].schema_id].avro, g) for g in groups(plain, file_bytes)]
    return items


def groups(files: Sequence[File], file_bytes: int) -> Iterator[tuple[File, ...]]:
    """Groups files, given in the order of gsn: neighbours of one version that together give about one file."""
    group: list[File] = []
    for file in files:
        is_small = file.bytes < SMALL_SHARE * file_bytes
        if group and (not is_small or file.schema_id != group[0].schema_id or _bytes(group) >= file_bytes):
            yield from _worth(group)
            group = []
        if is_small:
            group.append(file)
    yield from _worth(group)


def _worth(group: list[File]) -> Iterator[tuple[File, ...]]:
    """Drops a file larger than all later files of the group together, so that each row is rewritten only rarely."""
    while len(group) > 1 and group[0].bytes > _bytes(group[1:]):
        group = group[1:]
    if len(group) > 1:
        yield tuple(group)


def _bytes(files: Sequence[File]) -> int:
    return sum(file.bytes for file in files)


def _is_alone(files: Sequence[File], all_: Sequence[File]) -> bool:
    low, high = min(f.gsn_min for f in files), max(f.gsn_max for f in files)
    paths = {file.path for file in files}
    return all(f.path in paths or f.gsn_max < low or f.gsn_min > high for f in all_)
