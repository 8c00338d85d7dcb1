"""Converts a time to a gsn: the last one such that no transaction at or below it committed after that time.

The landing is found by the clocks of the sources, which never decrease and are never far ahead; the position within
the landing by the commit times of its rows. So a wrong commit time affects only results within its own landing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lowwater.errors import LakeError
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import File, Layer, Manifest, ManifestKind
from lowwater.lake.store.parquet_files import first_gsn_later_than

AsOf = int | str | datetime
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_us(when: str | datetime) -> int:
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when)
        except ValueError as error:
            raise LakeError(
                f"{when!r} is neither a gsn nor a time", hint="times are like 2026-03-01T12:00:00Z"
            ) from error
    if when.tzinfo is None:
        raise LakeError(f"{when.isoformat()} has no time zone", hint="add Z, or an offset such as +02:00")
    return (when - _EPOCH) // timedelta(microseconds=1)


def resolve(chain: Chain, as_of: AsOf | None) -> int:
    """The gsn of `as_of`, by default the last one. Raises LakeError if it has not landed or is below the history."""
    head = chain.head
    if as_of is None:
        return head.gsn
    if isinstance(as_of, str) and as_of.isdecimal():
        as_of = int(as_of)
    gsn = as_of if isinstance(as_of, int) else _gsn_at(chain, time_us(as_of))
    if gsn > head.gsn:
        raise LakeError(f"gsn {gsn} has not landed: the lake is at gsn {head.gsn}", hint="wait for it, then `refresh`")
    if gsn < 0 or gsn < head.history_from:
        raise LakeError(
            f"{as_of} is below the lake's history, which begins at gsn {head.history_from}",
            hint=f"ask for gsn {head.history_from} or above; older history was folded by `retention_hours`",
        )
    return gsn


def _gsn_at(chain: Chain, us: int) -> int:
    first_later = chain.first_after(us)
    if first_later is None:
        return chain.head.gsn
    landing = chain.manifest(first_later)
    if landing.kind is ManifestKind.BEGIN:
        return landing.gsn - 1  # the lake has no data of that time
    before = landing.from_gsn if landing.from_gsn is not None else landing.gsn
    if landing.kind is not ManifestKind.LAND or before < chain.head.history_from:
        return before
    first = first_gsn_later_than(chain.store, _files_of(chain, landing), before, landing.gsn, us)
    # by its clock the last transaction is later, independent of its commit time
    return landing.gsn - 1 if first is None else min(first, landing.gsn) - 1


def _files_of(chain: Chain, landing: Manifest) -> list[File]:
    """The stream files of a landing; if they were merged since, the files that have its changes now."""
    own = [file for file in landing.files if file.layer is Layer.STREAM]
    if all(chain.is_live(file) for file in own):
        return own
    found = (file for table in chain.tables() for file in chain.files(table, landing.from_gsn or 0, landing.gsn))
    return [file for file in found if file.layer is Layer.STREAM]
