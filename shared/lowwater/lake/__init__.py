"""The lake: one atomic, ordered history of all tables in Parquet.

    lake = Lake.open("s3://bucket/lake")
    at = lake.at("2026-03-01T12:00:00Z")        # one version for several tables
    at.state("accounts").arrow()
    lake.changes("accounts", after_gsn=100).batches()

`Lake`, `TableInfo` and `Version` are imported lazily, because writers of a lake do not need DuckDB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowwater.lake.reader import Lake, TableInfo, Version

__all__ = ["Lake", "TableInfo", "Version"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lowwater.lake import reader

    return getattr(reader, name)
