"""The modes as settings, and the stream of the one that follows nothing."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from lowwater.errors import CodecError, StartRefusedError
from lowwater.records.positions import Order
from lowwater_extractor.incremental.cursors import Cursors
from lowwater_extractor.modes import Mode, ModesConfig, mode_of, refuse_other_mode
from lowwater_extractor.snapshot.refresh import RefreshStream
from lowwater_extractor.sources import kinds, source_class

CURSOR = {"primary": "at"}


@pytest.mark.parametrize("kind", ["postgres", "turso"])
def test_a_kind_has_the_modes_with_the_same_settings(kind: str) -> None:
    assert kind in kinds()
    model = source_class(kind).config_model
    assert issubclass(model, ModesConfig)
    for name in ("mode", "cursors", "poll_seconds"):
        assert model.model_fields[name].annotation == ModesConfig.model_fields[name].annotation


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mode": "sometimes"}, "mode"),
        ({"poll_seconds": 1}, "poll_seconds: for mode: incremental only"),
        ({"mode": "full_refresh", "cursors": {"a.t": CURSOR}}, "cursors: for mode: incremental only"),
        ({"mode": "incremental"}, "no cursor for a.t"),
        ({"mode": "incremental", "cursors": {"a.t": CURSOR, "b.u": CURSOR}}, "a cursor for b.u"),
        ({"mode": "incremental", "cursors": {"a.t": {**CURSOR, "overlap": -1}}}, "overlap"),
        ({"mode": "incremental", "cursors": {"a.t": {}}}, "primary"),
    ],
)
def test_settings_that_do_not_fit_their_mode_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ModesConfig(tables=["a.t"], **settings)


def test_only_a_log_is_followed() -> None:
    modes: list[Mode] = ["cdc", "incremental", "full_refresh"]
    made = [ModesConfig(tables=["a.*"], mode=mode) for mode in modes]
    assert [config.has_log for config in made] == [True, False, False]


@pytest.mark.parametrize(
    ("resume", "mode"),
    [
        (b"0/16B3748 {}", "cdc"),
        (b'{"change_id": 7, "change_time": 1, "change_txn_id": 5}', "cdc"),
        (Cursors(5).pack(), "incremental"),
        (RefreshStream(None, lambda: 7).poll(frozenset()).marks[1].resume, "full_refresh"),
    ],
)
def test_a_position_tells_its_mode(resume: bytes, mode: Mode) -> None:
    assert mode_of(resume) == mode
    refuse_other_mode(mode, "s", resume)
    for other in {"cdc", "incremental", "full_refresh"} - {mode}:
        with pytest.raises(StartRefusedError, match=f"captured in the mode {mode}"):
            refuse_other_mode(other, "s", resume)  # type: ignore[arg-type]


def test_the_marks_of_a_refresh_go_with_the_time_and_never_back() -> None:
    times = iter([10, 20, 15, 30])
    stream = RefreshStream(None, lambda: next(times))
    orders = [stream.poll(frozenset()).marks[1].order for _ in range(3)]
    assert orders == [Order.mark(20), Order.mark(20), Order.mark(30)]
    assert stream.end_of_log()() == Order.mark(30)


def test_a_refresh_goes_on_behind_its_last_mark() -> None:
    resume = RefreshStream(None, lambda: 50).poll(frozenset()).marks[1].resume
    assert RefreshStream(resume, lambda: 5).poll(frozenset()).marks[1].order == Order.mark(50)
    with pytest.raises(CodecError, match="full_refresh"):
        RefreshStream(b"0/1")
