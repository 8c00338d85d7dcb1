"""The Dockerfiles: hadolint finds nothing, and what every image promises is in each of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.deploy.chart import REPOSITORY

DOCKERFILES = sorted((REPOSITORY / "deploy/images").glob("*.Dockerfile"))


def test_there_is_one_for_each_service() -> None:
    assert {path.name.split(".")[0] for path in DOCKERFILES} == {"extractor", "merger", "control", "spark"}


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_hadolint_finds_nothing(path: Path) -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    command = [str(hadolint), "--config", str(REPOSITORY / ".hadolint.yaml"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_an_image_is_locked_small_and_has_no_root(path: Path) -> None:
    lines = path.read_text().splitlines()
    stages = [line for line in lines if line.startswith("FROM ")]
    assert stages == ["FROM ${BASE} AS base", "FROM base AS build", "FROM base"]
    last = lines[lines.index("FROM base") :]
    assert "USER 10001:10001" in last
    assert any(line.startswith("HEALTHCHECK ") for line in last)
    assert any("org.opencontainers.image.version" in line for line in last)
    # nothing is installed behind the lock, and what installs stays in its stage
    assert not any("pip install" in line or "uv sync" in line for line in last)
    assert sum("uv sync --frozen --no-dev" in line for line in lines) >= 1
    assert any("sbom.json" in line for line in lines)


def test_what_is_copied_is_not_left_out_of_the_context() -> None:
    kept = [line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for path in DOCKERFILES:
        for line in path.read_text().splitlines():
            if line.startswith("COPY ") and "--from=" not in line:
                source = line.split()[1].removeprefix("./")
                assert (REPOSITORY / source).exists(), line
                assert any(source == name or source.startswith(f"{name}/") for name in kept), line
