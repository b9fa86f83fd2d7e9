"""Retries, the shared loop, and addresses and keys in settings."""

from __future__ import annotations

import pytest

from ssp_env import net
from ssp_env.errors import ConfigError, ServiceError, TransientServiceError


def attempt(failures: list[Exception], seconds: float = 60.0) -> str:
    """A call that fails as listed and then succeeds."""
    left = iter(failures)

    async def call() -> str:
        for error in left:
            raise error
        return "done"

    return net.run(net.retried(call, seconds))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("ssp_env.net._sleep", sleep)
    return slept


def down(retry_after: float | None = None) -> TransientServiceError:
    return TransientServiceError("search", "HTTP 503", retry_after)


def test_pauses_grow_with_jitter_and_a_server_may_ask_for_more(pauses: list[float]) -> None:
    assert attempt([down() for _ in range(7)]) == "done"
    for pause, least in zip(pauses, [0.25, 0.5, 1, 2, 4, 8, 8], strict=True):
        assert least <= pause <= 1.25 * least

    pauses.clear()
    assert attempt([down(7.5)]) == "done"
    assert pauses == [7.5]


def test_a_lasting_failure_is_an_outage_that_is_not_retried_again(pauses: list[float]) -> None:
    last = down()
    with pytest.raises(ServiceError, match=r"HTTP 503 \(after 4 calls\)") as raised:
        attempt([down(), down(), down(), last], seconds=1.5)
    assert type(raised.value) is ServiceError
    assert (raised.value.calls, raised.value.__cause__) == (4, last)
    with pytest.raises(ServiceError, match="after 1 call"):
        attempt([down(86_400)])
    assert len(pauses) == 3, "no pause beyond the deadline is begun"


@pytest.mark.parametrize("error", [ServiceError("search", "HTTP 401"), KeyError("bug")])
def test_other_errors_are_raised_at_once(error: Exception, pauses: list[float]) -> None:
    with pytest.raises(type(error)) as raised:
        attempt([error])
    assert (raised.value, pauses) == (error, [])


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://host", "http://me:secret@host"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.url = .*http://127") as raised:
        net.check_url("server.url", url, "http://127.0.0.1:8000")
    assert "secret" not in str(raised.value)


def test_keys_are_named_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="give the name of an environment variable") as raised:
        net.check_key_name("server.token_env", "sk-secret")
    assert "secret" not in str(raised.value)
    monkeypatch.setenv("OUR_KEY", "sesame\n")
    assert net.read_key("server.token_env", "OUR_KEY") == "sesame"
    assert net.read_key("server.token_env", None) is None
    for value in ("", "two\nlines", "ключ"):
        monkeypatch.setenv("OUR_KEY", value)
        with pytest.raises(ConfigError, match="set this environment variable"):
            net.read_key("server.token_env", "OUR_KEY")
