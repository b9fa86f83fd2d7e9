"""The settings of a server: an address, or a mapping of plain values, and what cannot work."""

from __future__ import annotations

from typing import Any

import pytest

from ssp_env.doors.setup import set_up
from ssp_env.errors import ConfigError
from ssp_env.net.retry import RetryPolicy
from ssp_env.search.client import HTTPConfig, HTTPRetriever


def test_a_mapping_names_a_server_and_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_TOKEN", "correct-horse-battery")
    given = {
        "url": "http://127.0.0.1:9",
        "token_env": "OUR_TOKEN",
        "deadline": 5,
        "retry": {"attempts": 2},
    }
    retriever = set_up({"world": "small", "search": {"server": given}}).rules.retriever
    assert isinstance(retriever, HTTPRetriever)
    config = retriever.config
    assert (config.url, config.token_env, config.deadline) == (
        "http://127.0.0.1:9",
        "OUR_TOKEN",
        5.0,
    )
    assert config.retry.attempts == 2


def test_a_part_of_the_retries_leaves_the_others_at_the_clients_defaults() -> None:
    server = {"url": "http://127.0.0.1:9", "retry": {"max_delay": 2}}
    retriever = set_up({"world": "small", "search": {"server": server}})
    assert isinstance(retriever.rules.retriever, HTTPRetriever)
    assert retriever.rules.retriever.config.retry == RetryPolicy(attempts=8, max_delay=2.0)
    assert HTTPConfig("http://127.0.0.1:9").retry == RetryPolicy(attempts=8)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"token_env": "OUR_TOKEN"}, r"search\.server\.url = None: is missing"),
        (
            {"url": "http://127.0.0.1:9", "deadlin": 5},
            r"search\.server\.deadlin = 5: did you mean 'deadline'",
        ),
        (
            {"url": "http://127.0.0.1:9", "token_env": "ABSENT_TOKEN"},
            r"search\.server\.token_env = 'ABSENT_TOKEN.*set this environment variable",
        ),
        ({"url": "http://127.0.0.1:9", "retry": {"tries": 2}}, r"search\.server\.retry\.tries"),
    ],
)
def test_what_cannot_work_is_refused_at_once(given: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        set_up({"world": "small", "search": {"server": given}})


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"url": "127.0.0.1:8000"}, "http.url"),
        ({"url": "ftp://host"}, "http.url"),
        ({"url": "http://[::1"}, "http.url"),
        ({"url": "http://me:secret@host"}, "http.url"),
        ({"url": "http://me:secret@host:port"}, "http.url"),
        ({"url": "http://host:99999"}, "http.url"),
        ({"url": "http://host:0"}, "http.url"),
        ({"url": "http://host:-1"}, "http.url"),
        ({"url": "http://host:port"}, "http.url"),
        ({"token_env": "sk-secret"}, "http.token_env"),
        ({"timeout": 0.0}, "http.timeout"),
        ({"deadline": float("inf")}, "http.deadline"),
        ({"connections": 0}, "http.connections"),
        ({"max_batch": 0}, "http.max_batch"),
        ({"max_query_chars": 0}, "http.max_query_chars"),
        ({"max_reply_bytes": 0}, "http.max_reply_bytes"),
    ],
)
def test_settings_that_cannot_work_are_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as raised:
        HTTPConfig(**({"url": "http://127.0.0.1:8000"} | settings))
    assert raised.value.field == field
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["http://h:1", "http://h:1/", "http://h:1/retrieve", "http://h:1/retrieve/"]
)
def test_the_path_is_appended_where_it_is_missing(url: str) -> None:
    assert HTTPConfig(url).endpoint == "http://h:1/retrieve"
