"""MySQL and MariaDB by their binary log."""

from collections.abc import Mapping

#: roles of a source kind (tests/conformance) whose module has another name or is missing, and why
ROLES_ELSEWHERE: Mapping[str, str] = {}
