"""Each relative link of a document names a file, and each document is reached from the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[3]
_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
_NOT_OURS = {".venv", ".jars", "node_modules", ".git", ".pytest_cache"}


def _documents() -> list[Path]:
    return sorted(p for p in _ROOT.rglob("*.md") if not _NOT_OURS & set(p.relative_to(_ROOT).parts))


def _targets(document: Path) -> list[Path]:
    links = _LINK.findall(document.read_text())
    return [(document.parent / link).resolve() for link in links if ":" not in link]


@pytest.mark.parametrize("document", [str(p.relative_to(_ROOT)) for p in _documents()])
def test_links_of_a_document_exist(document: str) -> None:
    missing = [str(target) for target in _targets(_ROOT / document) if not target.exists()]
    assert not missing


def test_index_reaches_each_page_of_docs() -> None:
    index = _ROOT / "docs" / "README.md"
    reached = {index, *_targets(index)}
    for page in [*reached]:
        if page.suffix == ".md":
            reached |= set(_targets(page))
    pages = {p for p in _documents() if p.is_relative_to(_ROOT / "docs")}
    assert not {p for p in pages if p not in reached and not reached & set(p.parents)}
