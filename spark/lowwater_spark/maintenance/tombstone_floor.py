"""Up to where a state may forget deletes.

A copy's rows are overlaid with the changes that came after it began to read. So a delete must be remembered as long as
a copy may become readable that began before it. A copy shows itself when its first chunk lands; until then it has the
lake's grace. A state's `gsn_min` says from where on it remembers, so that a reader can refuse a copy from before.
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
    """Of a state at `gsn`; below it, so that the state remembers at least its own end."""
    files = all_files(chain, table, Layer.STREAM, Layer.STATE)
    floors = [last_gsn_at_or_below(chain.store, files, *low) for low in _lows_to_come(chain, table, gsn)]
    return max(0, min([gsn - 1, grace_gsn, *floors]))


def _lows_to_come(chain: Chain, table: str, gsn: int) -> list[tuple[int, int]]:
    """Of the copies that are not readable yet at `gsn`, and may become so."""
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
