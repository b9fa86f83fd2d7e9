"""Search named by plain settings: what opens which retriever, and what is refused early."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from corpus_files import jsonl

import ssp_env
from ssp_env.doors.setup import set_up
from ssp_env.errors import ConfigError, DataError, ServiceError
from ssp_env.net import RetryPolicy
from ssp_env.search.base import identify
from ssp_env.search.client import HTTPConfig, HTTPRetriever
from ssp_env.search.config import SearchConfig, check_search, open_search
from ssp_env.search.index import build_index
from ssp_env.settings import read_value
from ssp_env.worlds.mini import MiniWorld

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mini")
    build_index(jsonl(directory / "c.jsonl", MiniWorld().corpus), directory / "index", "bm25")
    return directory / "index"


# -- what opens which --------------------------------------------------------------------------


def test_nothing_named_is_the_worlds_own_and_an_index_directory_answers_alike(
    index: Path, mini: MiniWorld
) -> None:
    assert open_search(SearchConfig()) is None
    own, other = (ssp_env.raw_env(world="mini", search=each) for each in ("", str(index)))
    query = [mini.corpus[5].title]
    assert other.rules.retriever.search(query, 3) == own.rules.retriever.search(query, 3)


def test_a_text_a_mapping_and_a_config_are_the_same(index: Path) -> None:
    text = read_value(SearchConfig, str(index), "search")
    mapping = read_value(SearchConfig, {"index": str(index)}, "search")
    assert text == mapping == SearchConfig(index=str(index))
    assert read_value(SearchConfig, NOWHERE, "search") == SearchConfig(server=HTTPConfig(NOWHERE))


def test_a_mapping_names_a_server_its_token_and_its_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUR_TOKEN", "correct-horse-battery")
    given = {"url": NOWHERE, "token_env": "OUR_TOKEN", "deadline": 5, "retry": {"max_delay": 2}}
    retriever = set_up({"world": "small", "search": {"server": given}}).rules.retriever
    assert isinstance(retriever, HTTPRetriever)
    patience = RetryPolicy(attempts=8, max_delay=2.0)  # the client's own, but for one field
    assert retriever.config == HTTPConfig(NOWHERE, "OUR_TOKEN", deadline=5.0, retry=patience)
    for url in ("http://h:1", "http://h:1/", "http://h:1/retrieve", "http://h:1/retrieve/"):
        assert HTTPConfig(url).endpoint == "http://h:1/retrieve"

    config = HTTPConfig(f"{NOWHERE}/retrieve?key=hidden", token_env="OUR_TOKEN")
    shown = json.dumps(identify(HTTPRetriever(config)))
    assert NOWHERE in shown
    assert "hidden" not in shown
    assert "horse" not in shown


def test_a_cache_stands_before_the_server(tmp_path: Path) -> None:
    settings = SearchConfig(
        server=HTTPConfig(NOWHERE), cache=str(tmp_path / "kept"), cache_identity="mini, BM25"
    )
    retriever = open_search(settings)
    assert retriever is not None
    parts = identify(retriever)
    assert parts["identity"] == "mini, BM25"
    assert parts["of"] == [{"class": "HTTPRetriever", "server": f"{NOWHERE}/retrieve"}]


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "field", "fix"),
    [
        ({"kind": "bm25"}, "search.kind", "goes with search.index"),
        ({"index": "DIR", "kind": "bm52"}, "search.kind", "did you mean 'bm25'"),
        ({"index": "DIR", "kind": "dense-flat"}, "search.kind", "adds it"),
        ({"index": "DIR", "kind": "hybrid"}, "search.kind", "nothing to fuse"),
        ({"index": "DIR", "encoder": "x"}, "search.encoder", "no such directory"),
        ({"index": "DIR", "reranker": "x"}, "search.reranker", "no such directory"),
        ({"index": "DIR", "server": {"url": NOWHERE}}, "search.index", "leave one of them out"),
        ({"index": "DIR", "cache": "x"}, "search.cache_identity", "name what is searched"),
        ({"index": "nowhere"}, "search.index", "no such directory"),
        ({"server": {"url": "localhost"}}, "search.server.url", "http://127.0.0.1:8000"),
        ({"server": {"url": NOWHERE, "token_env": "NO_SUCH"}}, "search.server.token_env", "set"),
        ({"url": NOWHERE}, "search.url", "did you mean 'server'"),
        ({"server": {"token_env": "TOKEN"}}, "search.server.url", "is missing"),
        ({"server": {"url": NOWHERE, "retry": {"tries": 2}}}, "search.server.retry.tries", ""),
    ],
)
def test_what_cannot_work_is_named(
    given: dict[str, Any], field: str, fix: str, index: Path
) -> None:
    plain = {name: str(index) if value == "DIR" else value for name, value in given.items()}
    with pytest.raises(ConfigError) as raised:
        check_search(read_value(SearchConfig, plain, "search"))
    assert raised.value.field == field
    assert fix in raised.value.fix


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("url", url) for url in ("127.0.0.1:80", "ftp://host", "http://[::1", "http://h:0")),
        ("url", "http://me:secret@host"),
        ("token_env", "sk-secret"),
        ("timeout", 0.0),
        ("deadline", float("inf")),
        *((name, 0) for name in ("connections", "max_batch", "max_query_chars", "max_reply_bytes")),
    ],
)
def test_a_servers_settings_that_cannot_work_are_named(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        HTTPConfig(**({"url": NOWHERE} | {field: value}))
    assert raised.value.field == f"server.{field}"
    assert "secret" not in str(raised.value)


def test_a_directory_without_index_and_a_server_that_is_out_are_found_out_before_any_work(
    tmp_path: Path,
) -> None:
    for act in (check_search, open_search):
        with pytest.raises(DataError):
            act(SearchConfig(index=str(tmp_path)))
    with pytest.raises(ServiceError, match=r"search: http://127\.0\.0\.1:9 does not answer"):
        check_search(SearchConfig(server=HTTPConfig(NOWHERE)))
