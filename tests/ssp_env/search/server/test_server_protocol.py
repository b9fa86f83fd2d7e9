"""The search server speaks Search-R1's protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from serverkit import Served, stub

from ssp_env.search.corpus import read_corpus
from ssp_env.search.server.wire import contents
from ssp_env.types import Document


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stub(tmp_path_factory.mktemp("protocol") / "log") as served:
        yield served


@pytest.mark.parametrize("count", [0, 1, 2, 3, 64, 600])
def test_a_search_r1_client_gets_one_ranking_per_query(served: Served, count: int) -> None:
    queries = [f"query {number}" for number in range(count)]
    bare = [
        [{"id": f"{q}/{i}", "contents": f'"About {q}"\nText {i}\nof {q}'} for i in range(2)]
        for q in queries
    ]
    scored = [[{"document": d, "score": 1 / (1 + i)} for i, d in enumerate(r)] for r in bare]
    # As Search-R1's rollout asks (search_r1/llm_agent/generation.py).
    payload = {"queries": queries, "topk": 2, "return_scores": True}
    assert requests.post(f"{served.url}/retrieve", json=payload).json()["result"] == scored
    assert served.retrieve(*queries, topk=2).json()["result"] == bare


@pytest.mark.parametrize(
    "fields", [{}, {"topk": None, "return_scores": None}, {"topk": 0, "model": "e5"}]
)
def test_missing_null_and_zero_take_the_default(served: Served, fields: dict[str, Any]) -> None:
    result = served.retrieve("q", **fields).json()["result"]
    assert [document["id"] for document in result[0]] == ["q/0", "q/1", "q/2"]
    assert requests.get(f"{served.url}/status").json() == "ok"


def test_queries_arrive_as_they_were_sent(served: Served) -> None:
    queries = [
        "Wien ist schön",
        "誰が",
        "👩‍👩‍👧",
        "",
        " ",
        "\x00\x1b[2J\r\n",
        '"\\',
        "\u2028\ufeff",
    ]
    queries.append("x" * 8192)
    answer = served.retrieve(*queries, topk=1)
    assert [found["id"] for [found] in answer.json()["result"]] == [f"{q}/0" for q in queries]
    assert "x-queries-cut" not in answer.headers


def test_a_long_query_is_cut_and_the_answer_says_so(served: Served) -> None:
    answer = served.retrieve("brief", "x" * 10_000, "y" * 2**20, topk=1)
    ids = [ranking[0]["id"] for ranking in answer.json()["result"]]
    assert ids == ["brief/0", "x" * 8192 + "/0", "y" * 8192 + "/0"]
    assert answer.headers["x-queries-cut"] == "2"
    assert "ssp_search_cut_queries_total 2.0" in httpx.get(f"{served.url}/metrics").text


def test_lone_surrogates_are_replaced_in_queries_and_kept_in_passages(served: Served) -> None:
    body = b'{"queries": ["a\\udfffb", "\\ud83e\\udd89"], "topk": 1}'
    result = httpx.post(f"{served.url}/retrieve", content=body).json()["result"]
    assert [ranking[0]["id"] for ranking in result] == ["a\ufffdb/0", "🦉/0"]
    answer = served.retrieve("surrogate", topk=1)
    assert json.loads(answer.content)["result"][0][0]["contents"].startswith('"\ud800"\n')


@pytest.mark.parametrize("title", ["", "Danube", ' "quoted" ', '"', '""', "\t"])
@pytest.mark.parametrize("text", ["", "one\ntwo", '"x"\ny'])
def test_contents_are_read_back_as_title_and_text(tmp_path: Path, title: str, text: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"id": "1", "contents": contents(Document("1", title, text))}))
    assert read_corpus(path)[0] == Document("1", title, text)
