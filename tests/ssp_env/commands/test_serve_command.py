"""``ssp serve``: what it serves, who may ask, how it stops, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from serverkit import SSP, ssp_serve

from ssp_env.commands.cli import main
from ssp_env.search.bm25.retriever import BM25Retriever
from ssp_env.search.corpus import read_corpus
from ssp_env.search.index.directory import build_index

TOKEN = "correct-horse-battery"
ROWS = [
    {"id": "1", "contents": '"Danube"\nA river through Vienna.\nIt is long.'},
    {"id": "2", "contents": '""\nA river without a title.'},
    {"id": "3", "contents": '"The "Blue" one"\nA river by Strauss.'},
    {"id": "4", "contents": '"🦉"\nA river of owls \ud800.'},
]


def test_ray_that_is_not_installed_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.serve", None)
    assert main(["serve", "--world", "mini", "--ray"]) == 2
    assert "pip install '.[serve-ray]' in the checkout" in " ".join(capsys.readouterr().err.split())


def test_a_token_and_no_token_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--no-token", "--token-file", "x"]) == 2
    assert "not allowed with" in capsys.readouterr().err


@pytest.mark.parametrize("index", [False, True])
def test_the_command_serves_what_bm25_finds(tmp_path: Path, index: bool) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    if index:
        build_index(path, tmp_path / "index", "bm25")
    what = ["--index", str(tmp_path / "index")] if index else ["--corpus", str(path)]
    with ssp_serve(tmp_path / "log", *what) as served:
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


def test_a_token_is_asked_for_everywhere_but_by_the_probe(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    options = ["--world", "small", "--token-file", str(tmp_path / "token"), "--host", "0.0.0.0"]
    with ssp_serve(tmp_path / "log", *options) as served:
        assert httpx.get(f"{served.url}/healthz").text == "ok"
        right = {"Authorization": f"Bearer {TOKEN}"}
        wrong = ["", TOKEN, "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Basic Y29y"]
        for path in ("/status", "/metrics", "/openapi.json", "/nowhere"):
            for given in wrong:
                answer = httpx.get(served.url + path, headers={"Authorization": given})
                assert (answer.status_code, list(answer.json())) == (401, ["detail"])
                assert answer.headers["www-authenticate"] == "Bearer"
            assert httpx.get(served.url + path, headers=right).status_code in (200, 404)
        assert "none came" in served.retrieve("q").text
        assert served.retrieve("q", headers=right).status_code == 200
        assert TOKEN not in served.log.read_text()


def test_ctrl_c_stops_it_in_order_with_the_status_of_ctrl_c(tmp_path: Path) -> None:
    with ssp_serve(tmp_path / "log", "--world", "small") as served:
        assert served.retrieve("q").status_code == 200
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(10) == 130
        assert "Traceback" not in served.log.read_text()


def serve(*options: str, **environment: str) -> tuple[int, str]:
    """Exit status and standard error of an ``ssp serve`` that does not come to serve."""
    ran = subprocess.run(
        [SSP, "serve", *options],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    return ran.returncode, ran.stderr


def test_a_mistake_ends_it_with_status_2_and_one_line(tmp_path: Path) -> None:
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
            (["--replicas", "2", "--port", "0"], "--ray"),
            (["--ray", "--port", "0"], "port = 0"),
            (["--max-k", "0"], "max_k = 0"),
        ):
            status, errors = serve(*options)
            assert (status, errors.count("\n")) == (2, 1), errors
            assert says in errors
