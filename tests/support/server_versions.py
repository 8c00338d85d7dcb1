"""Which servers the tests ran against. Each of them leaves a small report; docs/versions.md is made of these:

make test ARGS="tests/conformance tests/differential" && .venv/bin/python -m tests.support.server_versions
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

_ROOT = Path(__file__).parent.parent.parent
REPORTS = _ROOT / ".lowwater" / "server-versions"
PAGE = _ROOT / "docs" / "versions.md"
SUITES = ("conformance", "differential")

_HEAD = """\
# Servers that the tests were run against

Made by `python -m tests.support.server_versions` from the reports of the tests: the last version of each server that
ran in a suite. [conformance](../tests/conformance) is what every source kind promises;
[differential](../tests/differential) compares the lake with the database after random workloads.

"""


@dataclass(frozen=True)
class Ran:
    suite: str
    #: as the suite names it: `postgres18`
    kind: str
    #: as the server says it
    version: str


def record(suite: str, kind: str, version: str, directory: Path = REPORTS) -> None:
    """A file for each, so that processes which run tests at the same time do not meet."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{suite}-{kind}.json"
    part = path.with_suffix(f".{id(path)}.part")
    part.write_text(json.dumps(asdict(Ran(suite, kind, version))))
    part.replace(path)


def reports(directory: Path = REPORTS) -> list[Ran]:
    return [Ran(**json.loads(path.read_text())) for path in sorted(directory.glob("*.json"))]


def page(found: Iterable[Ran]) -> str:
    """A line for each server, a column for each suite."""
    servers: dict[tuple[str, str], set[str]] = {}
    for ran in found:
        servers.setdefault((_server(ran), _number(ran.version)), set()).add(ran.suite)
    lines = [f"| server | version | {' | '.join(SUITES)} |", "|---|---|" + "---|" * len(SUITES)]
    for (server, number), suites in sorted(servers.items(), key=lambda item: (item[0][0], _sorted(item[0][1]))):
        lines.append(f"| {server} | {number} | {' | '.join('yes' if s in suites else '' for s in SUITES)} |")
    return _HEAD + "\n".join(lines) + "\n"


_NAMES = {"postgres": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB", "mongodb": "MongoDB", "turso": "Turso",
          "oracle": "Oracle, simulated redo", "simulated": "Oracle, simulated redo"}  # fmt: skip


def _server(ran: Ran) -> str:
    kind = re.match(r"[a-z]+", ran.kind)
    return _NAMES.get(kind.group(0), ran.kind) if kind else ran.kind


def _number(version: str) -> str:
    found = re.search(r"\d+(\.\d+)+", version)
    return found.group(0) if found else version


def _sorted(number: str) -> list[int]:
    return [int(part) for part in number.split(".") if part.isdigit()]


def main() -> None:
    found = reports()
    if not found:
        sys.exit(f"no reports in {REPORTS}: run tests/conformance and tests/differential first")
    PAGE.write_text(page(found))
    print(f"{PAGE}: {len(found)} reports")


if __name__ == "__main__":
    main()
