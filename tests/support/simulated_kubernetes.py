"""A simulated API server of Kubernetes: it keeps objects, and knows the few calls of the runner. There is no real one
to be had here; its objects are checked against the real schemas by `kubernetes-validate`."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

TOKEN = "account-token"
VERSION = "1.30"


class SimulatedKubernetes:
    def __init__(self) -> None:
        #: by the path of their kind, then by name
        self.objects: dict[str, dict[str, dict[str, Any]]] = {}
        self.calls: list[tuple[str, str]] = []
        #: answered to everything, if set
        self.refuse_with: int | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def names(self, kind: str) -> list[str]:
        return sorted(name for path, found in self.objects.items() if path.endswith(kind) for name in found)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return next(found[name] for path, found in self.objects.items() if path.endswith(kind))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, Any]:
        self.calls.append((method, path))
        if method == "GET":
            wanted = dict(pair.split("=") for pair in query["labelSelector"][0].split(","))
            items = [
                o for o in self.objects.get(path, {}).values() if wanted.items() <= o["metadata"]["labels"].items()
            ]
            return 200, {"items": items}
        place, _, name = path.rpartition("/")
        if method == "DELETE":
            gone = self.objects.get(place, {}).pop(name, None)
            return (200, {}) if gone else (404, {"message": "not found"})
        if query.get("fieldManager") != ["lowwater-runner"]:
            return 400, {"message": "PATCH without a field manager"}
        manifest = json.loads(body)
        kubernetes_validate.validate(manifest, VERSION, strict=True)
        self.objects.setdefault(place, {})[name] = manifest
        return 200, manifest


def _handler(cluster: SimulatedKubernetes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size)
            parts = urlsplit(self.path)
            if cluster.refuse_with is not None:
                status, found = cluster.refuse_with, {"message": "refused by the test"}
            elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
                status, found = 401, {"message": "Unauthorized"}
            else:
                status, found = cluster.answer(self.command, parts.path, parse_qs(parts.query), body)
            text = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PATCH = do_DELETE = _answer

        def log_message(self, format: str, *args: Any) -> None:
            """The tests look at `calls`."""

    return Handler
