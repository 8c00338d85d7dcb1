"""Column rules: columns that are dropped or masked before a row is published."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from lowwater.codec.table import STRING, Column, TableSchema
from lowwater.errors import ConfigError


class Mask(StrEnum):
    #: always null
    NULL = "null"
    #: HMAC-SHA-256 as hexadecimal text: equal values stay equal, so joins still work
    HASH = "hash"
    #: the text `***`
    REDACT = "redact"


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """Rules by full column name, such as `BANK.CUSTOMERS.SSN`."""

    drop: frozenset[str] = frozenset()
    mask: Mapping[str, Mask] | None = None
    hash_key: bytes = b""


@dataclass(frozen=True, slots=True)
class PublishedColumn:
    column: Column
    #: index in the row that the source returns
    place: int
    change: Callable[[Any], Any] | None = None


def _masked(column: Column, mask: Mask, key: bytes) -> tuple[Column, Callable[[Any], Any]]:
    if mask is Mask.NULL:
        return column, lambda _value: None
    if mask is Mask.REDACT:
        return replace(column, type=STRING), lambda value: None if value is None else "***"
    if not key:
        raise ConfigError(
            f"column {column.name} is masked by hash, but there is no hash_key",
            hint="set columns.hash_key to a secret reference such as ${env:LOWWATER_HASH_KEY}",
        )

    def hashed(value: Any) -> str | None:
        if value is None:
            return None
        raw = value if isinstance(value, bytes) else str(value).encode()
        return hmac.new(key, raw, hashlib.sha256).hexdigest()

    return replace(column, type=STRING), hashed


def published(table: TableSchema, rules: ColumnRules) -> tuple[TableSchema, tuple[PublishedColumn, ...]]:
    """The table as it is published, and the origin of each of its columns."""
    columns: list[PublishedColumn] = []
    for place, column in enumerate(table.columns):
        name = f"{table.full_name}.{column.name}"
        if name in rules.drop:
            if column.name in table.key:
                raise ConfigError(
                    f"{name} is part of the key and cannot be dropped",
                    source=table.source,
                    hint="mask it by hash instead: the keys of different rows stay different",
                )
            continue
        mask = (rules.mask or {}).get(name)
        if mask is None:
            columns.append(PublishedColumn(column, place))
        elif column.name in table.key and mask is not Mask.HASH:
            raise ConfigError(
                f"{name} is part of the key and can only be masked by hash",
                source=table.source,
                hint="mask: hash",
            )
        else:
            shown, change = _masked(column, mask, rules.hash_key)
            columns.append(PublishedColumn(shown, place, change))
    return replace(table, columns=tuple(c.column for c in columns)), tuple(columns)
