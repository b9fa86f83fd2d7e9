"""A server as a setting of the environment: an address, or a mapping of plain values."""

from __future__ import annotations

import pytest

from ssp_env.errors import ConfigError
from ssp_env.retry import RetryPolicy
from ssp_env.search.client import HTTPConfig, HTTPRetriever
from ssp_env.setup import set_up


def test_a_mapping_names_a_server_and_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_TOKEN", "correct-horse-battery")
    given = {"url": "http://127.0.0.1:9", "token_env": "OUR_TOKEN", "deadline": 5, "retry": {"attempts": 2}}
    retriever = set_up({"world": "small", "retriever": given}).rules.retriever
    assert isinstance(retriever, HTTPRetriever)
    config = retriever.config
    assert (config.url, config.token_env, config.deadline) == ("http://127.0.0.1:9", "OUR_TOKEN", 5.0)
    assert config.retry.attempts == 2


def test_a_part_of_the_retries_leaves_the_others_at_the_clients_defaults() -> None:
    retriever = set_up({"world": "small", "retriever": {"url": "http://127.0.0.1:9", "retry": {"max_delay": 2}}})
    assert isinstance(retriever.rules.retriever, HTTPRetriever)
    assert retriever.rules.retriever.config.retry == RetryPolicy(attempts=8, max_delay=2.0)
    assert HTTPConfig("http://127.0.0.1:9").retry == RetryPolicy(attempts=8)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"token_env": "OUR_TOKEN"}, "a mapping needs the server's address: url"),
        ({"url": "http://127.0.0.1:9", "deadlin": 5}, r"retriever\.deadlin = 5: did you mean 'deadline'"),
        ({"url": "http://127.0.0.1:9", "token_env": "ABSENT_TOKEN"}, "ABSENT_TOKEN.*set this environment variable"),
        ({"url": "http://127.0.0.1:9", "retry": {"tries": 2}}, r"retriever\.retry\.tries"),
    ],
)
def test_what_cannot_work_is_refused_at_once(given: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        set_up({"world": "small", "retriever": given})
