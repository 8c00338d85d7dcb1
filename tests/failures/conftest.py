"""Fleets that are killed when their test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lowwater_fleet.kafka import EmbeddedKafka
from tests.harness import Fleet

NewFleet = Callable[..., Fleet]

#: small, so that a short workload makes many Kafka transactions and some transactions are larger than one
SMALL_BATCHES = {"batch": {"count_max": 50, "milliseconds_max": 10}}
SMALL_RELEASES = {"release_bytes_max": 8192, "delete_seconds": 0.3, "progress_seconds": 1.0}


@pytest.fixture
def new_fleet(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Iterator[NewFleet]:
    """`new_fleet(**options)` on the shared broker, or on `bootstrap_servers`."""
    made: list[Fleet] = []

    def make(bootstrap_servers: str | None = None, **options: Any) -> Fleet:
        if bootstrap_servers is None:
            broker: EmbeddedKafka = request.getfixturevalue("kafka")
            bootstrap_servers = broker.bootstrap_servers
        options = {"source": SMALL_BATCHES, "group": SMALL_RELEASES, **options}
        made.append(Fleet(tmp_path, bootstrap_servers, f"{unique}{len(made)}", **options))
        return made[-1]

    yield make
    for fleet in made:
        fleet.kill_all()
