"""The search server speaks Search-R1's protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from serverkit import SSP, Served, free_port, start, stop, stub

from ssp_env.search.bm25.retriever import BM25Retriever
from ssp_env.search.corpus import read_corpus
from ssp_env.search.index.directory import build_index
from ssp_env.search.server.wire import contents, write_result
from ssp_env.types import Document

SCRIPTS = [
    "Wien ist schön",
    "Кто написал «Мастер и Маргарита»?",
    "誰が源氏物語を書いたか",
    "من كتب",
    "ใครเขียน",
    "🦉👩‍👩‍👧",
    "שלום",
    "a\u0301",
]
ODDITIES = ["\x00\x01\x1b[2J\x7f\r\n", '"\\', "\u2028\ufeff\uffff", "x" * 8192]
ROWS = [
    {"id": "1", "contents": '"Danube"\nA river through Vienna.\nIt is long.'},
    {"id": "2", "contents": '""\nA river without a title.'},
    {"id": "3", "contents": '"The "Blue" one"\nA river by Strauss.'},
    {"id": "4", "contents": '"🦉"\nA river of owls \ud800.'},
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stub(tmp_path_factory.mktemp("protocol") / "log") as served:
        yield served


def search(url: str, queries: list[str], topk: int) -> Any:
    """As Search-R1's rollout asks (``search_r1/llm_agent/generation.py``)."""
    payload = {"queries": queries, "topk": topk, "return_scores": True}
    return requests.post(f"{url}/retrieve", json=payload).json()


def as_text(ranking: list[dict[str, Any]]) -> str:
    """As Search-R1 shows a ranking to its model."""
    text = ""
    for position, item in enumerate(ranking):
        title, *lines = item["document"]["contents"].split("\n")
        text += f"Doc {position + 1}(Title: {title}) {chr(10).join(lines)}\n"
    return text


@pytest.mark.parametrize("count", [0, 1, 2, 3, 64])
def test_a_search_r1_client_gets_one_ranking_a_query(served: Served, count: int) -> None:
    queries = [f"query {number}" for number in range(count)]
    result = search(served.url, queries, 2)["result"]
    assert [[item["document"]["id"] for item in ranking] for ranking in result] == [
        [f"{query}/0", f"{query}/1"] for query in queries
    ]
    assert all(
        item["score"] == 1 / (1 + rank) for ranking in result for rank, item in enumerate(ranking)
    )
    if count:
        assert as_text(result[0]) == (
            'Doc 1(Title: "About query 0") Text 0\nof query 0\nDoc 2(Title: "About query 0") '
            "Text 1\nof query 0\n"
        )


@pytest.mark.parametrize("count", [1, 2, 5])
def test_without_scores_a_ranking_holds_documents(served: Served, count: int) -> None:
    answer = served.retrieve(*"abcde"[:count], topk=1)
    expected = [
        [{"id": f"{q}/0", "contents": f'"About {q}"\nText 0\nof {q}'}] for q in "abcde"[:count]
    ]
    assert answer.json() == {"result": expected}
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "fields", [{}, {"topk": None, "return_scores": None}, {"topk": 3.0, "model": "e5"}]
)
def test_missing_and_null_fields_take_their_defaults_and_others_are_passed_over(
    served: Served, fields: dict[str, Any]
) -> None:
    result = served.retrieve("q", **fields).json()["result"]
    assert [document["id"] for document in result[0]] == ["q/0", "q/1", "q/2"]


def test_status_says_ok(served: Served) -> None:
    assert requests.get(f"{served.url}/status").json() == "ok"


@pytest.mark.parametrize(
    "query", [*SCRIPTS, "", " ", "\x00\x01\x1b[2J\x7f\r\n", '"\\', "\u2028\ufeff\uffff", "x" * 8192]
)
def test_queries_arrive_as_they_were_sent(served: Served, query: str) -> None:
    assert served.retrieve(query, topk=1).json()["result"][0][0]["id"] == f"{query}/0"


@pytest.mark.parametrize(
    ("escaped", "searched"),
    [
        ("\\ud800", "\ufffd"),
        ("a\\udfffb", "a\ufffdb"),
        ("\\udc00\\ud800", "\ufffd\ufffd"),
        ("\\ud83e\\udd89", "🦉"),
    ],
)
def test_lone_surrogates_are_searched_as_replacement_characters(
    served: Served, escaped: str, searched: str
) -> None:
    body = f'{{"queries": ["{escaped}"], "topk": 1}}'.encode()
    answer = httpx.post(
        f"{served.url}/retrieve", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.json()["result"][0][0]["id"] == f"{searched}/0"


def test_a_passage_with_a_lone_surrogate_arrives_as_it_is(served: Served) -> None:
    answer = served.retrieve("surrogate", topk=1)
    assert json.loads(answer.content)["result"][0][0]["contents"].startswith('"\ud800"\n')


def test_the_command_serves_a_corpus_as_bm25_finds_it(tmp_path: Path) -> None:
    path, port = tmp_path / "corpus.jsonl", free_port()
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    served = start(
        tmp_path / "log", [SSP, "serve", "--corpus", str(path), "--port", str(port)], port
    )
    try:
        ready = (
            f"ssp serve: ready at http://127.0.0.1:{port} (BM25 over {path}, {len(ROWS)} "
            f"passages)\n"
        )
        assert served.wait_ready() == ready
        queries = ["river Vienna", "owls", "nothing of that"]
        result = search(served.url, queries, 3)["result"]
    finally:
        assert stop(served) == 0
    for ranking, expected in zip(
        result, BM25Retriever(read_corpus(path)).search(queries, 3), strict=True
    ):
        assert [(item["document"]["id"], item["score"]) for item in ranking] == [
            (d.id, d.score) for d in expected
        ]
    by_id = {row["id"]: row for row in ROWS}
    assert all(
        item["document"] == by_id[item["document"]["id"]] for ranking in result for item in ranking
    )


def test_the_command_serves_an_index(tmp_path: Path) -> None:
    path, directory, port = tmp_path / "corpus.jsonl", tmp_path / "index", free_port()
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    build_index(path, directory, "bm25")
    served = start(
        tmp_path / "log", [SSP, "serve", "--index", str(directory), "--port", str(port)], port
    )
    try:
        served.wait_ready()
        result = search(served.url, ["river Vienna", "owls"], 1)["result"]
        assert [ranking[0]["document"]["id"] for ranking in result] == ["1", "4"]
    finally:
        assert stop(served) == 0


@pytest.mark.parametrize("title", ["", "Danube", ' "quoted" ', '"', '""', "a\rb", "\t"])
@pytest.mark.parametrize("text", ["", "one", "one\ntwo", '"x"\ny'])
def test_contents_are_read_back_as_title_and_text(tmp_path: Path, title: str, text: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"id": "1", "contents": contents(Document("1", title, text))}))
    assert read_corpus(path)[0] == Document("1", title, text)


def test_a_line_break_in_a_title_does_not_spill_into_the_text() -> None:
    assert contents(Document("1", "a\nb", "text")) == '"a b"\ntext'


def test_scores_of_any_float_type_are_written() -> None:
    import numpy as np

    document = Document("1", "t", "x", np.float32(0.5))  # type: ignore[arg-type]
    assert json.loads(write_result([[document]], True))["result"][0][0]["score"] == 0.5
