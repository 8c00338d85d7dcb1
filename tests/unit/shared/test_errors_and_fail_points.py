"""An error says what, where and what to do; a fail point kills the process exactly where it is asked to."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from confluent_kafka import KafkaError, KafkaException

from lowwater import errors
from lowwater.errors import (
    BusDoubtError,
    BusError,
    BusFatalError,
    BusRefusedError,
    DataGoneError,
    FencedError,
    LateError,
    LowwaterError,
    MergeError,
)
from lowwater.kafka.client import as_bus_error
from lowwater.runtime.failpoints import FAIL_POINTS


def test_an_error_says_what_where_and_what_to_do() -> None:
    error = LateError("it came too late", source="rac", thread=2, position="5.1", hint="skip it")
    assert str(error) == "it came too late [source rac, thread 2, position 5.1] (skip it)"
    assert str(LowwaterError("only this")) == "only this"
    assert str(LowwaterError("here", thread=0)) == "here [thread 0]", "thread 0 is a thread"


def test_an_errors_fields_are_those_of_logs_and_status() -> None:
    fields = LateError("late", source="rac", hint="skip it").fields()
    assert fields == {
        "error": "LateError", "what": "late", "source": "rac", "thread": None, "position": None, "hint": "skip it",
    }  # fmt: skip
    assert json.loads(json.dumps(fields)) == fields


def test_the_tree_at_the_top_of_the_file_is_the_tree_of_the_classes() -> None:
    drawn = set(re.findall(r"(\w+Error)", errors.__doc__ or ""))
    there = {name for name, found in vars(errors).items() if isinstance(found, type) and name.endswith("Error")}
    assert drawn == there
    assert issubclass(LateError, MergeError)
    assert all(issubclass(getattr(errors, name), LowwaterError) for name in there)


@pytest.mark.parametrize(
    ("code", "fatal", "named"),
    [
        (KafkaError._FENCED, True, FencedError),
        (KafkaError.INVALID_PRODUCER_EPOCH, False, FencedError),
        (KafkaError.OFFSET_OUT_OF_RANGE, False, DataGoneError),
        (KafkaError._FATAL, True, BusFatalError),
        (KafkaError._TIMED_OUT, False, BusDoubtError),
        (KafkaError._STATE, False, BusDoubtError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False, BusRefusedError),
        (KafkaError._AUTHENTICATION, False, BusRefusedError),
        (KafkaError._SSL, False, BusRefusedError),
        (KafkaError.INVALID_REQUEST, False, BusError),
    ],
)
def test_what_kafka_says_has_a_name_of_ours(code: int, fatal: bool, named: type[LowwaterError]) -> None:
    said = KafkaError(code, "the broker's words", fatal=fatal)
    for error in (as_bus_error(said, "commit"), as_bus_error(KafkaException(said), "commit")):
        assert type(error) is named
        assert error.what == "commit: the broker's words"


def _run(fail_at: str, *here: str) -> tuple[int, str]:
    code = (
        "import sys\nfrom lowwater.runtime.failpoints import fail_point\n"
        "for h in sys.argv[1:]:\n fail_point(h); print(h)"
    )
    environment = {**os.environ, "LOWWATER_FAIL_AT": fail_at, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *here], capture_output=True, text=True, env=environment, timeout=30, check=False
    )
    return done.returncode, done.stdout if done.returncode in (0, -signal.SIGKILL) else done.stderr


def test_a_fail_point_kills_at_the_first_pass_or_at_the_one_that_is_named() -> None:
    first, second = list(FAIL_POINTS)[:2]
    assert _run("", first, second) == (0, f"{first}\n{second}\n")
    assert _run(second, first, second, first) == (-signal.SIGKILL, f"{first}\n")
    assert _run(f"{first}:2", first, second, first) == (-signal.SIGKILL, f"{first}\n{second}\n")
    assert _run(f"{first}:3", first, first) == (0, f"{first}\n{first}\n")


def test_a_fail_point_that_does_not_exist_is_refused_with_those_that_do() -> None:
    code, said = _run("extractor.nowhere")
    assert code == 1
    assert "no such fail point" in said
    assert "merger.committed" in said
