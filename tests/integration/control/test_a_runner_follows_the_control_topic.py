"""`lowwater up` runs what is wanted: a source that is added by the API gets its extractor, one that is removed ends."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tests.support.api import Api
from tests.support.harness import Workload, wait_until
from tests.support.simulated_kubernetes import TOKEN, SimulatedKubernetes

from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_devkit.simulated_rac.workload import BANK
from lowwater_fleet.cli.main import main
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.runner.ports import free_port
from lowwater_fleet.runner.services import Service


def lowwater(*arguments: str, check: int | None = 0, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lowwater_fleet.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)
    assert check is None or done.returncode == check, (arguments, done.returncode, done.stdout, done.stderr)
    return done


class Said(NamedTuple):
    stdout: str
    stderr: str


def here(*arguments: str, check: int | None = 0) -> Said:
    """The same in this process: a start of Python for each would be most of the test's time."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["lowwater", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    code = ended.value.code or 0
    assert check is None or code == check, (arguments, code, out.getvalue(), err.getvalue())
    return Said(out.getvalue(), err.getvalue())


class Up:
    """A fleet of one empty group, run by `lowwater up`."""

    def __init__(self, directory: Path, bootstrap_servers: str) -> None:
        self.directory = directory
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.config = directory / "fleet.yaml"
        raw = {
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "groups": {},
            "control": {"port": free_port(), "requests_per_second": 100_000},
            "state_directory": str(directory / "state"),
        }
        self.config.write_text(yaml.safe_dump(raw))
        self.where = ["--directory", str(directory / "up")]
        started = json.loads(lowwater("up", "--config", str(self.config), *self.where, "--detach", "--json").stdout)
        self.pid = started["pid"]
        self.api = Api(Service("control", [], directory / "x", raw["control"]["port"])).wait()  # type: ignore[index]
        self.api.put(f"/v1/groups/{self.name}/config", {}, status=201)
        self.cluster = Cluster(directory / "rac", threads=2, tables=BANK, log_bytes=1 << 16)

    def spec(self, **more: Any) -> dict[str, Any]:
        config = {"directory": str(self.directory / "rac"), "spill_directory": str(self.directory / "spill")}
        return {"kind": "simulated_rac", "group": self.name, "config": config, "mark_seconds": 0.2, **more}

    def process(self, service: str) -> dict[str, Any]:
        (runner,) = self.api.get("/v1/fleet")["runners"].values()
        found: dict[str, Any] = runner["processes"].get(service, {})
        return found

    def down(self) -> None:
        self.api.close()
        lowwater("down", *self.where)
        self.cluster.close()


