"""What matters in what the chart makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.deploy.chart import (
    LEAST,
    REPOSITORY,
    Object,
    fleet_of,
    merged,
    of_kind,
    one,
    pod_of,
    render,
    values_of,
)
from tests.unit.deploy.test_chart_renders import MATRIX

from lowwater.kafka import topics
from lowwater.runtime.config import Settings

WORKLOADS = ("Deployment", "Pod")


@pytest.fixture(scope="module")
def production() -> list[Object]:
    return render(values_of("production"))


def _settings(objects: list[Object]) -> Settings:
    """As the services read it; what only the control service reads is looked at by itself."""
    return Settings(**{name: part for name, part in fleet_of(objects).items() if name != "control"})


def test_the_config_is_one_that_the_services_accept_and_holds_no_secret() -> None:
    for name, values in MATRIX.items():
        objects = render(values)
        settings = _settings(objects)
        assert set(settings.sources) == set(values["sources"]), name
        for source in settings.sources.values():
            assert (source.http.host, source.http.port) == ("0.0.0.0", 8080)
        control = fleet_of(objects).get("control")
        if control is not None:
            assert control["host"] == "0.0.0.0"
            assert all(token["token"].startswith("${file:/etc/lowwater-tokens/") for token in control["tokens"])


def test_every_pod_is_restricted_probed_and_bounded() -> None:
    for values in MATRIX.values():
        for found in (o for o in render(values) if o["kind"] in WORKLOADS):
            pod = pod_of(found)
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            (container,) = pod["containers"]
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]
            if "ports" in container:
                assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"
                assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"
                mounted = {mount["name"] for mount in container["volumeMounts"]}
                assert mounted <= {volume["name"] for volume in pod["volumes"]}


def test_what_is_one_by_design_is_never_two_for_long(production: list[Object]) -> None:
    for component in ("extractor", "merger", "spark"):
        for found in of_kind(production, "Deployment", component):
            assert found["spec"]["replicas"] == 1
            assert found["spec"]["strategy"] == {"type": "Recreate"}
            # a batch fills for a second at most, a landing for some seconds
            assert pod_of(found)["terminationGracePeriodSeconds"] >= 60
    assert of_kind(production, "HorizontalPodAutoscaler") == []
    (budget,) = of_kind(production, "PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] == "control"


def test_a_source_has_a_deployment_of_its_own_that_is_found_by_its_labels(production: list[Object]) -> None:
    found = of_kind(production, "Deployment", "extractor")
    assert {o["metadata"]["labels"]["lowwater/source"] for o in found} == {"bank", "ledger"}
    for deployment in found:
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "lowwater"
        assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_a_kind_whose_drivers_are_large_has_an_image_of_its_own(production: list[Object]) -> None:
    images = {
        o["metadata"]["labels"]["lowwater/source"]: pod_of(o)["containers"][0]["image"]
        for o in of_kind(production, "Deployment", "extractor")
    }
    assert images == {"bank": "lowwater/extractor:0.1.0", "ledger": "lowwater/extractor-oracle:0.1.0"}


def test_the_runner_runs_nothing_that_the_chart_runs_and_sees_no_secret() -> None:
    objects = render(MATRIX["a runner"])
    config = yaml.safe_load(one(objects, "ConfigMap", "runner")["data"]["fleet.yaml"])
    assert not {"sources", "groups"} & set(config)
    Settings(**config)
    deployment = one(objects, "Deployment", "runner")
    (container,) = pod_of(deployment)["containers"]
    assert {"--instance=lw", "--secret=k", "--secret=db"} <= set(container["args"])
    role = one([o for o in objects if o["metadata"]["name"] == pod_of(deployment)["serviceAccountName"]], "Role")
    rights = {(r, v) for rule in role["rules"] for r in rule["resources"] for v in rule["verbs"]}
    assert {("deployments", "patch"), ("deployments", "create"), ("configmaps", "delete")} <= rights
    assert not any(resource == "secrets" for resource, _ in rights)


def test_a_source_that_is_off_has_no_pod_and_keeps_its_place() -> None:
    objects = render(merged(LEAST, {"sources": {"bank": {"enabled": False}}}))
    assert one(objects, "Deployment", "extractor")["spec"]["replicas"] == 0
    assert "bank" in fleet_of(objects)["sources"]


def _secrets(found: Object) -> set[str]:
    (container,) = pod_of(found)["containers"]
    return {source["secretRef"]["name"] for source in container.get("envFrom", [])}


def test_each_pod_has_the_secrets_that_it_needs_and_no_others(production: list[Object]) -> None:
    by_source = {o["metadata"]["labels"]["lowwater/source"]: o for o in of_kind(production, "Deployment", "extractor")}
    assert _secrets(by_source["bank"]) == {"lowwater-kafka", "bank-database"}
    assert _secrets(by_source["ledger"]) == {"lowwater-kafka", "ledger-database"}
    assert _secrets(one(production, "Deployment", "merger")) == {"lowwater-kafka"}
    # Spark's tasks copy tables from the databases
    lands = {"lowwater-kafka", "bank-lake", "bank-database", "ledger-database"}
    assert _secrets(one(production, "Deployment", "spark")) == lands
    template = yaml.safe_load(one(production, "ConfigMap", "config")["data"]["executor-bank.yaml"])
    assert _secrets(template) == lands


def _checksums(values: dict[str, Any]) -> dict[str, str]:
    return {
        o["metadata"]["name"]: o["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for o in of_kind(render(values), "Deployment")
    }


def test_only_those_are_started_anew_whose_part_of_the_config_has_changed() -> None:
    values = merged(values_of("production"), {"sources": {"other": {"kind": "mysql"}}})
    before = _checksums(values)
    after = _checksums(merged(values, {"sources": {"other": {"config": {"host": "elsewhere"}}}}))
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"lw-lowwater-extractor-other", "lw-lowwater-control"}


def test_a_driver_that_asks_for_executors_can_be_reached_and_may_do_so(production: list[Object]) -> None:
    spark = _settings(production).group("bank").land.spark
    service = one(production, "Service", "spark")
    assert spark["spark.master"] == "k8s://https://kubernetes.default.svc:443"
    assert spark["spark.driver.host"] == f"{service['metadata']['name']}.cdc.svc"
    ports = {port["port"] for port in service["spec"]["ports"]}
    assert {int(spark["spark.driver.port"]), int(spark["spark.driver.blockManager.port"])} == ports
    driver = one(production, "Deployment", "spark")
    assert service["spec"]["selector"].items() <= driver["spec"]["template"]["metadata"]["labels"].items()
    account = pod_of(driver)["serviceAccountName"]
    assert spark["spark.kubernetes.authenticate.serviceAccountName"] == account
    role = one([o for o in production if o["metadata"]["name"] == account], "Role")
    assert "pods" in role["rules"][0]["resources"]


def test_a_spark_application_has_the_same_config_and_secrets() -> None:
    values = merged(values_of("production"), {"landing": {"mode": "operator"}})
    spec = one(render(values), "SparkApplication")["spec"]
    assert (spec["mode"], spec["restartPolicy"]["type"]) == ("cluster", "Always")
    for part in (spec["driver"], spec["executor"]):
        assert {s["secretRef"]["name"] for s in part["envFrom"]} >= {"bank-lake", "bank-database"}
    assert all(isinstance(value, str) for value in spec["sparkConf"].values())


def test_uninstall_leaves_topics_and_the_lake(production: list[Object]) -> None:
    on_disk = render(values_of("small"))
    kept = [*of_kind(production, "KafkaTopic"), *of_kind(on_disk, "PersistentVolumeClaim")]
    assert len(kept) > 1
    assert all(o["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for o in kept)


def test_strimzis_topics_are_those_that_the_services_check_for(production: list[Object]) -> None:
    settings = _settings(production)
    wanted = topics.shared_topics()
    for name, source in settings.sources.items():
        wanted += topics.source_topics(name, source)
    for name, group in settings.groups.items():
        wanted += [*topics.group_topics(name, group), *topics.lake_topics(name)]
    specs = {o["spec"]["topicName"]: o["spec"] for o in of_kind(production, "KafkaTopic")}
    for topic in wanted:
        spec = specs[topic.name]
        assert (spec["partitions"], spec["replicas"]) == (topic.partitions, settings.kafka.replication)
        assert spec["config"] == {**topic.settings, "min.insync.replicas": "2"}


def test_alerts_come_with_their_runbooks_and_without_those_that_are_not_wanted() -> None:
    rule = {"enabled": True, "disabled": ["LowwaterThreadExcluded"], "runbookBaseUrl": "https://example.com/main/"}
    found = one(render(merged(LEAST, {"monitoring": {"prometheusRule": rule}})), "PrometheusRule")
    alerts = {r["alert"]: r for g in found["spec"]["groups"] for r in g["rules"]}
    assert "LowwaterThreadExcluded" not in alerts
    held = alerts["LowwaterWatermarkHeld"]["annotations"]
    assert held["runbook_url"] == "https://example.com/main/docs/operations/runbooks/LowwaterWatermarkHeld.md"
    # Prometheus' own templates are not Helm's
    assert "{{ $labels.thread }}" in held["summary"]


def test_dashboards_are_those_of_the_repository(production: list[Object]) -> None:
    found: dict[str, Any] = {}
    for config in of_kind(production, "ConfigMap", "monitoring"):
        assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
        found |= {name: json.loads(text) for name, text in config["data"].items()}
    files: list[Path] = sorted((REPOSITORY / "deploy/grafana/dashboards").glob("*.json"))
    assert files
    assert found == {f"lowwater-{path.name}": json.loads(path.read_text()) for path in files}
