"""The read endpoints of a schema registry, so that standard Avro deserializers work with this service."""

from __future__ import annotations

import json
import threading
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from lowwater.errors import SchemaError
from lowwater.records.ids import SchemaId
from lowwater.records.schemas import SchemaStore
from lowwater.records.types import SchemaEntry

# error codes of the Confluent Schema Registry: clients use them to tell "no such schema" from "not reachable"
_SCHEMA_NOT_FOUND = 40403
_SUBJECT_NOT_FOUND = 40401
_VERSION_NOT_FOUND = 40402


class _NotFound(Exception):
    def __init__(self, code: int, what: str) -> None:
        super().__init__(what)
        self.code = code


class Lookup:
    """Schemas by id and by subject. Thread-safe: access to the store is locked."""

    def __init__(self, store: SchemaStore) -> None:
        self._store = store
        self._lock = threading.Lock()

    def by_id(self, schema_id: int) -> SchemaEntry:
        with self._lock:
            try:
                return self._store.entry(SchemaId(schema_id))
            except SchemaError:
                raise _NotFound(_SCHEMA_NOT_FOUND, f"Schema {schema_id} not found") from None

    def subjects(self) -> dict[str, list[tuple[int, SchemaEntry]]]:
        """Subject → its schemas in the order of their table versions."""
        with self._lock:
            self._store.refresh()
            entries = self._store.entries()
        found: dict[str, list[tuple[int, SchemaEntry]]] = {}
        for schema_id, entry in entries.items():
            found.setdefault(entry.subject, []).append((schema_id, entry))
        for versions in found.values():
            versions.sort(key=lambda pair: pair[1].version)
        return found

    def versions(self, subject: str) -> list[tuple[int, SchemaEntry]]:
        versions = self.subjects().get(subject)
        if versions is None:
            raise _NotFound(_SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")
        return versions


def add_registry(app: FastAPI, lookup: Lookup) -> None:
    """Add the routes. Errors have the registry's format, not problem details, because its clients expect it."""

    @app.exception_handler(_NotFound)
    def _not_found(_request: Request, error: _NotFound) -> JSONResponse:
        return JSONResponse({"error_code": error.code, "message": str(error)}, status_code=404)

    @app.get("/schemas/ids/{schema_id}", tags=["schemas"])
    def schema(schema_id: int) -> dict[str, Any]:
        """The schema with this id. Every key and value starts with a magic byte and its schema id (four bytes)."""
        return {"schema": lookup.by_id(schema_id).schema, "schemaType": "AVRO"}

    @app.get("/schemas/ids/{schema_id}/schema", tags=["schemas"])
    def schema_text(schema_id: int) -> JSONResponse:
        return JSONResponse(json.loads(lookup.by_id(schema_id).schema))

    @app.get("/schemas/ids/{schema_id}/versions", tags=["schemas"])
    def schema_versions(schema_id: int) -> list[dict[str, Any]]:
        entry = lookup.by_id(schema_id)
        versions = [found_id for found_id, _ in lookup.versions(entry.subject)]
        return [{"subject": entry.subject, "version": versions.index(schema_id) + 1}]

    @app.get("/schemas/types", tags=["schemas"])
    def types() -> list[str]:
        return ["AVRO"]

    @app.get("/subjects", tags=["schemas"])
    def subjects() -> list[str]:
        return sorted(lookup.subjects())

    @app.get("/subjects/{subject}/versions", tags=["schemas"])
    def versions(subject: str) -> list[int]:
        return list(range(1, len(lookup.versions(subject)) + 1))

    @app.get("/subjects/{subject}/versions/{version}", tags=["schemas"])
    def version(subject: str, version: str) -> dict[str, Any]:
        found = lookup.versions(subject)
        number = len(found) if version in ("latest", "-1") else int(version) if version.isdigit() else 0
        if not 1 <= number <= len(found):
            raise _NotFound(_VERSION_NOT_FOUND, f"Version {version} not found.")
        schema_id, entry = found[number - 1]
        body = {"subject": subject, "version": number, "id": schema_id}
        return {**body, "schema": entry.schema, "schemaType": "AVRO"}
