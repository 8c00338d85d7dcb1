"""`lowwater run-kubernetes`: the runner for Kubernetes. It follows the control topic as `lowwater up` does."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import structlog
import typer

from lowwater.control.desired_state import wanted_fleet
from lowwater.control.fleet_reader import FleetReader
from lowwater.errors import BusError, ConfigError
from lowwater.runtime import logs
from lowwater.runtime.config import Settings
from lowwater_fleet.cli.contract import AsJson, ConfigOption, load, say_json
from lowwater_fleet.cli.operate import codec_of
from lowwater_fleet.kubernetes.api import ACCOUNT, KubernetesApi
from lowwater_fleet.kubernetes.manifests import KubeOptions, manifests, steps
from lowwater_fleet.runner.desired_services import plan
from lowwater_fleet.runner.runner import end_as_by_ctrl_c

#: objects are also reconciled at this interval: they may have been changed manually
LOOK_SECONDS = 30.0
RETRY_SECONDS = 5.0

_log = structlog.get_logger()


def run_kubernetes(
    image: Annotated[str, typer.Option("--image", help="container image of the services", envvar="LOWWATER_IMAGE")],
    config_file: ConfigOption = None,
    namespace: Annotated[str | None, typer.Option(help="default: that of the pod")] = None,
    instance: Annotated[str, typer.Option(help="label that identifies this fleet's objects")] = "lowwater",
    secret: Annotated[list[str] | None, typer.Option(help="a Secret whose keys become environment variables")] = None,
    service_account: Annotated[str, typer.Option(help="service account of the created pods")] = "",
    api: Annotated[str | None, typer.Option(help="URL of the API server; default: that of the pod's cluster")] = None,
    token_file: Annotated[Path | None, typer.Option(help="default: that of the service account")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="default: that of the service account")] = None,
    once: Annotated[bool, typer.Option("--once", help="reconcile once, then exit")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the fleet's services as Deployments: one for each source, and for each group's merger and landing."""
    settings = load(config_file)
    logs.configure(settings)
    end_as_by_ctrl_c()
    options = KubeOptions(image, instance, tuple(secret or ()), service_account)
    server = _api(api, namespace, token_file, ca_file)
    try:
        if once:
            done = Reconciler(settings, server, options).look()
            say_json(done) if as_json else _log.info("reconciled", **done)
            return
        _run(settings, server, options)
    finally:
        server.close()


def _api(url: str | None, namespace: str | None, token_file: Path | None, ca_file: Path | None) -> KubernetesApi:
    if url is not None:
        return KubernetesApi(url, namespace or "default", token_file, ca_file)
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("not running in a Kubernetes pod", hint="set --api, --namespace and --token-file")
    own = ACCOUNT / "namespace"
    found = namespace or (own.read_text().strip() if own.exists() else "default")
    host = f"[{host}]" if ":" in host else host
    return KubernetesApi(
        f"https://{host}:{port}", found, token_file or ACCOUNT / "token", ca_file or ACCOUNT / "ca.crt"
    )


class Reconciler:
    def __init__(self, settings: Settings, api: KubernetesApi, options: KubeOptions) -> None:
        self._settings = settings
        self._api = api
        self._options = options
        self.reader = FleetReader(settings.kafka, codec_of(settings))

    def look(self) -> dict[str, list[str]]:
        """Apply the desired state to the cluster. Returns the objects applied and deleted."""
        fleet = wanted_fleet(self._settings, self.reader.fold)
        wanted = manifests(fleet.settings, plan(fleet, self.reader.fold).values(), self._options)
        todo = steps(wanted, self._api.found(self._options))
        self._api.take(todo)
        return {
            "applied": [f"{m['kind']}/{m['metadata']['name']}" for m in todo.apply],
            "deleted": ["/".join(key) for key in todo.delete],
        }


def _run(settings: Settings, api: KubernetesApi, options: KubeOptions) -> None:
    """Reconcile forever. After an error of Kafka or the API server it starts again from the control topic."""
    while True:
        reconciler: Reconciler | None = None
        try:
            reconciler = Reconciler(settings, api, options)
            looked_at = 0.0
            while True:
                has_word = reconciler.reader.poll(1.0)
                if has_word or time.monotonic() - looked_at > LOOK_SECONDS:
                    looked_at = time.monotonic()
                    done = reconciler.look()
                    if any(done.values()):
                        _log.info("reconciled", **done)
        except BusError as error:
            _log.warning("reconciling failed, retrying", **error.fields())
            time.sleep(RETRY_SECONDS)
        finally:
            if reconciler is not None:
                reconciler.reader.close()