@pytest.fixture(scope="module")
def up(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    found = Up(tmp_path_factory.mktemp("up"), kafka.bootstrap_servers)
    yield found
    found.down()


def test_from_adding_to_removing(up: Up) -> None:
    source, group = f"{up.name}-one", up.name
    up.api.post("/v1/sources", {"name": source, "config": up.spec()}, status=201)
    up.api.wait_for_source(source, "running")
    up.api.wait_for(f"/v1/groups/{group}/status", "the merger", lambda g: g["state"] == "running")
    work = Workload(up.cluster, transactions=40)
    work.run()
    up.api.wait_for(f"/v1/groups/{group}/status", "all released", lambda g: g["gsn"] >= 40)
    first = up.process(f"extractor-{source}")
    assert (first["state"], first["restarts"]) == ("running", 0)

    os.kill(first["pid"], signal.SIGKILL)
    is_back = lambda: up.process(f"extractor-{source}").get("restarts") == 1  # noqa: E731
    wait_until("it is started again", is_back, 40)
    up.api.wait_for_source(source, "running")

    second = up.process(f"extractor-{source}")["pid"]
    up.api.put(f"/v1/sources/{source}/config", up.spec(mark_seconds=0.3), status=200)
    changed = wait_until("its new process", lambda: _another(up, source, second), 60)
    assert "mark_seconds: 0.3" in (up.directory / "up" / "run" / f"extractor-{source}.yaml").read_text()

    up.api.put(f"/v1/sources/{source}/stop")
    up.api.wait_for_source(source, "stopped")
    wait_until("it is down", lambda: up.process(f"extractor-{source}")["pid"] is None, 20)
    up.api.put(f"/v1/sources/{source}/resume")
    up.api.wait_for_source(source, "running")
    assert up.process(f"extractor-{source}")["pid"] != changed

    logs = here("logs", f"extractor-{source}", *up.where, "--json", "-n", "3").stdout.splitlines()
    assert len(logs) == 3
    assert json.loads(logs[0])["service"] == f"extractor-{source}"

    up.api.delete(f"/v1/sources/{source}")
    wait_until("nothing runs for it", lambda: up.process(f"extractor-{source}") == {}, 20)
    wait_until("nor for its group, which is empty now", lambda: up.process(f"merger-{group}") == {}, 20)


def _another(up: Up, source: str, pid: int) -> int | None:
    found = up.process(f"extractor-{source}").get("pid")
    return found if found not in (None, pid) else None


def test_the_commands_say_and_show_the_same(up: Up) -> None:
    source, config = f"{up.name}-two", ["--config", str(up.config)]
    directory = f"directory={up.directory / 'rac'}"
    wrong = here("source", "add", source, "-k", "simulated_rac", "-s", "directroy=x", *config, check=2)
    assert "directory: Field required" in wrong.stderr
    here("source", "add", source, "-k", "simulated_rac", "-g", up.name, "-s", directory, *config)
    here("source", "add", source, "-k", "simulated_rac", "-s", directory, *config, check=2)
    up.api.wait_for_source(source, "running")
    shown = json.loads(here("source", "status", source, "--json", *config).stdout)
    assert (shown["state"], shown["group"]) == ("running", up.name)
    assert source in [s["name"] for s in json.loads(here("source", "list", "--json", *config).stdout)]
    assert json.loads(here("source", "config", source, "--json", *config).stdout)["kind"] == "simulated_rac"
    assert json.loads(here("source", "check", source, "--json", *config).stdout)[0]["is_good"] is True
    tables = json.loads(here("source", "tables", source, "--json", *config).stdout)
    assert "BANK.ACCOUNTS" in [t["table"] for t in tables]
    for word, state in (("pause", "paused"), ("resume", "running"), ("restart", "running")):
        said = json.loads(here("source", word, source, "--reason", "a test", "--json", *config).stdout)
        assert said["source"] == source
        up.api.wait_for_source(source, state)
    here("thread", "exclude", source, "2", "--reason", "a test", *config)
    here("thread", "include", source, "2", "--reason", "a test", *config)
    group = json.loads(here("group", "status", up.name, "--json", *config).stdout)
    assert group["sources"] == [source]
    assert up.name in [g["name"] for g in json.loads(here("group", "list", "--json", *config).stdout)]
    overview = json.loads(here("status", "--json", *config, check=None).stdout)
    assert set(overview) == {"at_us", "sources", "groups", "runners"}
    assert source in here("status", *config, check=None).stdout
    lines = here("top", "--json", "--count", "2", "--interval", "0.3", *config).stdout.splitlines()
    assert [source in json.loads(line)["sources"] for line in lines] == [True, True]
    assert source in here("top", "--count", "1", *config).stdout
    here("source", "remove", source, *config)
    assert "there is no source" in here("source", "pause", source, *config, check=2).stderr


def test_the_same_topic_drives_kubernetes(up: Up, tmp_path: Path) -> None:
    source = f"{up.name}-three"
    up.api.post("/v1/sources", {"name": source, "config": up.spec()}, status=201)
    (tmp_path / "token").write_text(TOKEN)
    cluster = SimulatedKubernetes()
    try:
        where = ["--api", cluster.url, "--namespace", "data", "--token-file", str(tmp_path / "token")]
        command = ["run-kubernetes", "--image", "lowwater:1", "--once", "--config", str(up.config), *where, "--json"]
        done = json.loads(here(*command).stdout)
        assert f"Deployment/lowwater-extractor-{source}" in done["applied"]
        assert f"lowwater-merger-{up.name}" in cluster.names("deployments")
        assert json.loads(here(*command).stdout) == {"applied": [], "deleted": []}
        up.api.delete(f"/v1/sources/{source}")
        here(*command)
        assert not [n for n in cluster.names("deployments") if n.endswith(source)]
        cluster.refuse_with = 403
        assert here(*command, check=3).stderr.count("service account") == 1
    finally:
        cluster.close()


def test_a_second_one_in_the_same_directory_is_refused_and_exit_codes_mean_something(up: Up, tmp_path: Path) -> None:
    assert "runs in" in here("up", "--config", str(up.config), *up.where, check=2).stderr
    away = tmp_path / "away.yaml"
    away.write_text(yaml.safe_dump({"kafka": {"bootstrap_servers": f"127.0.0.1:{free_port()}"}}))
    assert "no broker" in here("status", "--config", str(away), check=3).stderr
    assert "known:" in here("logs", "nobody", *up.where, check=2).stderr
    assert here("down", "--directory", str(tmp_path), "--json").stdout.strip() == '{\n "was_running": false\n}'
    shell = {**os.environ, "_LOWWATER_COMPLETE": "complete_bash", "COMP_WORDS": "lowwater sou", "COMP_CWORD": "1"}
    program = Path(sys.executable).parent / "lowwater"
    found = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False, env=shell)
    assert found.stdout.split() == ["source"]
