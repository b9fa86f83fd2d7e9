"""``ssp search``, ``ssp index`` and ``ssp serve``: what they print, serve and refuse."""

from __future__ import annotations

import json
import signal
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from serverkit import ssp_serve

from ssp_env.cli import main
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.corpus import read_corpus

TOKEN = "correct-horse-battery"
ROWS = [
    {
        "id": "p1",
        "title": "[bold]Danube[/bold]",
        "text": "A river \x1b[31mthrough\x00 Vienna \ud800.",
    },
    {"id": "p2", "title": "", "text": "Another river."},
    {"id": "p3", "contents": '"Hill"\nNot wet at all.\nBut green.'},
]


class Words:
    """What a command printed, as running text."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str, status: int = 0) -> str:
        assert main(arguments) == status
        out, err = self._capsys.readouterr()
        assert (err.count("\n") == 1) or status == 0, err
        return " ".join((err if status else out).split())


@pytest.fixture
def ssp(capsys: pytest.CaptureFixture[str]) -> Words:
    return Words(capsys)


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


@pytest.fixture
def index(corpus: str, tmp_path: Path, ssp: Words) -> str:
    directory = str(tmp_path / "i")
    assert f"{directory}/bm25: 3 passages, " in ssp("index", corpus, "--out", directory)
    return directory


# -- ssp search --------------------------------------------------------------------------------


def test_documents_are_printed_in_order(corpus: str, ssp: Words) -> None:
    out = ssp("search", "river", "Vienna", "--corpus", corpus)
    assert "2 of 3 passages" in out
    assert "for: river Vienna" in out
    assert out.index("1. ") < out.index("p1") < out.index("2. (no title)") < out.index("p2")
    assert "p3" not in out
    assert "2. " not in ssp("search", "river", "-k", "1", "--corpus", corpus)
    assert "No passage was found" in ssp("search", "zebra", "--corpus", corpus)
    assert "2 of" in ssp("search", "capital", "--world", "mini", "-k", "2")


def test_text_from_outside_is_shown_and_not_obeyed(corpus: str, ssp: Words) -> None:
    out = ssp("search", "danube \x1b[2J [red]", "--corpus", corpus)
    assert "[bold]Danube[/bold]" in out
    assert "[red]" in out
    assert "\x1b" not in out
    assert "\x00" not in out
    assert "\ufffd[31mthrough\ufffd Vienna \ufffd." in out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-k", "0"], "Must be >= 1"),
        (["--world", "mini", "--corpus", "x"], "exclude each other"),
        (["--url", "http://127.0.0.1:9", "--world", "mini"], "--url excludes"),
        (["--token-env", "TOKEN"], "goes with --url"),
        (["--url", "http://127.0.0.1:9", "--token-env", "ABSENT_TOKEN"], "ABSENT_TOKEN"),
        (["--world", "mimi"], "did you mean 'mini'"),
        (["--corpus", "absent.jsonl"], "cannot be read"),
        (["--index", "absent"], "no such folder"),
        (["--kind", "bm25"], "go with --index"),
    ],
)
def test_mistakes_of_a_search(options: list[str], says: str, ssp: Words) -> None:
    assert says in ssp("search", "river", *options, status=2)


# -- ssp index ---------------------------------------------------------------------------------


def test_an_index_is_searched_and_not_built_twice(index: str, corpus: str, ssp: Words) -> None:
    assert "2 of 3 passages" in ssp("search", "--index", index, "river")
    again = ssp("index", corpus, "--out", index, "--kind", "bm25")
    assert "already complete, 3 passages" in again
    says = ssp("search", "--index", index, "--kind", "bm52", "river", status=2)
    assert "has bm25; did you mean 'bm25'?" in says
    says = ssp("search", "--index", index, "--kind", "dense-flat", "river", status=2)
    assert "`ssp index --kind dense-flat` adds it" in says


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "CORPUS"),
        (["CORPUS", "--out", "DIR", "--kind", "bm52"], "did you mean 'bm25'"),
        (["CORPUS", "--out", "DIR", "--kind", "dense-flat"], "give --encoder MODEL"),
        (["CORPUS", "--out", "DIR", "--query-prefix", "q: "], "go with a dense kind"),
        (["CORPUS", "--out", "DIR", "--adopt", "x", "--kind", "bm25"], "omit --kind"),
        (["absent.jsonl", "--out", "DIR"], "absent.jsonl: cannot be read"),
    ],
)
def test_mistakes_of_a_build(
    arguments: list[str], says: str, corpus: str, tmp_path: Path, ssp: Words
) -> None:
    places = {"CORPUS": corpus, "DIR": str(tmp_path / "o")}
    assert says in ssp("index", *(places.get(each, each) for each in arguments), status=2)


def test_what_is_half_built_reads_the_same_in_every_command(index: str, ssp: Words) -> None:
    (Path(index) / "passages").rename(Path(index) / ".passages.unfinished")
    for command in (["search", "river"], ["serve"]):
        says = ssp(*command, "--index", index, status=2)
        assert f"{index}/passages: is half built; run `ssp index` again" in says


@pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="needs the extra 'dense'")
def test_dense_kinds_are_built_named_and_adopted(
    index: str, corpus: str, tmp_path: Path, ssp: Words
) -> None:
    from small_models import bert_encoder

    model = str(bert_encoder(tmp_path / "model"))
    prefixes = ["--encoder", model, "--query-prefix", "q: ", "--passage-prefix", "p: "]
    ssp("index", corpus, "--out", index, "--kind", "dense-ivf-sq8", *prefixes)
    ssp("index", corpus, "--out", index, "--kind", "dense-flat", *prefixes)
    for command in (["search", "river"], ["serve"]):
        says = ssp(*command, "--index", index, status=2)
        assert "give --kind (or kind=), one of bm25, dense-flat, dense-ivf-sq8" in says
    found = ssp("search", "--index", index, "--kind", "dense-flat", "river")

    file = f"{index}/dense-flat/index.faiss"
    other = str(tmp_path / "j")
    out = ssp("index", corpus, "--adopt", file, "--out", other, *prefixes)
    assert "index.faiss is linked (a hard link" in out
    adopted = ssp("search", "--index", other, "river")
    assert adopted.replace(other, index) == found


# -- ssp serve ---------------------------------------------------------------------------------


def test_the_command_serves_what_bm25_finds_in_an_index(
    index: str, corpus: str, tmp_path: Path
) -> None:
    with ssp_serve(tmp_path / "log", "--index", index) as served:
        assert served.log.read_text().startswith(f"ssp serve: ready at {served.url} (3 passages")
        queries = ["river Vienna", "wet"]
        result = served.retrieve(*queries, topk=3, return_scores=True).json()["result"]
        assert served.stop() == 0

    found = BM25Retriever(read_corpus(corpus)).search(queries, 3)
    assert [[item["document"]["id"] for item in ranking] for ranking in result] == [
        [document.id for document in ranking] for ranking in found
    ]
    assert result[1][0]["document"] == ROWS[2]


def test_a_corpus_is_served_for_a_token_until_ctrl_c(corpus: str, tmp_path: Path) -> None:
    options = ["--corpus", corpus, "--host", "0.0.0.0"]
    with ssp_serve(tmp_path / "log", *options, SSP_SERVE_TOKEN=TOKEN) as served:
        assert served.retrieve("wet").status_code == 401
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert served.retrieve("wet", headers=right).json()["result"][0][0]["id"] == "p3"

        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(10) == 130
        assert TOKEN not in served.log.read_text()
        assert "Traceback" not in served.log.read_text()


def test_mistakes_of_a_server(ssp: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSP_SERVE_TOKEN", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for options, says in (
            (["--host", "0.0.0.0"], "SSP_SERVE_TOKEN"),
            (["--port", str(taken.getsockname()[1]), "--world", "small"], "in use"),
            (["--world", "wiki-mimi"], "did you mean 'wiki-mini'"),
        ):
            assert says in ssp("serve", *options, status=2)

    monkeypatch.delitem(sys.modules, "ssp_env.search.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install '.[serve]'" in ssp("serve", "--world", "mini", status=2)
