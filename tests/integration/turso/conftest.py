"""A file for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.turso_file import TursoFile

NewFile = Callable[..., TursoFile]


@pytest.fixture
def new_file(tmp_path: Path) -> Iterator[NewFile]:
    made: list[TursoFile] = []

    def make(mode: str = "full", features: str = "", name: str = "app.db") -> TursoFile:
        made.append(TursoFile(tmp_path / name, mode, features))
        return made[-1]

    yield make
    for file in made:
        file.close()
