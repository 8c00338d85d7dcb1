from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.support.api import Api
from tests.support.controlled import controlled
from tests.support.harness import Fleet, Workload

from lowwater_fleet.kafka.embedded import EmbeddedKafka


@pytest.fixture(scope="module")
def running(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, Api, Workload]]:
    """One fleet for all tests of a module: each leaves it running."""
    directory = tmp_path_factory.mktemp("controlled")
    with controlled(directory, kafka.bootstrap_servers, f"t{uuid.uuid4().hex[:8]}") as found:
        yield found


@pytest.fixture
def fleet(running: tuple[Fleet, Api, Workload]) -> Fleet:
    return running[0]


@pytest.fixture
def api(running: tuple[Fleet, Api, Workload]) -> Api:
    return running[1]


@pytest.fixture
def work(running: tuple[Fleet, Api, Workload]) -> Workload:
    return running[2]


@pytest.fixture
def source(fleet: Fleet) -> str:
    return fleet.sources[0]
