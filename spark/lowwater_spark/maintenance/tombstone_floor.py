"""The gsn up to which a state may leave out deletes.

A copy's rows are overlaid with the changes committed after the copy began to read. So a delete must be retained as
long as a copy that began before it may become readable. A copy is visible in the chain once its first chunk has landed;
before that, the lake's grace period covers it. A state's `gsn_min` is the first gsn from which on it has all deletes,
so that a reader can refuse a copy from before it.
"""

from __future__ import annotations

from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import Layer
from lowwater.lake.read.state_plan import all_files
from lowwater.lake.store.parquet_files import last_gsn_at_or_below
from lowwater.records.positions import U64_MAX


def gsn_before(chain: Chain, time_us: int) -> int:
    """The gsn that had landed at that time."""
    last = chain.first_where(lambda manifest: manifest.at_us > time_us) - 1
    return chain.manifest(last).gsn if last else 0


def forget_to(chain: Chain, table: str, gsn: int, grace_gsn: int) -> int:
    """The gsn up to which the state at `gsn` leaves out deletes; always below `gsn`."""
    files = all_files(chain, table, Layer.STREAM, Layer.STATE)
    floors = [last_gsn_at_or_below(chain.store, files, *low) for low in _lows_to_come(chain, table, gsn)]
    return max(0, min([gsn - 1, grace_gsn, *floors]))


def _lows_to_come(chain: Chain, table: str, gsn: int) -> list[tuple[int, int]]:
    """The low positions of copies that are not readable at `gsn`, but may become readable later."""
    readable = {copied.copy_id: copied.gsn for copied in chain.copied if table in copied.tables}
    found = {copied.lows[table] for copied in chain.copied if copied.gsn > gsn and table in copied.lows}
    for file in all_files(chain, table, Layer.COPY):
        at = readable.get(file.copy_id)
        is_to_come = at > gsn if at is not None else file.copy_id not in chain.closed_copies
        if is_to_come and file.low:
            found.add(file.low)
    return [parse_low(low) for low in found]


def parse_low(low: str) -> tuple[int, int]:
    major, _, minor = low.partition(".")
    return int(major), U64_MAX if minor == "*" else int(minor or 0)
