"""``ssp index`` and ``ssp search --index``: what they print, and what they refuse."""

from __future__ import annotations

import json
import shutil
from argparse import ArgumentParser
from pathlib import Path

import pytest

from ssp_env.cli import main
from ssp_env.commands.base import Command
from ssp_env.commands.index import COMMAND
from ssp_env.search.index import KINDS

ROWS = [
    {"id": "p1", "contents": '"Danube"\nA river.'},
    {"id": "p2", "title": "Hill", "text": "Not wet."},
]


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


@pytest.fixture
def index(corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["index", corpus, "--out", str(tmp_path / "i")]) == 0
    out, err = capsys.readouterr()
    assert f"{tmp_path / 'i' / 'bm25'}: 2 passages" in out
    assert "indexing words" in err
    return str(tmp_path / "i")


def test_help_reads_well() -> None:
    parser = ArgumentParser(prog="ssp index")
    COMMAND.configure(parser)
    text = parser.format_help()
    assert isinstance(COMMAND, Command)
    for word in ("CORPUS", "--out", "--check", "contents", *KINDS):
        assert word in text


def test_index_then_search(index: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "--index", index, "river"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "1 of 2 passages" in out
    assert "1. Danube" in out


def test_building_again_says_the_same(
    index: str, corpus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", corpus, "--out", index, "--kind", "bm25"]) == 0
    out, err = capsys.readouterr()
    assert "already complete, 2 passages" in out
    assert "indexing words" not in err


def test_check(index: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", "--check", index]) == 0
    assert "every byte as it was written (2 passages, bm25)" in capsys.readouterr().out
    path = Path(index) / "passages" / "passages.sqlite"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    assert main(["index", "--check", index]) == 2
    assert "passages.sqlite: is corrupt" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["bm25", "passages"])
@pytest.mark.parametrize("cut", [True, False], ids=["cut", "flipped"])
def test_a_damaged_folder_is_repaired_by_what_the_message_says(
    index: str, corpus: str, folder: str, cut: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path(index) / folder
    file = max(
        place.iterdir(), key=lambda path: (path.name != "manifest.json", path.stat().st_size)
    )
    data = file.read_bytes()
    file.write_bytes(data[:-1] if cut else data[:-1] + bytes([data[-1] ^ 1]))
    assert main(["index", "--check", index]) == 2
    assert f"delete {place} and build it again with `ssp index`" in " ".join(
        capsys.readouterr().err.split()
    )
    shutil.rmtree(place)
    assert main(["index", corpus, "--out", index]) == 0
    assert main(["index", "--check", index]) == 0


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "needs CORPUS and --out"),
        (["CORPUS"], "needs CORPUS and --out"),
        (["CORPUS", "--out", "DIR", "--kind", "bm52"], "did you mean 'bm25'"),
        (["CORPUS", "--out", "DIR", "--check", "DIR"], "takes a directory alone"),
        (["--check", "DIR", "--kind", "bm25"], "takes a directory alone"),
        (["--check", "DIR", "--encoder", "DIR"], "takes a directory alone"),
        (["absent.jsonl", "--out", "DIR"], "absent.jsonl: cannot be read"),
        (["--check", "absent"], "absent/passages: no such folder"),
    ],
)
def test_mistakes(
    arguments: list[str], what: str, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"CORPUS": corpus, "DIR": str(tmp_path / "o")}
    assert main(["index", *(places.get(argument, argument) for argument in arguments)]) == 2
    assert what in " ".join(capsys.readouterr().err.split())


def test_what_is_half_built_reads_the_same_in_every_command(
    index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (Path(index) / "passages").rename(Path(index) / ".passages.unfinished")
    for kinds_there in (True, False):
        said = set()
        for command in (["search", "--index", index, "river"], ["serve", "--index", index]):
            assert main(command) == 2
            said.add(capsys.readouterr().err)
        [message] = said
        assert f"{index}/passages: is half built; run `ssp index` again" in " ".join(
            message.split()
        )
        if kinds_there:
            shutil.rmtree(Path(index) / "bm25")


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"lists_probed": 23, "lists": 64}, "of the 3 nearest passages, in 23 of 64 lists"),
        ({"nodes_in_view": 64}, "of the 3 nearest passages, keeping 64 nodes in view"),
    ],
)
def test_how_far_an_approximate_index_looks_is_said(
    index: str, corpus: str, chosen: dict[str, int], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(index) / "bm25" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["parameters"] |= {"recall_at_3": 0.9876, "recall_queries": 512, **chosen}
    path.write_text(json.dumps(manifest))
    assert main(["index", corpus, "--out", index]) == 0
    assert f"asked 512 of its sentences, it finds 98.8% {words}" in " ".join(
        capsys.readouterr().out.split()
    )


def test_search_names_what_is_wrong_with_an_index(
    index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", "--index", str(tmp_path / "absent"), "river"]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert main(["search", "--index", index, "--kind", "bm52", "river"]) == 2
    assert "has bm25; did you mean 'bm25'?" in " ".join(capsys.readouterr().err.split())
    assert main(["search", "--index", index, "--kind", "dense-flat", "river"]) == 2
    assert "has bm25; `ssp index --kind dense-flat` adds it" in " ".join(
        capsys.readouterr().err.split()
    )
    assert main(["search", "--kind", "bm25", "river"]) == 2
    assert "go with --index" in capsys.readouterr().err
