"""Copies in this process, on the newest PostgreSQL: one Spark session for all of these tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.landing.conftest import spark  # noqa: F401  a fixture
from tests.support.copied_group import CopiedGroup
from tests.support.postgres import Database

from lowwater_devkit.servers.postgres import EmbeddedPostgres
from lowwater_devkit.servers.postgres_install import VERSION_NEWEST
from lowwater_fleet.kafka.embedded import EmbeddedKafka

NewCopiedGroup = Callable[..., CopiedGroup]


@pytest.fixture
def new_copied_group(
    spark: Any,  # noqa: F811
    kafka: EmbeddedKafka,
    postgres_servers: Callable[[int], EmbeddedPostgres],
    tmp_path: Path,
    unique: str,
) -> Iterator[NewCopiedGroup]:
    made: list[CopiedGroup] = []
    newest = Database(postgres_servers(VERSION_NEWEST))

    def make(**source: Any) -> CopiedGroup:
        made.append(CopiedGroup(tmp_path, kafka.bootstrap_servers, unique, newest, **source))
        return made[-1]

    yield make
    for group in made:
        group.close()
    newest.drop()
