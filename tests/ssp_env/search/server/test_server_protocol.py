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


def search(url: str, queries: list[str], topk: int) -> Any:
    """As Search-R1's rollout asks (``search_r1/llm_agent/generation.py``)."""
    payload = {"queries": queries, "topk": topk, "return_scores": True}
    return requests.post(f"{url}/retrieve", json=payload).json()["result"]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 64, 600])
def test_a_search_r1_client_gets_one_ranking_per_query(served: Served, count: int) -> None:
    queries = [f"query {number}" for number in range(count)]
    expected = [
        [
            {
                "document": {"id": f"{q}/{i}", "contents": f'"About {q}"\nText {i}\nof {q}'},
                "score": 1 / (1 + i),
            }
            for i in range(2)
        ]
        for q in queries
    ]
    assert search(served.url, queries, 2) == expected


@pytest.mark.parametrize("count", [1, 2, 5])
def test_without_scores_a_ranking_holds_documents(served: Served, count: int) -> None:
    answer = served.retrieve(*"abcde"[:count], topk=1)
    assert answer.json()["result"] == [
        [{"id": f"{q}/0", "contents": f'"About {q}"\nText 0\nof {q}'}] for q in "abcde"[:count]
    ]


@pytest.mark.parametrize(
    "fields", [{}, {"topk": None, "return_scores": None}, {"topk": 0, "model": "e5"}]
)
def test_missing_null_and_zero_take_the_default(served: Served, fields: dict[str, Any]) -> None:
    result = served.retrieve("q", **fields).json()["result"]
    assert [document["id"] for document in result[0]] == ["q/0", "q/1", "q/2"]


def test_status_says_ok(served: Served) -> None:
    assert requests.get(f"{served.url}/status").json() == "ok"


@pytest.mark.parametrize(
    "query",
    [
        "Wien ist schön",
        "誰が",
        "👩‍👩‍👧",
        "",
        " ",
        "\x00\x1b[2J\r\n",
        '"\\',
        "\u2028\ufeff",
        "x" * 8192,
    ],
)
def test_queries_arrive_as_they_were_sent(served: Served, query: str) -> None:
    answer = served.retrieve(query, topk=1)
    assert answer.json()["result"][0][0]["id"] == f"{query}/0"
    assert "x-queries-cut" not in answer.headers


def test_a_long_query_is_cut_and_the_answer_says_so(served: Served) -> None:
    answer = served.retrieve("brief", "x" * 10_000, "y" * 2**20, topk=1)
    ids = [ranking[0]["id"] for ranking in answer.json()["result"]]
    assert ids == ["brief/0", "x" * 8192 + "/0", "y" * 8192 + "/0"]
    assert answer.headers["x-queries-cut"] == "2"
    assert "ssp_search_cut_queries_total 2.0" in httpx.get(f"{served.url}/metrics").text


def test_lone_surrogates_become_replacement_characters(served: Served) -> None:
    body = b'{"queries": ["a\\udfffb", "\\ud83e\\udd89"], "topk": 1}'
    result = httpx.post(f"{served.url}/retrieve", content=body).json()["result"]
    assert [ranking[0]["id"] for ranking in result] == ["a\ufffdb/0", "🦉/0"]


def test_a_passage_with_a_lone_surrogate_arrives_as_it_is(served: Served) -> None:
    answer = served.retrieve("surrogate", topk=1)
    assert json.loads(answer.content)["result"][0][0]["contents"].startswith('"\ud800"\n')


@pytest.mark.parametrize("title", ["", "Danube", ' "quoted" ', '"', '""', "\t"])
@pytest.mark.parametrize("text", ["", "one\ntwo", '"x"\ny'])
def test_contents_are_read_back_as_title_and_text(tmp_path: Path, title: str, text: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"id": "1", "contents": contents(Document("1", title, text))}))
    assert read_corpus(path)[0] == Document("1", title, text)
