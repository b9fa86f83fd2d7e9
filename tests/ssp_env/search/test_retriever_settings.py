"""The settings of a server: an address, or a mapping of plain values, and what cannot work."""

from __future__ import annotations

from typing import Any

import pytest

from ssp_env.doors.setup import set_up
from ssp_env.errors import ConfigError
from ssp_env.net.retry import RetryPolicy
from ssp_env.search.client import HTTPConfig, HTTPRetriever

URL = "http://127.0.0.1:9"


def test_a_mapping_names_a_server_and_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_TOKEN", "correct-horse-battery")
    given = {"url": URL, "token_env": "OUR_TOKEN", "deadline": 5, "retry": {"max_delay": 2}}
    retriever = set_up({"world": "small", "search": {"server": given}}).rules.retriever
    assert isinstance(retriever, HTTPRetriever)
    patience = RetryPolicy(attempts=8, max_delay=2.0)  # the client's own, but for one field
    assert retriever.config == HTTPConfig(URL, "OUR_TOKEN", deadline=5.0, retry=patience)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"token_env": "OUR_TOKEN"}, r"search\.server\.url = None: is missing"),
        ({"url": URL, "deadlin": 5}, r"search\.server\.deadlin = 5: did you mean 'deadline'"),
        ({"url": URL, "token_env": "ABSENT_TOKEN"}, "set this environment variable"),
        ({"url": URL, "retry": {"tries": 2}}, r"search\.server\.retry\.tries"),
    ],
)
def test_what_cannot_work_is_refused_at_once(given: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        set_up({"world": "small", "search": {"server": given}})


BAD_URLS = ("127.0.0.1:8000", "ftp://host", "http://[::1", "http://me:secret@host", "http://h:0")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("url", url) for url in BAD_URLS),
        ("token_env", "sk-secret"),
        ("timeout", 0.0),
        ("deadline", float("inf")),
        ("connections", 0),
        ("max_batch", 0),
        ("max_query_chars", 0),
        ("max_reply_bytes", 0),
    ],
)
def test_settings_that_cannot_work_are_named(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        HTTPConfig(**({"url": URL} | {field: value}))
    assert raised.value.field == f"http.{field}"
    assert "secret" not in str(raised.value)


def test_the_path_is_appended_where_it_is_missing() -> None:
    for url in ("http://h:1", "http://h:1/", "http://h:1/retrieve", "http://h:1/retrieve/"):
        assert HTTPConfig(url).endpoint == "http://h:1/retrieve"
