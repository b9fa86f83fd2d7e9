"""``ssp serve``: what it serves, who may ask, how it stops, and what it refuses."""

from __future__ import annotations

import json
import signal
import socket
import sys
from pathlib import Path

import pytest
from serverkit import ssp_serve

from ssp_env.cli import main
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.corpus import read_corpus
from ssp_env.search.index import build_index

TOKEN = "correct-horse-battery"
ROWS = [
    {"id": "1", "contents": '"Danube"\nA river through Vienna.\nIt is long.'},
    {"id": "2", "contents": '""\nA river without a title.'},
    {"id": "3", "contents": '"The "Blue" one"\nA river by Strauss.'},
    {"id": "4", "contents": '"🦉"\nA river of owls \ud800.'},
]


def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "ssp_env.search.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "--world", "mini"]) == 2
    assert "pip install '.[serve]' in the checkout" in " ".join(capsys.readouterr().err.split())


def test_a_token_and_no_token_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--no-token", "--token-file", "x"]) == 2
    assert "not allowed with" in capsys.readouterr().err


def test_the_command_serves_what_bm25_finds_in_an_index(tmp_path: Path) -> None:
    path = write(tmp_path / "corpus.jsonl")
    build_index(path, tmp_path / "index", "bm25")
    with ssp_serve(tmp_path / "log", "--index", str(tmp_path / "index")) as served:
        assert served.log.read_text().startswith(f"ssp serve: ready at {served.url} (")
        queries = ["river Vienna", "owls"]
        result = served.retrieve(*queries, topk=3, return_scores=True).json()["result"]
        assert served.stop() == 0

    found = BM25Retriever(read_corpus(path)).search(queries, 3)
    assert [[item["document"]["id"] for item in ranking] for ranking in result] == [
        [document.id for document in ranking] for ranking in found
    ]
    by_id = {row["id"]: row for row in ROWS}
    assert result[0][0]["document"] == by_id["1"]
    assert result[1][0]["document"] == by_id["4"]


def test_a_corpus_is_served_for_a_token_until_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    options = ["--corpus", str(write(tmp_path / "corpus.jsonl")), "--host", "0.0.0.0"]
    options += ["--token-file", str(tmp_path / "token")]
    with ssp_serve(tmp_path / "log", *options) as served:
        assert served.retrieve("owls").status_code == 401
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert served.retrieve("owls", headers=right).json()["result"][0][0]["id"] == "4"

        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(10) == 130
        assert TOKEN not in served.log.read_text()
        assert "Traceback" not in served.log.read_text()


def write(path: Path) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_a_mistake_ends_it_with_status_2_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSP_SERVE_TOKEN", raising=False)
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"id": "1"}\n')
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for options, says in (
            (["--host", "0.0.0.0"], "SSP_SERVE_TOKEN"),
            (["--port", str(taken.getsockname()[1]), "--world", "small"], "in use"),
            (["--world", "wiki-mimi"], "did you mean 'wiki-mini'"),
            (["--corpus", str(broken), "--port", "0"], f"{broken}:1: a passage needs"),
            (["--max-k", "0"], "max_k = 0"),
        ):
            assert main(["serve", *options]) == 2
            errors = capsys.readouterr().err
            assert says in errors
            assert errors.count("\n") == 1, errors
