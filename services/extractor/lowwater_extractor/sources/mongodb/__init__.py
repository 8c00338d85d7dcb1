"""The source kind `mongodb`: one change stream over a replica set, and copies by ranges of `_id`."""

from collections.abc import Mapping

#: roles of a source kind (tests/conformance) that have a module of another name here, or none, and why
ROLES_ELSEWHERE: Mapping[str, str] = {}
