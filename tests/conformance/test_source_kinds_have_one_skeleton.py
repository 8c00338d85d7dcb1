"""The same role has the same file name in every source kind.

A kind that has a role elsewhere, or not at all, declares it in `ROLES_ELSEWHERE` of its package: the role, and the
module that has it, or why there is none.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import lowwater_extractor.sources

_SOURCES = Path(lowwater_extractor.sources.__path__[0])
KINDS = ("mongodb", "mysql", "oracle", "postgres", "turso")
#: role → what its module does
ROLES = {
    "source": "the Source: what api.py asks of a kind",
    "config": "its settings",
    "connect": "connections and the errors of the driver",
    "checks": "what `lowwater check` looks for",
    "metrics": "its own metrics",
    "catalogue": "what the database says of its tables",
    "position": "the position in its log, and how it is packed",
    "stream": "polls the log",
    "assembler": "from log records to committed transactions, without I/O",
    "relations": "one version of a captured table: from its rows to frames",
    "types": "from the database's types to ours",
    "wire": "the format of the log and the protocol",
    "snapshot/view": "one state of the database that copies are read from",
    "snapshot/chunks": "how a table is cut into chunks",
    "snapshot/read": "the rows of a chunk",
    "cursor": "the mode `incremental`",
}


def _path(kind: str, role: str) -> Path:
    module = _SOURCES / kind / role
    return module if module.is_dir() else module.with_suffix(".py")


@pytest.mark.parametrize("kind", KINDS)
def test_each_role_is_in_the_module_of_its_name_or_declared_elsewhere(kind: str) -> None:
    elsewhere = importlib.import_module(f"lowwater_extractor.sources.{kind}").ROLES_ELSEWHERE
    missing = {role for role in ROLES if not _path(kind, role).exists()}
    assert missing == set(elsewhere), "roles without a module, and those that the kind declares"


@pytest.mark.parametrize("kind", KINDS)
def test_modules_that_a_kind_declares_for_a_role_exist(kind: str) -> None:
    elsewhere = importlib.import_module(f"lowwater_extractor.sources.{kind}").ROLES_ELSEWHERE
    for role, where in elsewhere.items():
        is_module = " " not in where
        assert not is_module or _path(kind, where).exists(), f"{kind}: {role} is said to be in {where}"
