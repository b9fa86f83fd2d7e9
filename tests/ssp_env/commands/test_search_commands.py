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


def test_documents_are_printed_in_order_and_text_from_outside_is_not_obeyed(
    corpus: str, ssp: Words
) -> None:
    out = ssp("search", "river", "Vienna", "\x1b[2J [red]", "--in", corpus)
    assert f"2 from {corpus} for: river Vienna \ufffd[2J [red]" in out
    assert out.index("1. ") < out.index("p1") < out.index("2. (no title)") < out.index("p2")
    assert "p3" not in out
    assert "[bold]Danube[/bold]" in out
    assert "\ufffd[31mthrough\ufffd Vienna \ufffd." in out
    assert not {"\x1b", "\x00"} & set(out)
    assert "2. " not in ssp("search", "river", "-k", "1", "--in", corpus)
    assert "No passage was found" in ssp("search", "zebra", "--in", corpus)
    assert "2 from mini" in ssp("search", "capital", "--in", "mini", "-k", "2")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-k", "0"], "Must be >= 1"),
        (["--in", "mimi"], "did you mean 'mini'"),
        (["--in", "absent.jsonl"], "no such file, directory or world"),
        (["--in", "."], "no such folder; `ssp index CORPUS --out DIR` makes an index"),
        (["--in", "mini", "--kind", "bm25"], "goes with search.index"),
        (["--in", "mini", "--token-env", "TOKEN"], "give an address such as"),
        (["--in", "http://127.0.0.1:9", "--token-env", "ABSENT_TOKEN"], "ABSENT_TOKEN"),
    ],
)
def test_mistakes_of_a_search(options: list[str], says: str, ssp: Words) -> None:
    assert says in ssp("search", "river", *options, status=2)


# -- ssp index ---------------------------------------------------------------------------------


def test_an_index_is_searched_and_not_built_twice(index: str, corpus: str, ssp: Words) -> None:
    assert f"2 from {index}" in ssp("search", "--in", index, "river")
    assert "already complete, 3 passages" in ssp("index", corpus, "--out", index, "--kind", "bm25")
    for kind in ("dense-flat", "hybrid"):
        says = ssp("search", "--in", index, "--kind", kind, "river", status=2)
        assert "holds bm25; name one, or add it by `ssp index`" in says
    assert "did you mean" in ssp("search", "--in", index, "--kind", "bm52", "river", status=2)

    (Path(index) / "passages").rename(Path(index) / ".passages.unfinished")
    for command in (["search", "river"], ["serve", "--port", "0"]):
        says = ssp(*command, "--in", index, status=2)
        assert f"{index}/passages: is half built; run `ssp index` again" in says


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "CORPUS"),
        (["CORPUS", "--out", "DIR", "--kind", "bm52"], "bm25"),
        (["CORPUS", "--out", "DIR", "--kind", "dense-flat"], "needs the encoder"),
        (["CORPUS", "--out", "DIR", "--query-prefix", "q: "], "go with --encoder"),
        (["absent.jsonl", "--out", "DIR"], "absent.jsonl: cannot be read"),
    ],
)
def test_mistakes_of_a_build(
    arguments: list[str], says: str, corpus: str, tmp_path: Path, ssp: Words
) -> None:
    places = {"CORPUS": corpus, "DIR": str(tmp_path / "o")}
    assert says in ssp("index", *(places.get(each, each) for each in arguments), status=2)


@pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="needs the extra 'dense'")
def test_dense_kinds_are_built_named_and_adopted(
    index: str, corpus: str, tmp_path: Path, ssp: Words
) -> None:
    from small_models import bert_encoder

    model = str(bert_encoder(tmp_path / "model"))
    prefixes = ["--encoder", model, "--query-prefix", "q: ", "--passage-prefix", "p: "]
    ssp("index", corpus, "--out", index, "--kind", "dense-ivf-sq8", *prefixes)
    ssp("index", corpus, "--out", index, "--kind", "dense-flat", *prefixes)
    says = ssp("search", "river", "--in", index, status=2)
    assert "holds bm25, dense-flat, dense-ivf-sq8; name one" in says
    assert f"3 from {index}" in ssp("search", "--in", index, "--kind", "hybrid", "river")
    found = ssp("search", "--in", index, "--kind", "dense-flat", "river")

    other = str(tmp_path / "j")
    adopt = ["--kind", "dense-flat", "--adopt", f"{index}/dense-flat/index.faiss"]
    assert "3 passages" in ssp("index", corpus, "--out", other, *adopt, *prefixes)
    adopted = ssp("search", "--in", other, "river")
    assert adopted.replace(other, index) == found


# -- ssp serve ---------------------------------------------------------------------------------


def test_the_command_serves_what_bm25_finds_in_an_index_and_is_asked_by_another(
    index: str, corpus: str, tmp_path: Path, ssp: Words
) -> None:
    with ssp_serve(tmp_path / "log", "--in", index) as served:
        assert served.log.read_text() == f"ssp serve: ready at {served.url}, searching {index}\n"
        queries = ["river Vienna", "wet"]
        result = served.retrieve(*queries, topk=3, return_scores=True).json()["result"]
        out = ssp("search", "river", "Vienna", "--in", served.url)

    found = BM25Retriever(read_corpus(corpus)).search(queries, 3)
    assert [[item["document"]["id"] for item in ranking] for ranking in result] == [
        [document.id for document in ranking] for ranking in found
    ]
    assert result[1][0]["document"] == ROWS[2]
    assert f"2 from {served.url}" in out


def test_a_corpus_is_served_for_a_token_until_ctrl_c(corpus: str, tmp_path: Path) -> None:
    options = ["--in", corpus, "--host", "0.0.0.0"]
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
            (["--port", str(taken.getsockname()[1]), "--in", "small"], "in use"),
            (["--port", "65536"], "cannot be bound"),
            (["--port", "0", "--in", "wiki-mimi"], "did you mean 'wiki-mini'"),
        ):
            assert says in ssp("serve", *options, status=2)

    monkeypatch.delitem(sys.modules, "ssp_env.search.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "'.[serve]'" in ssp("serve", "--in", "mini", status=2)
