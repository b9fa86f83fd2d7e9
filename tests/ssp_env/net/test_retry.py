"""Retries."""

from __future__ import annotations

import asyncio
import math
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ssp_env.errors import ConfigError, ServiceError, TransientServiceError
from ssp_env.net import RetryPolicy


def failing(times: int, error: BaseException) -> tuple[Callable[[], str], list[int]]:
    """A function that fails ``times`` times and then succeeds, and the record of its calls."""
    calls: list[int] = []

    def function() -> str:
        calls.append(len(calls))
        if len(calls) <= times:
            raise error
        return "done"

    return function, calls


def pauses(policy: RetryPolicy, failures: int) -> list[float]:
    waited: list[float] = []
    function, _ = failing(failures, TransientServiceError("search", "down"))
    assert policy.call(function, sleep=waited.append) == "done"
    return waited


@pytest.mark.parametrize(
    ("settings", "full"),
    [
        ({}, []),
        ({"attempts": 6, "first_delay": 1.0, "max_delay": 5.0}, [1.0, 2.0, 4.0, 5.0, 5.0]),
        ({"first_delay": 9.0, "max_delay": 1.0}, [1.0]),
        ({"attempts": 4, "first_delay": 0.0}, [0.0] * 3),
        ({"attempts": 3000, "first_delay": 8.0}, [8.0] * 2999),  # and does not overflow
    ],
)
def test_pauses_double_up_to_the_limit_and_are_jittered(
    settings: dict[str, Any], full: list[float]
) -> None:
    waited = pauses(RetryPolicy(**settings), len(full))
    assert all(most / 2 <= pause <= most for pause, most in zip(waited, full, strict=True))
    assert len(full) < 10 or len(set(waited)) > 10


@pytest.mark.parametrize(("attempts", "calls_text"), [(1, "1 call"), (3, "3 calls")])
def test_spent_attempts_raise_the_last_failure(attempts: int, calls_text: str) -> None:
    last = TransientServiceError("judge", "HTTP 503")
    function, calls = failing(99, last)
    waited: list[float] = []
    with pytest.raises(ServiceError) as raised:
        RetryPolicy(attempts=attempts).call(function, sleep=waited.append)
    assert type(raised.value) is ServiceError
    assert raised.value.service == "judge"
    assert raised.value.what == f"HTTP 503 (after {calls_text})"
    assert raised.value.__cause__ is last
    assert (len(calls), len(waited)) == (attempts, attempts - 1)


@pytest.mark.parametrize(
    "error", [ServiceError("search", "HTTP 401"), KeyError("bug"), KeyboardInterrupt()]
)
def test_other_errors_are_raised_at_once(error: BaseException) -> None:
    function, calls = failing(1, error)
    with pytest.raises(type(error)) as raised:
        RetryPolicy().call(function, sleep=lambda _: pytest.fail("paused"))
    assert raised.value is error
    assert len(calls) == 1


def test_retries_around_retries_do_not_multiply() -> None:
    function, calls = failing(99, TransientServiceError("search", "down"))
    policy = RetryPolicy(attempts=3, first_delay=0.0)
    with pytest.raises(ServiceError):
        policy.call(lambda: policy.call(function))
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"attempts": 0}, "retry.attempts"),
        ({"first_delay": -1.0}, "retry.first_delay"),
        ({"first_delay": math.nan}, "retry.first_delay"),
        ({"max_delay": -1.0}, "retry.max_delay"),
        ({"max_delay": math.inf}, "retry.max_delay"),
        ({"max_retry_after": -1.0}, "retry.max_retry_after"),
    ],
)
def test_settings_that_cannot_work_are_named(settings: dict[str, float], field: str) -> None:
    with pytest.raises(ConfigError) as raised:
        RetryPolicy(**settings)  # type: ignore[arg-type]
    assert raised.value.field == field


def test_a_service_may_ask_for_a_longer_pause() -> None:
    waited: list[float] = []
    function, _ = failing(2, TransientServiceError("search", "busy", retry_after=7.5))
    policy = RetryPolicy(attempts=3, first_delay=0.1, max_delay=0.2)
    assert policy.call(function, sleep=waited.append) == "done"
    assert waited == [7.5, 7.5]


def test_a_shorter_one_shortens_nothing() -> None:
    waited: list[float] = []
    function, _ = failing(1, TransientServiceError("search", "busy", retry_after=0.0))
    RetryPolicy(first_delay=1.0).call(function, sleep=waited.append)
    assert waited[0] >= 0.5


def test_a_service_that_asks_for_too_much_is_given_up() -> None:
    function, calls = failing(9, TransientServiceError("search", "busy", retry_after=90.0))
    with pytest.raises(
        ServiceError, match=r"busy \(after 1 call; it asks to be left alone for 90 s\)"
    ):
        RetryPolicy(max_retry_after=60.0).call(function, sleep=lambda _: pytest.fail("paused"))
    assert len(calls) == 1


def awaited(function: Callable[[], str]) -> Callable[[], Awaitable[str]]:
    async def coroutine() -> str:
        return function()

    return coroutine


@pytest.mark.parametrize("failures", [0, 2])
def test_coroutines_are_tried_again_as_well(failures: int) -> None:
    function, calls = failing(failures, TransientServiceError("search", "down"))
    policy = RetryPolicy(attempts=3, first_delay=0.001)
    assert asyncio.run(policy.call_async(awaited(function))) == "done"
    assert len(calls) == failures + 1


def test_coroutines_fail_in_the_same_words() -> None:
    function, _ = failing(9, TransientServiceError("search", "down"))
    with pytest.raises(ServiceError, match=r"down \(after 2 calls\)") as raised:
        asyncio.run(RetryPolicy(attempts=2, first_delay=0.0).call_async(awaited(function)))
    assert type(raised.value) is ServiceError


def test_a_pause_that_takes_all_the_time_left_is_not_begun() -> None:
    function, calls = failing(9, TransientServiceError("search", "down"))
    policy = RetryPolicy(attempts=5, first_delay=30.0, max_delay=30.0)
    with pytest.raises(ServiceError, match=r"down \(after 1 call; no time is left for another\)"):
        asyncio.run(policy.call_async(awaited(function), patience=lambda: 10.0))
    assert len(calls) == 1


def test_a_transient_error_survives_pickling_with_its_pause() -> None:
    twin = pickle.loads(pickle.dumps(TransientServiceError("search", "busy", 3.0)))
    assert (twin.service, twin.what, twin.retry_after) == ("search", "busy", 3.0)


def test_the_last_failure_counts_the_calls() -> None:
    function, calls = failing(9, TransientServiceError("search", "down"))
    with pytest.raises(ServiceError) as caught:
        RetryPolicy(attempts=3, first_delay=0.0).call(function)
    assert caught.value.calls == len(calls) == 3
    assert pickle.loads(pickle.dumps(caught.value)).calls == 3
