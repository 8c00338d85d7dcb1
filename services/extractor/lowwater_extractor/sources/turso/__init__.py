"""The source kind `turso`: a Turso database file that other processes write, captured from its CDC table."""

from collections.abc import Mapping

#: roles of a source kind (tests/conformance) that have a module of another name here, or none, and why
ROLES_ELSEWHERE: Mapping[str, str] = {
    "types": "schema/definitions",
    "snapshot/chunks": "snapshot/view",
}
