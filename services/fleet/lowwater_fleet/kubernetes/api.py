"""A minimal client of the Kubernetes API server, for the runner."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import httpx

from lowwater.errors import BusError, ConfigError
from lowwater_fleet.kubernetes.manifests import DIGEST, MANAGER, KubeOptions, Manifest, ObjectId, Steps, labels

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PATHS = {"ConfigMap": "/api/v1", "Deployment": "/apis/apps/v1"}
_PLURALS = {"ConfigMap": "configmaps", "Deployment": "deployments"}
TIMEOUT_SECONDS = 20.0


class KubernetesError(BusError):
    """The API server rejected a request or does not answer; the runner retries."""


class KubernetesApi:
    """Authenticates with the service account's token. Its file is read for each request, as Kubernetes rotates it."""

    def __init__(self, url: str, namespace: str, token_file: Path | None, ca_file: Path | None) -> None:
        self._namespace = namespace
        self._token_file = token_file
        verify: ssl.SSLContext | bool = True
        if ca_file is not None:
            verify = ssl.create_default_context(cafile=str(ca_file))
        self._client = httpx.Client(base_url=url, verify=verify, timeout=TIMEOUT_SECONDS)

    def close(self) -> None:
        self._client.close()

    def _call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        headers = dict(options.pop("headers", {}))
        if self._token_file is not None:
            try:
                headers["Authorization"] = f"Bearer {self._token_file.read_text().strip()}"
            except OSError as error:
                raise ConfigError(
                    f"the service account's token {self._token_file}: {error.strerror}",
                    hint="run in a pod with a service account, or set --token-file",
                ) from error
        try:
            answer = self._client.request(method, path, headers=headers, **options)
        except httpx.HTTPError as error:
            raise KubernetesError(f"{method} {path}: {error}", hint="check that the API server is reachable") from error
        if answer.status_code == 404 and method == "DELETE":
            return {}
        if answer.is_error:
            hint = "give the service account the role of docs/control.md" if answer.status_code == 403 else "is retried"
            raise KubernetesError(f"{method} {path}: {answer.status_code} {_message(answer)}", hint=hint)
        found: dict[str, Any] = answer.json()
        return found

    def _path(self, kind: str, name: str = "") -> str:
        return f"{_PATHS[kind]}/namespaces/{self._namespace}/{_PLURALS[kind]}" + (f"/{name}" if name else "")

    def found(self, options: KubeOptions) -> dict[ObjectId, str]:
        """The objects of this fleet in the cluster, each with the digest of the manifest applied last."""
        selector = ",".join(f"{name}={value}" for name, value in labels(options).items())
        found: dict[ObjectId, str] = {}
        for kind in _PATHS:
            for item in self._call("GET", self._path(kind), params={"labelSelector": selector})["items"]:
                annotations = item["metadata"].get("annotations") or {}
                found[(kind, item["metadata"]["name"])] = annotations.get(DIGEST, "")
        return found

    def apply(self, manifest: Manifest) -> None:
        """Create or change an object by server-side apply. Idempotent."""
        path = self._path(manifest["kind"], manifest["metadata"]["name"])
        headers = {"Content-Type": "application/apply-patch+yaml"}
        self._call("PATCH", path, params={"fieldManager": MANAGER, "force": "true"}, json=manifest, headers=headers)

    def delete(self, key: ObjectId) -> None:
        self._call("DELETE", self._path(*key), params={"propagationPolicy": "Foreground"})

    def take(self, steps: Steps) -> None:
        for manifest in steps.apply:
            self.apply(manifest)
        for key in steps.delete:
            self.delete(key)


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json().get("message", ""))
    except ValueError:
        return answer.text[:200]
