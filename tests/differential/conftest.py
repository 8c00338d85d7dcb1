"""The servers that the differential tests run against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.servers import Servers


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    made = Servers(tmp_path_factory.mktemp)
    yield made
    made.close()
