"""Facts about parts: who waits for other machines, and what a result depends on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ssp_env
from ssp_env.doors.setup import set_up
from ssp_env.game.parts import fingerprint, is_remote
from ssp_env.judge.chat import ChatClient, ChatConfig
from ssp_env.judge.exact import F1Judge
from ssp_env.judge.lenient import LenientJudge
from ssp_env.judge.openai import OpenAIJudge, OpenAIVerifier
from ssp_env.search.cache import CachedRetriever
from ssp_env.search.client import HTTPRetriever
from ssp_env.search.fuse import RerankedRetriever

SERVER = "http://127.0.0.1:9/retrieve"


@pytest.fixture(scope="module")
def here() -> object:
    return ssp_env.raw_env(world="small").rules.retriever


def test_servers_are_remote_and_what_is_in_this_process_is_not(here: Any, tmp_path: Path) -> None:
    with (
        HTTPRetriever(SERVER) as there,
        ChatClient(ChatConfig(base_url="http://127.0.0.1:9", model="m")) as chat,
    ):
        judge = OpenAIJudge(chat)
        for part in (there, CachedRetriever(there, tmp_path), judge, OpenAIVerifier(chat, judge)):
            assert is_remote(part)
    for part in (here, CachedRetriever(here, tmp_path), LenientJudge(), None):
        assert not is_remote(part)


def test_what_stands_before_a_server_is_remote(here: object) -> None:
    with HTTPRetriever(SERVER) as there:
        assert is_remote(SimpleNamespace(retrievers=[here, there]))
        assert not is_remote(SimpleNamespace(retrievers=[here, here]))
        reranker = SimpleNamespace(scores=lambda pairs: [0.0] * len(pairs))
        assert is_remote(RerankedRetriever(there, reranker))


def test_a_part_of_ones_own_says_it(here: object) -> None:
    assert is_remote(SimpleNamespace(remote=True))
    assert not is_remote(SimpleNamespace(remote=False, config=SimpleNamespace(endpoint=SERVER)))


def test_a_fingerprint_tells_what_differs() -> None:
    def of(**setup: Any) -> dict[str, Any]:
        return fingerprint(set_up({"world": "mini", **setup}).rules)

    base = of()
    assert base == of()
    assert {"corpus", "retriever", "top_k", "max_searches", "judge", "prompts"} < set(base)
    json.dumps(base)
    for change in (
        {"game": {"top_k": 3}},
        {"game": {"max_searches": 3}},
        {"game": {"verifier": "none"}},
        {"world_options": {"seed": 1}},
        {"judge": F1Judge(0.5)},
        {"retriever": HTTPRetriever("http://127.0.0.1:9")},
    ):
        assert of(**change)["hash"] != base["hash"], change
    # Games at other sizes are the same task.
    assert of(game={"attempts": 2})["hash"] == base["hash"]
