"""Config, tables and identity, before anything is read."""

from __future__ import annotations

import pytest
from tests.conformance.kit import SOURCE, Kit, Setup
from tests.conformance.kits import KITS

from lowwater.errors import ConfigError
from lowwater_extractor.sources import kinds, open_source


def test_every_kind_has_a_kit() -> None:
    assert sorted(kinds()) == sorted({kit.kind for kit in KITS})


def test_a_kind_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="no_such_kind") as refused:
        open_source(SOURCE, "no_such_kind", {})
    assert all(kind in str(refused.value) for kind in kinds())


def test_a_wrong_config_is_an_error_that_names_the_field(setup: Setup) -> None:
    for field, config in setup.kit.wrong_configs(setup.directory).items():
        with pytest.raises(ConfigError) as refused:
            open_source(SOURCE, setup.kit.kind, config)
        assert field in refused.value.what
        assert refused.value.source == SOURCE


def test_the_kind_has_the_name_that_it_is_registered_under(setup: Setup, kit: Kit) -> None:
    assert setup.open().kind == kit.kind


def test_tables_are_discovered_with_columns_and_keys(setup: Setup, kit: Kit) -> None:
    found = {t.full_name: (tuple(c.name for c in t.columns), t.key) for t in setup.open().discover()}
    assert found == dict(kit.tables())
    assert {t.source for t in setup.open().discover()} == {SOURCE}


def test_the_incarnation_is_the_same_when_it_is_opened_again_and_after_work(setup: Setup) -> None:
    before = setup.open().incarnation()
    assert before
    setup.database.work(5)
    assert setup.open().incarnation() == before
