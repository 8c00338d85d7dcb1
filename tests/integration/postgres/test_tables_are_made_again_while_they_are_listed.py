"""A table that is dropped and created again while the catalogue is read is listed whole, or not at all."""

from __future__ import annotations

import threading

import pytest
from tests.integration.postgres.reading import source_of
from tests.support.postgres import Database

from lowwater_extractor.sources.postgres.catalogue import DatabaseCatalogue


@pytest.mark.parametrize("postgres_server", [18], indirect=True)
def test_table_that_is_dropped_meanwhile_does_not_seem_to_have_no_key(database: Database) -> None:
    """Its columns were read by a second query: without them it had no key, and the start was refused for good."""
    make = "CREATE TABLE again (id int PRIMARY KEY, n int)"
    database.execute(make)
    is_over = threading.Event()

    def make_again() -> None:
        with database.connect() as connection:
            while not is_over.is_set():
                connection.execute(f"DROP TABLE again; {make}")

    source = source_of(database, tables=["public.*"])
    catalogue = DatabaseCatalogue(source.config, source.name)
    writer = threading.Thread(target=make_again)
    writer.start()
    try:
        for _ in range(500):
            for table in catalogue.tables():
                assert (table.schema.key, len(table.schema.columns)) == (("id",), 2)
    finally:
        is_over.set()
        writer.join()
        catalogue.close()
