"""The runner for Kubernetes: manifests from the wanted fleet, and the steps that bring a cluster there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.support.simulated_kubernetes import TOKEN, VERSION, SimulatedKubernetes

from lowwater.control.commands import SOURCE, Change, configure, remove, want
from lowwater.control.desired_state import SourceSpec, to_json, wanted_fleet
from lowwater.control.fold import ControlFold, next_command
from lowwater.errors import ConfigError
from lowwater.records.types import Wanted
from lowwater.runtime.config import Settings
from lowwater_fleet.kubernetes.api import KubernetesApi, KubernetesError
from lowwater_fleet.kubernetes.manifests import DIGEST, KubeOptions, Manifest, ObjectId, manifests, steps
from lowwater_fleet.runner.desired_services import plan

RAW: dict[str, Any] = {
    "kafka": {"bootstrap_servers": "broker:9093", "client": {"sasl.password": "${env:KAFKA_PASSWORD}"}},
    "sources": {
        "rac": {"kind": "oracle", "config": {"user": "cdc", "password": "${env:ORACLE_PASSWORD}"}},
        "pg_main": {"kind": "postgres", "config": {"database": "bank"}},
    },
    "groups": {"bank": {"sources": ["rac", "pg_main"], "lake": {"uri": "s3://bucket/bank"}}},
}
OPTIONS = KubeOptions("lowwater:1", secrets=("databases",), service_account="lowwater")


def _wanted(*words: tuple[str, Change]) -> dict[ObjectId, Manifest]:
    fold = ControlFold()
    for name, change in words:
        assert fold.apply(next_command(fold.get(SOURCE, name), SOURCE, name, change))
    fleet = wanted_fleet(Settings(**RAW), fold)
    return manifests(fleet.settings, plan(fleet, fold).values(), OPTIONS)


def _digests(found: dict[ObjectId, Manifest]) -> dict[ObjectId, str]:
    return {key: manifest["metadata"]["annotations"][DIGEST] for key, manifest in found.items()}


def _extractor(found: dict[ObjectId, Manifest], source: str) -> Manifest:
    return found[("Deployment", f"lowwater-extractor-{source}")]


def test_there_is_one_deployment_for_each_source_and_each_part_of_a_group() -> None:
    found = _wanted()
    names = sorted(name for kind, name in found if kind == "Deployment")
    assert names[0].startswith("lowwater-extractor-pg-main-"), "a name with _ is kept apart from one with -"
    assert names[1:] == ["lowwater-extractor-rac", "lowwater-merger-bank", "lowwater-spark-bank"]
    assert {name for kind, name in found if kind == "ConfigMap"} == set(names)


def test_every_manifest_is_one_that_kubernetes_knows() -> None:
    for manifest in _wanted().values():
        kubernetes_validate.validate(manifest, VERSION, strict=True)


def test_a_pod_has_its_own_part_of_the_config_and_no_secret_but_by_reference() -> None:
    found = _wanted()
    text = found[("ConfigMap", "lowwater-extractor-rac")]["data"]["fleet.yaml"]
    config = yaml.safe_load(text)
    assert list(config["sources"]) == ["rac"]
    assert config["sources"]["rac"]["config"]["password"] == "${env:ORACLE_PASSWORD}"
    assert config["sources"]["rac"]["http"] == {"host": "0.0.0.0", "port": 8000}
    assert Settings(**config).source("rac").kind == "oracle"
    pod = _extractor(found, "rac")["spec"]["template"]["spec"]
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "databases"}}]
    assert pod["containers"][0]["args"][-2:] == ["--source", "rac"]
    assert pod["securityContext"]["runAsNonRoot"] is True


def test_a_stopped_source_has_no_pod_and_a_paused_one_keeps_its() -> None:
    assert _extractor(_wanted(("rac", want(Wanted.STOPPED, ""))), "rac")["spec"]["replicas"] == 0
    assert _extractor(_wanted(("rac", want(Wanted.PAUSED, ""))), "rac")["spec"]["replicas"] == 1


def test_a_change_of_one_source_touches_its_own_extractor_and_its_group_only() -> None:
    before = _wanted()
    spec = SourceSpec(kind="oracle", group="bank", config={"user": "other"})
    after = _wanted(("rac", configure(to_json(spec), "")))
    changed = {m["metadata"]["name"] for m in steps(after, _digests(before)).apply}
    assert changed == {"lowwater-extractor-rac", "lowwater-merger-bank", "lowwater-spark-bank"}
    assert steps(before, _digests(before)).apply == []
    assert steps(before, _digests(before)).delete == []


def test_what_is_removed_goes_deployment_first_and_what_is_new_comes_config_first() -> None:
    before = _digests(_wanted())
    todo = steps(_wanted(("rac", remove(""))), before)
    assert todo.delete == [("Deployment", "lowwater-extractor-rac"), ("ConfigMap", "lowwater-extractor-rac")]
    kinds = [m["kind"] for m in steps(_wanted(), {}).apply]
    assert kinds == ["ConfigMap"] * 4 + ["Deployment"] * 4


# -- the API server --------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[SimulatedKubernetes]:
    found = SimulatedKubernetes()
    yield found
    found.close()


@pytest.fixture
def server(cluster: SimulatedKubernetes, tmp_path: Path) -> Iterator[KubernetesApi]:
    (tmp_path / "token").write_text(TOKEN + "\n")
    found = KubernetesApi(cluster.url, "data", tmp_path / "token", None)
    yield found
    found.close()


def test_a_cluster_is_brought_to_what_is_wanted_and_stays_there(
    cluster: SimulatedKubernetes, server: KubernetesApi
) -> None:
    server.take(steps(_wanted(), server.found(OPTIONS)))
    assert len(cluster.names("deployments")) == 4
    calls = len(cluster.calls)
    todo = steps(_wanted(), server.found(OPTIONS))
    server.take(todo)
    assert (todo.apply, todo.delete, len(cluster.calls) - calls) == ([], [], 2), "only two looks"
    server.take(steps(_wanted(("rac", remove(""))), server.found(OPTIONS)))
    assert "lowwater-extractor-rac" not in cluster.names("deployments")
    assert "lowwater-extractor-rac" not in cluster.names("configmaps")


def test_what_others_have_made_is_left_alone(cluster: SimulatedKubernetes, server: KubernetesApi) -> None:
    foreign = {"metadata": {"name": "web", "labels": {"app.kubernetes.io/managed-by": "Helm"}}}
    cluster.objects["/apis/apps/v1/namespaces/data/deployments"] = {"web": foreign}
    server.take(steps({}, server.found(OPTIONS)))
    assert cluster.names("deployments") == ["web"]


def test_what_was_changed_by_hand_is_put_right(cluster: SimulatedKubernetes, server: KubernetesApi) -> None:
    server.take(steps(_wanted(), server.found(OPTIONS)))
    cluster.get("deployments", "lowwater-merger-bank")["metadata"]["annotations"][DIGEST] = "another"
    (todo,) = steps(_wanted(), server.found(OPTIONS)).apply
    assert todo["metadata"]["name"] == "lowwater-merger-bank"


def test_a_refusal_says_what_to_do(cluster: SimulatedKubernetes, server: KubernetesApi, tmp_path: Path) -> None:
    cluster.refuse_with = 403
    with pytest.raises(KubernetesError, match="403 refused by the test") as caught:
        server.found(OPTIONS)
    assert "service account" in (caught.value.hint or "")
    cluster.refuse_with = None
    (tmp_path / "token").write_text("renewed too late")
    with pytest.raises(KubernetesError, match="401"):
        server.found(OPTIONS)
    (tmp_path / "token").unlink()
    with pytest.raises(ConfigError, match="token"):
        server.found(OPTIONS)
