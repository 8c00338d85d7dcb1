"""The source kind `postgres`: PostgreSQL 14 to 18, by logical replication (pgoutput)."""

from collections.abc import Mapping

#: roles of a source kind (tests/conformance) that have a module of another name here, or none, and why
ROLES_ELSEWHERE: Mapping[str, str] = {}
