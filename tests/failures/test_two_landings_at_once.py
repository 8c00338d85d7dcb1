"""Two landing applications of one group: each landing has one winner, and no manifest names a file that is gone."""

from __future__ import annotations

import os
import signal
import time

import pytest

from lowwater.lake.read.verify import verify
from lowwater.lake.store.base import open_lake_store
from lowwater_fleet.runner.services import Service
from tests.support.bank_topic import Watcher, until
from tests.support.landed import Landed

FENCED = 3


def _pid(service: Service) -> int:
    assert service.process is not None
    return service.process.pid


def _check(landed: Landed) -> None:
    landed.bank.check(landed.lake)
    assert not [d for d in verify(open_lake_store(landed.lake)) if not d.rubbish]


@pytest.mark.long
@pytest.mark.parametrize("landed", ["local"], indirect=True)
def test_both_run(landed: Landed) -> None:
    with Watcher(landed.lake):
        first = landed.start()
        landed.bank.work(5)
        landed.wait_for_all(first)
        second = landed.start()
        deadline = time.monotonic() + 90
        while first.is_running and second.is_running and time.monotonic() < deadline:
            landed.bank.work(2)
            time.sleep(0.1)
        fenced, stays = (first, second) if second.is_running else (second, first)
        assert fenced.wait(30) == FENCED, landed.log()
        landed.bank.work(5)
        landed.wait_for_all(stays)
        stays.stop()
    _check(landed)


def _is_stopped(service: Service) -> bool:
    with open(f"/proc/{_pid(service)}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "T"


@pytest.mark.parametrize("landed", ["local", pytest.param("s3", marks=pytest.mark.long)], indirect=True)
def test_one_is_stopped_just_before_its_manifest_and_woken_after_the_other_took_over(landed: Landed) -> None:
    with Watcher(landed.lake):
        first = landed.start(LOWWATER_STOP_AT="land.files_written:2")
        landed.wait_for_all(first)
        landed.bank.work(5)
        until(lambda: _is_stopped(first), 60, "the first to be stopped before its second manifest")
        second = landed.start()
        landed.bank.work(5)
        landed.wait_for_all(second)
        os.kill(_pid(first), signal.SIGCONT)
        assert first.wait(60) == FENCED, landed.log()
        assert "cannot land" in landed.log(), "the error says what it is"
        landed.bank.work(5)
        landed.wait_for_all(second)
        second.stop()
    _check(landed)
