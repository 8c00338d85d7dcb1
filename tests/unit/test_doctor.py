"""`lowwater doctor` names what is missing and how to mend it, and changes nothing."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowwater.errors import ConfigError
from lowwater_fleet import cli, doctor
from lowwater_fleet.doctor import Finding, examine
from lowwater_fleet.jars import find_jars, find_java, java_version
from lowwater_fleet.ports import free_port


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that has everything: Java 21, Maven, the jars."""
    program(tmp_path / "bin/java", 'openjdk version "21.0.2" 2024-01-16')
    program(tmp_path / "bin/mvn", "Apache Maven")
    (tmp_path / ".jars/kafka").mkdir(parents=True)
    (tmp_path / ".jars/kafka/kafka_2.13-4.1.0.jar").touch()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("LOWWATER_JARS", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lowwater_fleet.kafka.PORT_DEFAULT", free_port())
    return tmp_path


def finding(name: str, machine: Path) -> Finding:
    return next(found for found in examine(machine / "kafka") if found.name == name)


def test_a_machine_that_has_everything_is_fine_and_untouched(machine: Path) -> None:
    before = sorted(machine.rglob("*"))
    assert [found.name for found in examine(machine / "kafka") if not found.ok] == []
    assert sorted(machine.rglob("*")) == before


def test_no_java(machine: Path) -> None:
    (machine / "bin/java").unlink()
    found = finding("Java", machine)
    assert not found.ok
    assert "default-jre-headless" in found.fix
    assert "brew install openjdk" in found.fix


def test_java_home_counts_before_the_path(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = program(machine / "old/bin/java", 'java version "1.8.0_392"')
    monkeypatch.setenv("JAVA_HOME", str(machine / "old"))
    assert java_version(old) == 8
    with pytest.raises(ConfigError, match="Java 8, which is too old"):
        find_java()


def test_a_java_that_only_says_there_is_none(machine: Path) -> None:
    program(machine / "bin/java", "The operation could not be completed. Unable to locate a Java Runtime.")
    found = finding("Java", machine)
    assert not found.ok
    assert "Unable to locate" in found.found


def test_maven_is_needed_only_while_the_jars_are_missing(machine: Path) -> None:
    (machine / "bin/mvn").unlink()
    assert finding("Maven", machine).ok
    (machine / ".jars/kafka/kafka_2.13-4.1.0.jar").unlink()
    assert "apt-get install maven" in finding("Maven", machine).fix
    assert "make jars" in finding("jars", machine).fix


def test_jars_are_found_from_a_directory_below(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = machine / "a/b"
    below.mkdir(parents=True)
    assert find_jars("kafka", start=below) == machine / ".jars/kafka"
    monkeypatch.setenv("LOWWATER_JARS", str(below))
    with pytest.raises(ConfigError, match="LOWWATER_JARS"):
        find_jars("kafka", start=below)


def test_a_port_that_is_taken(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("lowwater_fleet.kafka.PORT_DEFAULT", port)
        found = finding("port", machine)
    assert not found.ok
    assert str(port) in found.found
    assert "--port 0" in found.fix


def test_too_little_disk_and_memory(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISK_GB_MIN", 1e9)
    monkeypatch.setattr(doctor, "MEMORY_GB_MIN", 1e9)
    assert not finding("disk", machine).ok
    assert not finding("memory", machine).ok


def test_the_exit_code_and_the_json(machine: Path) -> None:
    good = CliRunner().invoke(cli.app, ["doctor", "--json"])
    assert good.exit_code == 0
    assert {found["name"]: found["ok"] for found in json.loads(good.output)}["Java"] is True
    (machine / "bin/java").unlink()
    bad = CliRunner().invoke(cli.app, ["doctor"])
    assert bad.exit_code == 1
    assert "FAIL" in bad.output
    assert os.listdir(machine / ".jars") == ["kafka"]
