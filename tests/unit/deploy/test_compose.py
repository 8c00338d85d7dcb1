"""docker-compose.yml: every profile is whole, pinned, healthy before it is needed, without a password in the open."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from deploy.compose.fleet import SOURCES, fleet
from tests.unit.deploy.chart import REPOSITORY

from lowwater.runtime.config import Settings
from lowwater_extractor.sources import open_source

COMPOSE = REPOSITORY / "docker-compose.yml"
PROFILES = ("core", "postgres", "mysql", "mongo", "oracle", "turso", "observe")
SECRETS = ("POSTGRES_PASSWORD", "MYSQL_PASSWORD", "ORACLE_PASSWORD", "GRAFANA_PASSWORD", "LOWWATER_TOKEN")
SCHEMA = Path(__file__).parent / "data/compose-spec.json"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return found


def _of(compose: dict[str, Any], *profiles: str) -> dict[str, Any]:
    return {name: s for name, s in compose["services"].items() if set(s["profiles"]) & set(profiles)}


def test_it_is_what_the_compose_specification_allows(compose: dict[str, Any]) -> None:
    jsonschema.Draft7Validator(json.loads(SCHEMA.read_text())).validate(compose)


def _compose() -> list[str]:
    """As a plugin of docker, or by itself."""
    docker, alone = shutil.which("docker"), shutil.which("docker-compose")
    if docker and not subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        return [docker, "compose"]
    if alone is None:
        pytest.skip("docker compose is not here: the schema of the Compose Specification is asked alone")
    return [alone]


@pytest.mark.parametrize("profile", PROFILES)
def test_dockers_own_compose_accepts_the_profile(profile: str) -> None:
    environment = {"PATH": "/usr/bin:/bin", "COMPOSE_PROFILES": profile, **dict.fromkeys(SECRETS, "x")}
    command = [*_compose(), "--file", str(COMPOSE), "config", "--quiet"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_depends_only_on_itself_and_on_what_can_be_healthy(compose: dict[str, Any], profile: str) -> None:
    mine = there = _of(compose, profile)
    assert mine
    for name, service in mine.items():
        for other, how in service.get("depends_on", {}).items():
            assert other in there, f"{name} needs {other}, which the profile does not start"
            is_ours = there[other]["image"].startswith("lowwater/")
            if how["condition"] == "service_healthy":
                assert "healthcheck" in there[other] or is_ours


def test_images_are_pinned_and_ours_are_built_here(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+[\w.-]*", service["image"]), service["image"]
        if service["image"].startswith("lowwater/"):
            assert (REPOSITORY / service["build"]["dockerfile"]).exists()
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]


def test_no_password_is_in_the_open_and_nothing_listens_to_the_world(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|TOKEN|PASSWD|SECRET", name):
                assert re.match(r"\$\{[A-Z_]+(:\?[^}]*)?\}$", value), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    written = (REPOSITORY / "deploy/compose/up.sh").read_text()
    assert all(name in written for name in SECRETS)
    assert ".env" in (REPOSITORY / ".gitignore").read_text().splitlines()


def test_what_is_mounted_is_there(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            if isinstance(volume, dict) and volume["type"] == "bind":
                assert (REPOSITORY / volume["source"]).exists(), volume
            else:
                name = volume["source"] if isinstance(volume, dict) else volume.split(":")[0]
                assert name in compose["volumes"]


@pytest.mark.parametrize("count", range(1, len(SOURCES) + 1))
def test_the_config_has_the_sources_of_the_chosen_profiles_and_no_others(compose: dict[str, Any], count: int) -> None:
    for chosen in itertools.combinations(SOURCES, count):
        made = fleet(",".join([*chosen, "observe"]))
        settings = Settings(**{name: part for name, part in made.items() if name != "control"})
        extractors = {s["command"][1] for n, s in _of(compose, *chosen).items() if n.startswith("extractor-")}
        assert set(settings.sources) == extractors == set(settings.group("bank").sources)
        for source in settings.sources.values():
            assert (source.http.host, source.http.port) == ("0.0.0.0", 8080)


@pytest.mark.parametrize("profile", SOURCES)
def test_a_kind_accepts_the_config_of_its_profile(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, source = SOURCES[profile]
    for secret in SECRETS:
        monkeypatch.setenv(secret, "x")
    open_source(name, source["kind"], source["config"])


def test_prometheus_knows_every_service_that_has_metrics(compose: dict[str, Any]) -> None:
    config = yaml.safe_load((REPOSITORY / "deploy/prometheus/prometheus.yml").read_text())
    known = {n for job in config["scrape_configs"] for sd in job["dns_sd_configs"] for n in sd["names"]}
    shown = {"control", "merger", "spark", *(n for n in compose["services"] if n.startswith("extractor-"))}
    assert known == shown
