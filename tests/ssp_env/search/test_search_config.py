"""Search named by plain settings: what opens which retriever, and what is refused early."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from corpus_files import jsonl

from ssp_env.doors.setup import set_up
from ssp_env.errors import ConfigError, DataError, ServiceError
from ssp_env.search.base import identify
from ssp_env.search.client import HTTPRetriever
from ssp_env.search.index import SearchConfig, build_index, check_search, open_search
from ssp_env.worlds.mini import MiniWorld

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mini")
    return build_index(jsonl(directory / "c.jsonl", MiniWorld().corpus), directory / "index").parent


def test_nothing_named_is_the_worlds_own_and_an_index_directory_answers_alike(
    index: Path, mini: MiniWorld
) -> None:
    assert open_search(SearchConfig()) is None
    setups = ({"world": "mini", "search": each} for each in ("", str(index), {"index": str(index)}))
    queries = [mini.corpus[5].title]
    found = [set_up(setup).rules.retriever.search(queries, 3) for setup in setups]
    assert found[0] == found[1] == found[2]


def test_a_mapping_names_a_server_its_token_and_a_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OUR_TOKEN", token := "correct-horse-battery")
    server = {"server": f"{NOWHERE}/retrieve?key=hidden", "token_env": "OUR_TOKEN"}
    given = {**server, "cache": str(tmp_path / "kept")}
    shown = identify(set_up({"world": "small", "search": given}).rules.retriever)
    assert (shown["class"], shown["of"][0]["class"]) == ("CachedRetriever", "HTTPRetriever")
    assert NOWHERE in json.dumps(shown)
    assert not any(secret in json.dumps(shown) for secret in ("hidden", token))
    for url in ("http://h:1", "http://h:1/", "http://h:1/retrieve", "http://h:1/retrieve/"):
        assert HTTPRetriever(url).url == "http://h:1/retrieve"


@pytest.mark.parametrize(
    ("given", "field", "fix"),
    [
        ({"kind": "bm25"}, "search.kind", "goes with search.index"),
        ({"cache": "x"}, "search.cache", "goes with search.index"),
        ({"index": "DIR", "kind": "bm52"}, "search.kind", "did you mean 'bm25'"),
        ({"index": "DIR", "kind": "hybrid"}, "kind", "add it by `ssp index`"),
        ({"index": "DIR", "reranker": "x"}, "search.reranker", "no such directory"),
        ({"index": "DIR", "server": NOWHERE}, "search.index", "leave one of them out"),
        ({"server": "localhost"}, "search.server", "http://127.0.0.1:8000"),
        ({"server": NOWHERE, "token_env": "sk-secret"}, "search.token_env", "not the key"),
    ],
)
def test_what_cannot_work_is_named(given: Any, field: str, fix: str, index: Path) -> None:
    given = {name: str(index) if value == "DIR" else value for name, value in given.items()}
    with pytest.raises(ConfigError) as raised:
        check_search(SearchConfig.of(given))
    assert raised.value.field == field
    assert fix in raised.value.fix


def test_a_directory_without_index_and_a_server_that_is_out_are_found_out_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for act in (check_search, open_search):
        with pytest.raises(DataError, match="no such folder"):
            act(SearchConfig(index=str(tmp_path)))
    monkeypatch.setattr("ssp_env.search.index.PATIENCE", 0.5)
    with pytest.raises(ServiceError, match=r"search: http://127\.0\.0\.1:9 does not answer"):
        check_search(SearchConfig(server=NOWHERE))
