"""A matrix of values: Helm finds nothing wrong, and Kubernetes' own schemas accept every object, strictly."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
from tests.unit.deploy.chart import LEAST, helm, merged, packed, render, values_of

OLDEST, NEWEST = "1.25.0", "1.37.0"
#: of operators: Kubernetes has no schema for them
FOREIGN = ("monitoring.coreos.com/", "kafka.strimzi.io/", "sparkoperator.k8s.io/")

_ALL_ON: dict[str, Any] = {
    "autoscaling": {"enabled": True},
    "ingress": {"enabled": True, "host": "lowwater.test", "className": "nginx", "tlsSecret": "tls"},
    "networkPolicy": {
        "enabled": True,
        "from": [{"namespaceSelector": {}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
    },
    "monitoring": {
        "podMonitor": {"enabled": True},
        "serviceMonitor": {"enabled": True, "tokenSecret": "view"},
        "prometheusRule": {"enabled": True, "runbookBaseUrl": "https://example.com/lowwater/"},
        "dashboards": {"enabled": True},
    },
    "strimzi": {"cluster": "kafka", "topics": {"enabled": True}, "user": {"enabled": True}},
    "runner": {"enabled": True},
    "commonLabels": {"team": "data"},
    "priorityClassName": "high",
    "image": {"registry": "registry.test/", "tag": "1.2.3", "pullSecrets": [{"name": "pull"}]},
}
_DISK = {"groups": {"bank": {"lake": {"uri": "/var/lib/lake", "persistence": {"size": "1Gi", "storageClass": "fast"}}}}}
_MANY = {
    "sources": {
        "many_words-and_more": {"kind": "mysql", "enabled": False, "existingSecret": "shop"},
        "redo": {
            "kind": "oracle",
            "volumes": [{"name": "redo", "persistentVolumeClaim": {"claimName": "redo"}}],
            "volumeMounts": [{"name": "redo", "mountPath": "/redo", "readOnly": True}],
        },
    },
    "groups": {"shop_group": {"sources": ["many_words-and_more", "redo"], "settings": {"retention_hours": -1}}},
}
_REGISTRY = {"url": "http://registry", "username": "u", "existingSecret": "r"}
MATRIX: dict[str, dict[str, Any]] = {
    "least": LEAST,
    "small": values_of("small"),
    "production": values_of("production"),
    "all on, local": merged(LEAST, _ALL_ON),
    "all on, cluster": merged(merged(LEAST, _ALL_ON), {"landing": {"mode": "cluster"}}),
    "all on, operator": merged(merged(LEAST, _ALL_ON), {"landing": {"mode": "operator"}}),
    "a lake on a volume": merged(LEAST, _DISK),
    "many": merged(merged(LEAST, _ALL_ON), _MANY),
    "no lake": merged(LEAST, {"groups": {"bank": {"lake": None}}}),
    "no control": merged(LEAST, {"control": {"enabled": False, "tokens": [], "existingSecret": ""}}),
    "a runner": merged(LEAST, {"runner": {"enabled": True, "secrets": ["db"]}, "kafka": {"existingSecret": "k"}}),
    "an account that is there": merged(LEAST, {"serviceAccount": {"create": False, "name": "mine"}}),
    "registry and TLS": merged(LEAST, {"schemaRegistry": _REGISTRY, "kafka": {"tlsSecret": "t"}}),
}  # fmt: skip


@pytest.mark.parametrize("name", MATRIX)
def test_kubernetes_accepts_every_object_in_its_oldest_and_newest_version(name: str) -> None:
    objects = render(MATRIX[name])
    names = [(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]) for o in objects]
    assert len(set(names)) == len(names)
    for found in objects:
        assert len(found["metadata"]["name"]) <= (253 if found["kind"] == "KafkaTopic" else 63)
        if not found["apiVersion"].startswith(FOREIGN):
            for version in (OLDEST, NEWEST):
                kubernetes_validate.validate(found, version, strict=True)


@pytest.mark.parametrize("name", ["small", "production", "many"])
def test_helm_lints_it_without_a_word(name: str) -> None:
    code, out, err = helm("lint", "--strict", packed(), values=MATRIX[name])
    assert code == 0, out + err
    assert "[WARNING]" not in out
    assert "[ERROR]" not in out
