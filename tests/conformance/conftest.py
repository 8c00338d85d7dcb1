"""A database for each test, once for every source kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.kit import Encoders, Kit, Reading, Setup
from tests.conformance.kits import KITS
from tests.support.server_versions import record


@pytest.fixture(params=KITS, ids=[getattr(kit, "name", kit.kind) for kit in KITS])
def kit(request: pytest.FixtureRequest) -> Kit:
    found: Kit = request.param
    return found


@pytest.fixture(scope="session", autouse=True)
def _kits_stop() -> Iterator[None]:
    yield
    for kit in KITS:
        kit.stop()


@pytest.fixture
def setup(kit: Kit, tmp_path: Path) -> Iterator[Setup]:
    """Nothing is committed yet."""
    database = kit.create(tmp_path)
    record("conformance", getattr(kit, "name", kit.kind), database.version())
    yield Setup(kit, tmp_path, database, Encoders())
    database.close()


@pytest.fixture
def reading(setup: Setup) -> Iterator[Reading]:
    """A fresh stream, begun before the first commit."""
    reading = Reading(setup, setup.stream())
    reading.poll()
    yield reading
    reading.stream.close()
