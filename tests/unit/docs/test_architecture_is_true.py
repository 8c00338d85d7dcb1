"""ARCHITECTURE.md names symbols and paths: each is there. GLOSSARY.md stays short."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
SYMBOLS = sorted(set(re.findall(r"`(lowwater(?:_[a-z]+)?(?:\.[A-Za-z_]+)+)`", TEXT)))
PATHS = sorted(set(re.findall(r"`((?:services|shared|spark|tests|docs|deploy|helm)/[A-Za-z0-9_./-]*)`", TEXT)))
TERMS_MAX = 30


def _find(symbol: str) -> object:
    """A module, or what is in one."""
    parts = symbol.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for name in parts[count:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(symbol)


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_symbol_of_the_architecture_exists(symbol: str) -> None:
    assert _find(symbol) is not None


@pytest.mark.parametrize("path", PATHS)
def test_path_of_the_architecture_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_both_walks_are_there() -> None:
    assert len(SYMBOLS) > 20


def test_glossary_has_at_most_thirty_terms() -> None:
    rows = [line for line in (ROOT / "GLOSSARY.md").read_text().splitlines() if line.startswith("| ")]
    assert len(rows) - 1 <= TERMS_MAX
