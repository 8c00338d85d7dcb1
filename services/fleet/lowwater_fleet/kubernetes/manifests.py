"""Manifests of the desired fleet: a Deployment and a ConfigMap for each service. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lowwater.runtime.config import HttpConfig, Settings
from lowwater_fleet.runner.desired_services import OPTIONS, Planned, config_text, part_of

PORT = 8000
STATE = "/var/lib/lowwater"
CONFIG = "/etc/lowwater"
MANAGER = "lowwater-runner"
DIGEST = "lowwater.io/manifest"
_LISTEN = HttpConfig(host="0.0.0.0", port=PORT)

Manifest = dict[str, Any]
#: kind and name of an object
ObjectId = tuple[str, str]


@dataclass(frozen=True)
class KubeOptions:
    image: str
    #: distinguishes the objects of this fleet from those of another one in the same namespace
    instance: str = "lowwater"
    #: Secrets whose keys become environment variables, for `${env:…}` in configs
    secrets: tuple[str, ...] = ()
    service_account: str = ""
    pull_policy: str = "IfNotPresent"
    #: by service, as in a container spec: {"spark": {"requests": {"memory": "2Gi"}}}
    resources: Mapping[str, Any] = field(default_factory=dict)


def labels(options: KubeOptions, service: str = "", name: str = "") -> dict[str, str]:
    found = {"app.kubernetes.io/managed-by": MANAGER, "app.kubernetes.io/instance": options.instance}
    if service:
        found |= {"app.kubernetes.io/component": service, "lowwater.io/name": name}
    return found


def object_name(options: KubeOptions, planned: Planned) -> str:
    """The name of the service's objects. `_` is replaced, and long names are cut; both then end with a hash, so that
    names stay unique."""
    name = f"{options.instance}-{planned.key}"
    plain = name.replace("_", "-")
    if plain != name or len(plain) > 60:
        plain = f"{plain[:50].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return plain


def manifests(settings: Settings, plan: Iterable[Planned], options: KubeOptions) -> dict[ObjectId, Manifest]:
    found: dict[ObjectId, Manifest] = {}
    for planned in plan:
        name = object_name(options, planned)
        text = config_text(_in_a_pod(part_of(settings, planned.service, planned.name)))
        for manifest in (_config_map(name, planned, text, options), _deployment(name, planned, text, options)):
            metadata = manifest["metadata"]
            metadata["annotations"] = {DIGEST: _digest(manifest)}
            found[(manifest["kind"], name)] = manifest
    return found


def _in_a_pod(settings: Settings) -> Settings:
    """The settings with the address and the state directory of a pod."""
    sources = {name: s.model_copy(update={"http": _LISTEN}) for name, s in settings.sources.items()}
    groups = {
        name: g.model_copy(update={"http": _LISTEN, "land": g.land.model_copy(update={"http": _LISTEN})})
        for name, g in settings.groups.items()
    }
    return settings.model_copy(update={"sources": sources, "groups": groups, "state_directory": Path(STATE)})


def _config_map(name: str, planned: Planned, text: str, options: KubeOptions) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels(options, planned.service, planned.name)},
        "data": {"fleet.yaml": text},
    }


def _deployment(name: str, planned: Planned, text: str, options: KubeOptions) -> Manifest:
    own = labels(options, planned.service, planned.name)
    selector = {
        key: own[key] for key in ("app.kubernetes.io/instance", "app.kubernetes.io/component", "lowwater.io/name")
    }
    # a changed config restarts the pod
    annotations = {"lowwater.io/config": hashlib.sha256(text.encode()).hexdigest()[:16]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": own},
        "spec": {
            "replicas": int(planned.is_up),
            # no rolling update: a second pod would only fence the first
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": own, "annotations": annotations},
                "spec": _pod(name, planned, options),
            },
        },
    }


def _pod(name: str, planned: Planned, options: KubeOptions) -> dict[str, Any]:
    container = {
        "name": planned.service,
        "image": options.image,
        "imagePullPolicy": options.pull_policy,
        "command": [f"lowwater-{planned.service}"],
        "args": ["--config", f"{CONFIG}/fleet.yaml", OPTIONS[planned.service], planned.name],
        "envFrom": [{"secretRef": {"name": secret}} for secret in options.secrets],
        "ports": [{"name": "http", "containerPort": PORT}],
        "livenessProbe": {"httpGet": {"path": "/health/live", "port": "http"}, "periodSeconds": 20},
        "readinessProbe": {"httpGet": {"path": "/health/ready", "port": "http"}, "periodSeconds": 10},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG, "readOnly": True},
            {"name": "state", "mountPath": STATE},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
        "resources": options.resources.get(planned.service, {}),
    }
    spec: dict[str, Any] = {
        "containers": [container],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 60,
        "volumes": [
            {"name": "config", "configMap": {"name": name}},
            {"name": "state", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    if options.service_account:
        spec["serviceAccountName"] = options.service_account
    return spec


def _digest(manifest: Manifest) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Steps:
    """The changes that bring the cluster to its desired state."""

    #: ConfigMaps first, so that a new pod finds its config
    apply: list[Manifest]
    #: Deployments first, so that pods end before their config is deleted
    delete: list[ObjectId]


def steps(wanted: Mapping[ObjectId, Manifest], found: Mapping[ObjectId, str]) -> Steps:
    """The objects to apply and to delete. `found`: the digest of each object of this fleet in the cluster."""
    changed = [m for key, m in wanted.items() if found.get(key) != m["metadata"]["annotations"][DIGEST]]
    gone = [key for key in found if key not in wanted]
    return Steps(
        sorted(changed, key=lambda m: m["kind"] != "ConfigMap"), sorted(gone, key=lambda key: key[0] != "Deployment")
    )
