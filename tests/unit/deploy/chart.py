"""The chart, rendered by the real Helm."""

from __future__ import annotations

import atexit
import copy
import json
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from deploy.chart import stage

REPOSITORY = Path(__file__).resolve().parents[3]
CHART = REPOSITORY / "helm/lowwater"
HELM = Path(sys.executable).parent / "helm"

Object = dict[str, Any]

#: the least that is needed
LEAST: dict[str, Any] = {
    "kafka": {"bootstrapServers": "kafka:9092"},
    "sources": {"bank": {"kind": "postgres", "config": {"host": "db"}}},
    "groups": {"bank": {"sources": ["bank"], "lake": {"uri": "s3://bucket/bank"}}},
    "control": {
        "tokens": [{"name": "ops", "role": "operate", "secretKey": "ops"}],
        "existingSecret": "tokens",
    },
}


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """As Helm does it: mappings are merged, all else is replaced, None takes away."""
    made = copy.deepcopy(base)
    for key, value in change.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict) and isinstance(made.get(key), dict):
            made[key] = merged(made[key], value)
        else:
            made[key] = copy.deepcopy(value)
    return made


@cache
def packed() -> str:
    """The chart as it is packaged, with its alerts and dashboards."""
    directory = Path(tempfile.mkdtemp(prefix="lowwater-chart-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return str(stage(directory))


def values_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / f"values-{name}.yaml").read_text())
    return found


def helm(*arguments: str, values: dict[str, Any]) -> tuple[int, str, str]:
    command = [str(HELM), *arguments, "--values", "-"]
    done = subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def render(values: dict[str, Any]) -> list[Object]:
    """The same values are rendered once: what comes out is only looked at."""
    return _rendered(json.dumps(values, sort_keys=True))


@cache
def _rendered(values: str) -> list[Object]:
    code, out, err = helm("template", "lw", packed(), "--namespace", "cdc", values=json.loads(values))
    assert code == 0, err
    return [found for found in yaml.load_all(out, Loader=yaml.CSafeLoader) if found]


def refused(values: dict[str, Any]) -> str:
    """The words with which these values are refused."""
    code, _, err = helm("template", "lw", packed(), values=values)
    assert code != 0
    return err


def of_kind(objects: list[Object], kind: str, component: str | None = None) -> list[Object]:
    found = [o for o in objects if o["kind"] == kind]
    if component is None:
        return found
    return [o for o in found if o["metadata"]["labels"]["app.kubernetes.io/component"] == component]


def one(objects: list[Object], kind: str, component: str | None = None) -> Object:
    (found,) = of_kind(objects, kind, component)
    return found


def pod_of(found: Object) -> Object:
    pod: Object = found["spec"]["template"]["spec"] if "template" in found["spec"] else found["spec"]
    return pod


def fleet_of(objects: list[Object]) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(one(objects, "ConfigMap", "config")["data"]["fleet.yaml"])
    return config
