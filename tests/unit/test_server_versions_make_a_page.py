"""docs/versions.md is made of what the tests reported."""

from __future__ import annotations

from pathlib import Path

from tests.support.server_versions import Ran, page, record, reports


def test_the_last_report_of_a_suite_and_server_counts(tmp_path: Path) -> None:
    record("differential", "mysql", "8.0.12", tmp_path)
    record("differential", "mysql", "8.0.13-log", tmp_path)
    record("conformance", "mysql", "8.0.13-log", tmp_path)
    assert reports(tmp_path) == [Ran("conformance", "mysql", "8.0.13-log"), Ran("differential", "mysql", "8.0.13-log")]


def test_a_server_is_one_line_whatever_the_suites_call_it() -> None:
    text = page([
        Ran("conformance", "postgres-14", "14.24 (Debian)"), Ran("differential", "postgres14", "14.24"),
        Ran("differential", "postgres18", "18.6"),
    ])  # fmt: skip
    assert [line for line in text.splitlines() if line.startswith("| PostgreSQL")] == [
        "| PostgreSQL | 14.24 | yes | yes |",
        "| PostgreSQL | 18.6 |  | yes |",
    ]


def test_versions_are_sorted_as_numbers() -> None:
    text = page([Ran("differential", "mysql", "10.1"), Ran("differential", "mysql9", "9.7.4")])
    lines = [line.split("|")[2].strip() for line in text.splitlines() if line.startswith("| MySQL")]
    assert lines == ["9.7.4", "10.1"]
