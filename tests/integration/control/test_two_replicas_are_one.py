"""Any number of replicas: what one is told, the others know; what two are told at once, one of them did first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conftest import NewFleet
from tests.support.api import Api
from tests.support.harness import Fleet, wait_until

from lowwater_fleet.runner.ports import free_port


@pytest.fixture
def pair(new_fleet: NewFleet) -> Iterator[tuple[Fleet, Api, Api]]:
    fleet = new_fleet(control={"requests_per_second": 100_000})
    first, second = Api(fleet.control()), Api(fleet.control(free_port()))
    yield fleet, first.wait(), second.wait()
    first.close()
    second.close()


def test_a_word_to_one_is_known_to_the_other_and_survives_both(pair: tuple[Fleet, Api, Api]) -> None:
    fleet, first, second = pair
    source = fleet.sources[0]
    first.put(f"/v1/sources/{source}/pause", {"reason": "said to one"})
    assert first.get(f"/v1/sources/{source}/status")["reason"] == "said to one"
    second.wait_for(f"/v1/sources/{source}/status", "the word", lambda s: s["reason"] == "said to one", 5)
    first.service.kill()
    second.service.kill()
    third = Api(fleet.control()).wait()
    assert third.get(f"/v1/sources/{source}/status")["wanted"] == "paused", "nothing was theirs alone"
    third.close()


def test_of_words_at_the_same_moment_each_counts_or_is_a_conflict(pair: tuple[Fleet, Api, Api]) -> None:
    fleet, first, second = pair
    source = fleet.sources[0]
    answers: list[Any] = []

    def say(api: Api, number: int) -> None:
        for n in range(10):
            body = {"reason": f"{number}-{n}"}
            answers.append(api.client.put(f"/v1/sources/{source}/{('pause', 'resume')[n % 2]}", json=body))

    writers = [threading.Thread(target=say, args=(api, number)) for number, api in enumerate((first, second))]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    counted = [a.json()["version"] for a in answers if a.status_code == 202]
    assert {a.status_code for a in answers} <= {202, 409}
    assert sorted(counted) == list(range(1, len(counted) + 1)), "each version has one writer"
    wait_until(
        "both agree",
        lambda: (
            first.get(f"/v1/sources/{source}/status")["version"]
            == second.get(f"/v1/sources/{source}/status")["version"]
            == len(counted)
        ),
        10,
    )
