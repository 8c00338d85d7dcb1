"""Other distributions add source kinds and commands by entry points; a broken one fails by name, and alone."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lowwater.errors import ConfigError
from lowwater.runtime import plugins as module
from lowwater.runtime.plugins import COMMANDS, SOURCE_KINDS, load_plugin, plugins
from lowwater_extractor.sources import kinds, source_class
from lowwater_extractor.sources.postgres.source import Postgres
from lowwater_fleet.cli import main


@pytest.fixture(autouse=True)
def _nothing_is_cached() -> Iterator[None]:
    plugins.cache_clear()
    yield
    plugins.cache_clear()


def _install(monkeypatch: pytest.MonkeyPatch, **points: str | list[str]) -> None:
    """`points`: name → value, or values of several distributions."""

    def found(group: str) -> list[EntryPoint]:
        named = {name: [value] if isinstance(value, str) else value for name, value in points.items()}
        return [EntryPoint(name, value, group) for name, values in named.items() for value in values]

    monkeypatch.setattr(module, "entry_points", found)


def test_devkit_registers_its_kind_and_its_command() -> None:
    assert "simulated_rac" in kinds()
    assert "demo" in plugins(COMMANDS)


def test_kind_of_another_distribution_is_found_and_a_built_in_one_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _install(monkeypatch, csv="pathlib:Path", postgres="pathlib:Path")
    assert source_class("csv").__name__ == "Path"
    assert source_class("postgres") is Postgres


def test_simulated_kind_without_devkit_names_its_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch)
    with pytest.raises(ConfigError) as refused:
        source_class("simulated_rac")
    assert "lowwater-devkit" in (refused.value.hint or "")


def test_one_name_of_two_distributions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, csv=["a:A", "b:B"])
    with pytest.raises(ConfigError, match="both register csv"):
        plugins(SOURCE_KINDS)


def test_plugin_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, csv="no_such_module:A")
    with pytest.raises(ConfigError, match=r"csv of lowwater\.source_kinds \(no_such_module:A\) cannot be loaded"):
        load_plugin(SOURCE_KINDS, "csv")


def test_command_that_cannot_be_loaded_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, broken="no_such_module:run")
    app = typer.Typer()
    app.command("other")(lambda: None)
    monkeypatch.setattr(main, "app", app)
    main._add_plugins()
    assert CliRunner().invoke(app, ["other"]).exit_code == 0
    failed = CliRunner().invoke(app, ["broken", "--keep", "x"])
    assert "no_such_module" in str(failed.exception)


def test_two_distributions_with_one_command_leave_the_others_usable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(monkeypatch, demo=["a:run", "b:run"])
    main._add_plugins()
    assert "both register demo" in capsys.readouterr().err


def test_plugin_that_raises_anything_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "raises_at_import.py").write_text("raise ValueError('broken')")
    monkeypatch.syspath_prepend(str(tmp_path))
    _install(monkeypatch, csv="raises_at_import:A")
    with pytest.raises(ConfigError, match="ValueError: broken"):
        source_class("csv")
