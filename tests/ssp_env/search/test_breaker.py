"""The circuit breaker, by a clock that the tests set."""

from __future__ import annotations

import re
import threading

import pytest

from ssp_env.errors import ServiceError
from ssp_env.search.client.breaker import CircuitBreaker


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker("http://h", 3, 5.0, clock)


def fail(breaker: CircuitBreaker, times: int = 1) -> None:
    for i in range(times):
        breaker.leave(f"reason {i}", breaker.enter())


def test_it_opens_after_failures_in_a_row(breaker: CircuitBreaker) -> None:
    fail(breaker, 2)
    breaker.answered()
    fail(breaker, 2)
    breaker.leave(None, breaker.enter())
    assert not breaker.open
    fail(breaker)
    assert breaker.open


def test_open_it_says_what_happened_and_when_it_ends(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 2
    text = "http://h was not called: its last 3 requests failed, the next one is tried in 3.0 s; "
    text += "the last failure: reason 2"
    with pytest.raises(ServiceError, match=re.escape(text)):
        breaker.enter()


def test_one_request_tries_and_its_success_closes(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 5
    trying = breaker.enter()
    assert trying
    with pytest.raises(ServiceError, match="one is being tried now"):
        breaker.enter()
    breaker.answered()
    breaker.leave(None, trying)
    assert breaker.enter() is False
    fail(breaker, 2)
    assert not breaker.open


def test_its_failure_opens_anew(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 5
    breaker.leave("still", breaker.enter())
    clock.now += 4.9
    with pytest.raises(ServiceError, match="still"):
        breaker.enter()
    clock.now += 0.2
    assert breaker.enter() is True


def test_a_try_that_tells_nothing_lets_the_next_one_try(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    fail(breaker, 3)
    clock.now += 5
    breaker.leave(None, breaker.enter())
    assert breaker.open
    assert breaker.enter() is True


def test_requests_from_before_it_opened(breaker: CircuitBreaker, clock: Clock) -> None:
    before = [breaker.enter() for _ in range(2)]
    fail(breaker, 3)
    clock.now += 4
    breaker.leave("late", before[0])  # adds nothing to the wait
    clock.now += 1
    trying = breaker.enter()
    assert trying
    breaker.answered()
    breaker.leave(None, before[1])
    assert not breaker.open
    breaker.leave("the server was gone again", trying)
    assert not breaker.open, "one failure after an answer is one failure"
    fail(breaker, 2)
    assert breaker.open


def test_many_threads_and_one_try(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 5
    passed: list[bool] = []

    def enter() -> None:
        try:
            passed.append(breaker.enter())
        except ServiceError:
            passed.append(False)

    threads = [threading.Thread(target=enter) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(passed), sum(passed)) == (50, 1)
