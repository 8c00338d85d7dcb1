"""`lowwater doctor` names what is missing and how to mend it, and changes nothing."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lowwater.errors import ConfigError
from lowwater_fleet.cli import doctor
from lowwater_fleet.cli import main as cli
from lowwater_fleet.cli.doctor import Finding, examine
from lowwater_fleet.kafka.jars import find_jars, find_java, java_version
from lowwater_fleet.runner.ports import free_port

KAFKA_JAR = ".jars/kafka/kafka_2.13-4.1.0.jar"
SPARK_JAR = ".jars/spark/spark-sql-kafka-0-10_2.13-4.0.0.jar"


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
    for jar in (KAFKA_JAR, SPARK_JAR):
        (tmp_path / jar).parent.mkdir(parents=True)
        (tmp_path / jar).touch()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("LOWWATER_JARS", raising=False)
    monkeypatch.delenv("LOWWATER_SPARK_JARS", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lowwater_fleet.kafka.embedded.PORT_DEFAULT", free_port())
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
    for jar, name in ((KAFKA_JAR, "Kafka's jars"), (SPARK_JAR, "Spark's jars")):
        (machine / jar).unlink()
        assert "apt-get install maven" in finding("Maven", machine).fix
        assert "make jars" in finding(name, machine).fix
        (machine / jar).touch()


def test_a_java_that_is_too_new_for_spark(machine: Path) -> None:
    program(machine / "bin/java", 'openjdk version "25" 2025-09-16')
    found = finding("Java", machine)
    assert not found.ok
    assert "brew install openjdk@21" in found.fix


def test_sparks_jars_where_a_variable_names_them(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = machine / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("LOWWATER_SPARK_JARS", str(elsewhere))
    assert "LOWWATER_SPARK_JARS" in finding("Spark's jars", machine).found
    (machine / SPARK_JAR).rename(elsewhere / "spark.jar")
    assert finding("Spark's jars", machine).ok


def test_a_package_that_is_missing(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "pyspark" in finding("packages", machine).found
    # as the interpreter has it for a module that cannot be imported
    monkeypatch.setitem(sys.modules, "duckdb", None)
    found = finding("packages", machine)
    assert found.found.startswith("duckdb cannot be loaded")
    assert "make setup" in found.fix


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
        monkeypatch.setattr("lowwater_fleet.kafka.embedded.PORT_DEFAULT", port)
        found = finding("port", machine)
    assert not found.ok
    assert str(port) in found.found
    assert "--port 0" in found.fix


def test_a_fleet_that_takes_free_ports_does_not_ask_for_kafkas(machine: Path) -> None:
    names = [found.name for found in examine(machine / "kafka", takes_free_ports=True)]
    assert "ports" in names
    assert "port" not in names


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
    assert sorted(os.listdir(machine / ".jars")) == ["kafka", "spark"]


def test_no_postgresql_is_no_fault(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowwater_devkit.servers.postgres_install.PACKAGE", "no_such_package")
    found = finding("PostgreSQL", machine)
    assert found.ok
    assert "runs without it: PostgreSQL 18 is missing" in found.found
