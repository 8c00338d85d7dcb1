"""MySQL and MariaDB by their binary log."""

from collections.abc import Mapping

#: roles of a source kind (tests/conformance) that have a module of another name here, or none, and why
ROLES_ELSEWHERE: Mapping[str, str] = {}
