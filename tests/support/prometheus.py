"""The real Prometheus, where it is installed (Debian: `apt-get install prometheus`)."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from lowwater_fleet.runner.ports import free_port
from tests.support.harness import wait_until

REPOSITORY = Path(__file__).resolve().parent.parent.parent
RULES = REPOSITORY / "deploy/prometheus/rules.yaml"
SCRAPE_SECONDS = 1


def find(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not here: apt-get install --no-install-recommends prometheus")
    return found


class Prometheus:
    """Scrapes `targets` (job → path and addresses) every second, with the alerts of the repository."""

    def __init__(self, directory: Path, targets: dict[str, tuple[str, list[str]]]) -> None:
        self.port = free_port()
        self._log = directory / "prometheus.log"
        config = directory / "prometheus.yml"
        settings = {
            "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {"job_name": job, "metrics_path": path, "static_configs": [{"targets": addresses}]}
                for job, (path, addresses) in targets.items()
            ],
        }
        config.write_text(yaml.safe_dump(settings))
        command = [
            find("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={directory / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)

    def get(self, path: str, **parameters: str) -> Any:
        """What its API answers; a wrong query is an error with the query in it."""
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5):
                return True
        except OSError:  # not listening yet, or 503 while it reads its disk
            return False

    def wait_until_up(self, count: int, seconds: float = 180) -> None:
        """Until so many targets have been scraped."""

        wait_until("Prometheus is ready", self._is_ready, seconds)
        try:
            wait_until(f"{count} targets that are up", lambda: len(self.query("up == 1")) >= count, seconds)
        except AssertionError as error:
            down = [t for t in self.get("targets")["activeTargets"] if t["health"] != "up"]
            raise AssertionError(f"{error}; {[(t['scrapeUrl'], t['lastError']) for t in down]}") from error
