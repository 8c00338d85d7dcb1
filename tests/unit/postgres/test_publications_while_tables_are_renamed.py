"""A table that was renamed or dropped between the look at it and the publication's ALTER: tried again, not stopped."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from lowwater.codec.table import INT64, Column, TableSchema
from lowwater.errors import SourceError, SourceLostError
from lowwater_extractor.sources.postgres.catalogue import CatalogueTable
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.connect import as_source_error
from lowwater_extractor.sources.postgres.publications import Publications, is_passing

TABLE = CatalogueTable(1, "d", TableSchema("db", "public", "t", 0, (Column("id", INT64),), ("id",)), {})


class Catalogue:
    def __init__(self, error: psycopg.Error) -> None:
        self.error = error

    def ask(self, text: Any, *_values: object) -> list[tuple[Any, ...]]:
        if isinstance(text, sql.Composed):
            raise as_source_error(self.error, "db", "query") from self.error
        return []


def _kept(error: psycopg.Error) -> None:
    catalogue: Any = Catalogue(error)
    config = PostgresConfig(database="d", user="u", tables=["public.*"])
    Publications(config, "db", catalogue).keep_to([TABLE])


@pytest.mark.parametrize(
    "error", [psycopg.errors.UndefinedTable, psycopg.errors.UndefinedObject, psycopg.errors.DuplicateObject]
)
def test_it_is_tried_again(error: type[psycopg.Error]) -> None:
    with pytest.raises(SourceLostError, match="renamed or dropped") as raised:
        _kept(error("relation t does not exist"))
    assert is_passing(raised.value)


def test_what_does_not_pass_stops_the_source() -> None:
    with pytest.raises(SourceError, match="must be owner") as raised:
        _kept(psycopg.errors.InsufficientPrivilege("must be owner of table t"))
    assert not isinstance(raised.value, SourceLostError)
