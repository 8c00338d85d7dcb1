"""Checks whether rows of several versions of a table can be combined to one state. Ambiguous cases are errors.

When the key of a table changes, or a column is dropped and added again with the same name, the source copies the table
again and marks it as stale until then. These checks also cover data landed by versions that did not do so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow.compute as pc

from lowwater.codec.table import REST
from lowwater.errors import LakeError
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import File, Layer
from lowwater.lake.schema.columns import lake_table
from lowwater.lake.store.parquet_files import change_batches


@dataclass(frozen=True, slots=True)
class Used:
    """A file and the changes of it that are used: after < gsn ≤ to. Of a copy all rows are used, as the base."""

    file: File
    after: int = -1
    to: int = -1

    @property
    def is_base(self) -> bool:
        return self.to < 0


@dataclass(frozen=True, slots=True)
class _Span:
    """The first and last gsn of the used rows of a version; -1 for a base, which precedes all changes."""

    schema_id: int
    first: int
    last: int


def check_versions(chain: Chain, table: str, gsn: int, used: Sequence[Used]) -> None:
    """Raises LakeError if the versions have different keys, or a column did not exist in between."""
    ids = {one.file.schema_id for one in used}
    if len(ids) < 2:
        return
    versions = {id_: lake_table(chain.versions[id_].avro) for id_ in ids if id_ in chain.versions}
    keys = {frozenset(version.key) for version in versions.values()}
    names = [{column.name for column in version.columns} for version in versions.values()]
    if len(keys) == 1 and all(len(set.union(*names)) == len(own) for own in names):
        return
    spans = [span for one in used if (span := _span(chain, one)) is not None]
    again = _again(chain, table, gsn)
    _check_keys(table, {id_: version.key for id_, version in versions.items()}, spans, again)
    numbers = {id_: version.version for id_, version in versions.items()}
    _check_columns(table, dict(zip(versions, names, strict=True)), numbers, spans, again)


def _span(chain: Chain, one: Used) -> _Span | None:
    """None if no row is used. A merged file may have a wider gsn range than the used rows: then the file is read."""
    file = one.file
    if not file.rows:
        return None
    if one.is_base:
        return _Span(file.schema_id, -1, -1)
    is_stream = file.layer is Layer.STREAM  # the range of a state file is what it covers
    if is_stream and file.gsn_min > one.after and file.gsn_max <= one.to and not file.truncates:
        return _Span(file.schema_id, file.gsn_min, file.gsn_max)
    first, last = None, 0
    for batch in change_batches(chain.store, file, ("_gsn", "_op"), one.after, one.to):
        found = pc.min_max(batch.column("_gsn").filter(pc.not_equal(batch.column("_op"), "t"))).as_py()
        if found["min"] is not None:
            first, last = found["min"] if first is None else min(first, found["min"]), max(last, found["max"])
    return None if first is None else _Span(file.schema_id, first, last)


def _again(chain: Chain, table: str, gsn: int) -> str:
    readable = min((c.gsn for c in chain.copied if table in c.tables and c.gsn > gsn), default=None)
    if readable is not None:
        return f"it can be read from gsn {readable} on, at which a copy of it is readable"
    return "copy the table (`lowwater source copy`): it can be read from there on; its changes can be read as they are"


def _check_keys(table: str, keys: dict[int, tuple[str, ...]], spans: Sequence[_Span], again: str) -> None:
    in_order = sorted(spans, key=lambda span: (span.first, span.last))
    for before, after in pairwise(in_order):
        old, new = keys[before.schema_id], keys[after.schema_id]
        if frozenset(old) != frozenset(new):
            raise LakeError(
                f"{table}: its key was ({', '.join(old) or 'none'}) and is ({', '.join(new) or 'none'}) from gsn "
                f"{after.first} on: rows of both cannot be matched by one key",
                position=f"gsn {after.first}",
                hint=f"ask for a gsn below {after.first}, or: {again}",
            )


def _is_between(span: _Span, has: Sequence[_Span], numbers: dict[int, int]) -> bool:
    """Whether a change of `span` may be after one of `has` and before another.

    Rows of a copy may have a later version than changes after the start of the copy: they are not older than those.
    """
    older = [one for one in has if one.last >= 0 or numbers[one.schema_id] <= numbers[span.schema_id]]
    if not older:
        return False
    first, last = min(one.first for one in older), max(one.last for one in has)
    return max(span.first, first + 1) <= min(span.last, last - 1)


def _check_columns(
    table: str, names: dict[int, set[str]], numbers: dict[int, int], spans: Sequence[_Span], again: str
) -> None:
    """Raises LakeError for a column that was dropped and added again: its old values belong to the dropped column."""
    if any(REST in own for own in names.values()):
        # its columns are derived from documents and never dropped: fields without a column are in REST
        return
    for name in sorted(set.union(*names.values())):
        has = [span for span in spans if name in names[span.schema_id]]
        lacks = [span for span in spans if name not in names[span.schema_id]]
        between = [span for span in lacks if _is_between(span, has, numbers)]
        if between:
            gone = min(span.first for span in between)
            raise LakeError(
                f"{table}: column {name!r} did not exist at gsn {gone} and was added again later: its values in rows "
                "that were not changed since then are unknown",
                position=f"gsn {gone}",
                hint=again,
            )
