"""Landings in this process: one Spark session for all of these tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.harness import LAND
from tests.support.ordered_topic import OrderedTopic

from lowwater.errors import ConfigError
from lowwater.runtime import config
from lowwater.runtime.config import LandConfig, Settings
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_spark.service import LandService
from lowwater_spark.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    try:
        session = spark_session("tests", LandConfig(spark=LAND["spark"]))
    except ConfigError as error:
        pytest.skip(str(error))
    yield session
    session.stop()


class Group:
    """An ordered topic and its lake."""

    def __init__(self, directory: Path, bootstrap_servers: str, name: str, **land: Any) -> None:
        self.name = name
        raw = {
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "sources": {name: {"kind": "simulated_rac"}},
            "groups": {
                name: {
                    "sources": [name],
                    "lake": {"uri": str(directory / "lake")},
                    "land": {**LAND, **land},
                }
            },
            "state_directory": str(directory / "state"),
        }
        path = directory / f"{name}.yaml"
        path.write_text(yaml.safe_dump(raw))
        self.lake = str(directory / "lake")
        self.settings: Settings = config.load(path)
        self.topic = OrderedTopic(self.settings, name)

    def land(self) -> None:
        """All that is there, as `lowwater-spark --once` does it; raises what ended it."""
        service = LandService(self.settings, self.name, once=True)
        service._prepare()
        with contextlib.closing(service._control):
            service._run_session()


NewGroup = Callable[..., Group]


@pytest.fixture
def new_group(spark: Any, kafka: EmbeddedKafka, tmp_path: Path, unique: str) -> NewGroup:
    def make(**land: Any) -> Group:
        return Group(tmp_path, kafka.bootstrap_servers, unique, **land)

    return make
