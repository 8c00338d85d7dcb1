"""On a real Kubernetes: install, pgbench through a source, kill pods, upgrade, roll back, uninstall, install again.

`make test-kubernetes` with KUBECONFIG set. The cluster must be able to pull or hold lowwater's images
(deploy/images/build.sh, then `kind load` or a push; LOWWATER_IMAGE_REGISTRY is put before their names, with its slash),
and those of Kafka and PostgreSQL. Everything happens in a namespace of its own, which goes at the end.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.harness import wait_until
from tests.unit.deploy.chart import HELM, merged, packed, values_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

TABLES = ("pgbench_accounts.abalance", "pgbench_tellers.tbalance", "pgbench_branches.bbalance", "pgbench_history.delta")
#: the sums of all tables as of the last gsn of the lake, with the gsn
READ_LAKE = """
import json
from lowwater.lake import Lake
lake = Lake.open("/var/lib/lake")
at = lake.at()
sums = [at.state(f"bank.public.{n.split('.')[0]}").arrow()[n.split(".")[1]].to_pylist() for n in TABLES]
print(json.dumps([lake.gsn, [[len(s), sum(s)] for s in sums]]))
"""


class Cluster:
    """One namespace of it."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._kubectl = shutil.which("kubectl")
        if self._kubectl is None:
            pytest.skip("kubectl is not here")

    def run(self, *command: str, given: str = "", seconds: float = 600) -> str:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=seconds, check=False
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
        return done.stdout

    def kubectl(self, *arguments: str, given: str = "") -> str:
        assert self._kubectl is not None
        return self.run(self._kubectl, "--namespace", self.namespace, *arguments, given=given)

    def helm(self, *arguments: str, values: dict[str, Any] | None = None) -> str:
        given = yaml.safe_dump(values) if values is not None else ""
        more = ("--values", "-") if values is not None else ()
        return self.run(str(HELM), "--namespace", self.namespace, *arguments, *more, given=given, seconds=900)

    def psql(self, sql: str) -> str:
        return self.kubectl("exec", "postgres", "--", "psql", "-U", "postgres", "-tA", "-c", sql, "bank").strip()

    def pgbench(self, *arguments: str) -> None:
        self.kubectl("exec", "postgres", "--", "pgbench", "-U", "postgres", *arguments, "bank")

    def kill(self, component: str) -> None:
        selected = f"app.kubernetes.io/name=lowwater,app.kubernetes.io/component={component}"
        self.kubectl("delete", "pod", "-l", selected, "--grace-period=0", "--force")

    def wait_until_ready(self) -> None:
        for deployment in self.kubectl("get", "deployments", "-o", "name").split():
            self.kubectl("rollout", "status", deployment, "--timeout=10m")

    def lake(self) -> tuple[int, list[list[int]]]:
        """The last gsn, and of each table its count and its sum."""
        code = f"TABLES = {TABLES!r}\n{READ_LAKE}"
        said = self.kubectl("exec", "deploy/lw-lowwater-spark-bank", "--", "python", "-c", code)
        gsn, sums = json.loads(said.splitlines()[-1])
        return gsn, sums

    def database(self) -> list[list[int]]:
        found = []
        for name in TABLES:
            table, column = name.split(".")
            said = self.psql(f"SELECT json_build_array(count(*), coalesce(sum({column}), 0)) FROM {table}")
            found.append(json.loads(said))
        return found

    def wait_until_all_has_landed(self) -> int:
        wanted = self.database()

        def has_landed() -> bool:
            try:
                return self.lake()[1] == wanted
            except AssertionError:
                return False  # the pod is being started, or a table cannot be read yet

        wait_until(f"{wanted} in the lake", has_landed, 600)
        return self.lake()[0]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("KUBECONFIG is not set: there is no Kubernetes at hand")
    mine = Cluster(f"lowwater-{uuid.uuid4().hex[:8]}")
    mine.kubectl("create", "namespace", mine.namespace)
    yield mine
    mine.kubectl("delete", "namespace", mine.namespace, "--wait=false")


def _values() -> dict[str, Any]:
    source = {"config": {"user": "postgres", "chunk_rows": 20_000}}
    image = {"registry": os.environ.get("LOWWATER_IMAGE_REGISTRY", "")}
    return merged(values_of("small"), {"sources": {"bank": source}, "image": image})


def test_a_bank_survives_kills_an_upgrade_a_rollback_and_an_uninstall(cluster: Cluster) -> None:
    for name, key in (("bank-database", "BANK_PASSWORD"), ("lowwater-tokens", "operator")):
        cluster.kubectl("create", "secret", "generic", name, f"--from-literal={key}={secrets.token_hex(16)}")
    cluster.kubectl("apply", "-f", "-", given=(Path(__file__).parent / "beside.yaml").read_text())
    cluster.kubectl("wait", "pod", "--all", "--for=condition=Ready", "--timeout=5m")
    cluster.pgbench("-i", "-q", "-s", "1")
    cluster.psql("ALTER TABLE pgbench_history ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")

    values = _values()
    cluster.helm("install", "lw", packed(), "--wait", "--timeout", "10m", values=values)
    cluster.helm("test", "lw")
    cluster.pgbench("-n", "-c", "2", "-T", "10", "-R", "50")
    first = cluster.wait_until_all_has_landed()

    for component in ("extractor", "merger", "spark", "control"):
        cluster.kill(component)
        cluster.pgbench("-n", "-c", "2", "-T", "5", "-R", "50")
    cluster.wait_until_ready()
    second = cluster.wait_until_all_has_landed()
    assert second > first

    changed = merged(values, {"sources": {"bank": {"settings": {"mark_seconds": 0.5}}}})
    cluster.helm("upgrade", "lw", packed(), "--wait", "--timeout", "10m", values=changed)
    cluster.pgbench("-n", "-c", "2", "-T", "5", "-R", "50")
    cluster.helm("rollback", "lw", "1", "--wait", "--timeout", "10m")
    cluster.pgbench("-n", "-c", "2", "-T", "5", "-R", "50")
    third = cluster.wait_until_all_has_landed()
    assert third > second

    cluster.helm("uninstall", "lw", "--wait")
    topics = cluster.kubectl(
        "exec", "kafka", "--", "/opt/kafka/bin/kafka-topics.sh", "--bootstrap-server", "localhost:9092", "--list"
    )
    assert {"lowwater.bank.changes", "lowwater.bank.transactions", "lowwater.bank.ledger"} <= set(topics.split())
    assert "lw-lowwater-lake-bank" in cluster.kubectl("get", "pvc", "-o", "name")

    cluster.pgbench("-n", "-c", "2", "-T", "5", "-R", "50")
    cluster.helm("install", "lw", packed(), "--wait", "--timeout", "10m", values=values)
    assert cluster.wait_until_all_has_landed() > third
