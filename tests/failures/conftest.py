"""A landing application of the test's own, on a local disk and on S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.support.harness import skip_without_spark
from tests.support.landed import Landed
from tests.support.s3 import S3Server


@pytest.fixture(params=["local", "s3"])
def landed(request: pytest.FixtureRequest, kafka: EmbeddedKafka, tmp_path: Path, unique: str) -> Iterator[Landed]:
    skip_without_spark()
    if request.param == "local":
        lake: dict[str, Any] = {"uri": str(tmp_path / "lake")}
    else:
        s3: S3Server = request.getfixturevalue("s3")
        lake = s3.lake_config().model_dump(include={"uri", "options"})
    made = Landed(tmp_path, kafka.bootstrap_servers, unique, lake)
    yield made
    made.kill_all()
