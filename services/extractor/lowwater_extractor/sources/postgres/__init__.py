"""The source kind `postgres`: PostgreSQL 14 to 18, by logical replication (pgoutput)."""

from collections.abc import Mapping

#: roles of a source kind (tests/conformance) whose module has another name or is missing, and why
ROLES_ELSEWHERE: Mapping[str, str] = {}
