"""The builder of wiki-mini: reproducible, checking, and strict about what it is fed."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from experiments.wiki_mini.build import DATA_SETS, NOTICE, main


def lines(*rows: dict[str, Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tiny folder in the layout of the collected data."""
    folder = tmp_path / "source"
    (folder / "eval").mkdir(parents=True)
    for number, name in enumerate(DATA_SETS):
        row = {
            "id": f"{name}_1",
            "question": "Who?",
            "answers": [f"Some One {number}"],
            "evidence": "closed",
            "type": "x",
        }
        (folder / "eval" / f"{name}.jsonl").write_bytes(lines(row))
    passages = lines(
        {"id": "0", "contents": '"Šibenik"\nA town.'}, {"id": "1", "contents": '"Enns"\nA river.'}
    )
    (folder / "wiki_passages.jsonl.gz").write_bytes(gzip.compress(passages, mtime=12345))
    (folder / "passage_origins.tsv.gz").write_bytes(gzip.compress(b"0\tx_dev,y_dev\n1\tx_dev\n"))
    put_answers(
        folder,
        {"id": "D0", "answer": "Enns"},
        {"id": "D1", "answer": "Krka", "aliases": ["Titius"]},
    )
    return folder


def put_answers(folder: Path, *rows: dict[str, Any]) -> None:
    full = [
        {"aliases": [], "source": "y_train", "train_question": "secret?", **row} for row in rows
    ]
    (folder / "answer_set.jsonl").write_bytes(lines(*full))
    names = {
        "corpus/wiki_passages.jsonl.gz": "wiki_passages.jsonl.gz",
        "corpus/passage_origins.tsv.gz": "passage_origins.tsv.gz",
        "answers/answer_set.jsonl": "answer_set.jsonl",
    }
    outputs = {
        key: {"sha256": hashlib.sha256((folder / n).read_bytes()).hexdigest()}
        for key, n in names.items()
    }
    sources = [{"repo": "some/repo", "commit": "0" * 40, "licence": "MIT", "files": []}]
    (folder / "manifest.json").write_text(json.dumps({"sources": sources, "outputs": outputs}))


def build(source: Path, target: Path, *options: str) -> int:
    return main(["--source", str(source), "--target", str(target), *options])


def files(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_two_builds_are_the_same_bytes(source: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert build(source, tmp_path / name) == 0
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_only_needed_fields_are_shipped(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path / "out")
    built = files(tmp_path / "out" / "wiki_mini")
    assert [json.loads(line) for line in built["answers.jsonl"].splitlines()] == [
        {"id": "D0", "answer": "Enns", "source": "y_train"},
        {"id": "D1", "answer": "Krka", "aliases": ["Titius"], "source": "y_train"},
    ]
    assert json.loads(built["questions/nq.jsonl"]).keys() == {"id", "question", "answers"}
    assert not any(b"secret" in content for content in built.values())
    manifest = json.loads(built["manifest.json"])
    assert manifest["passage_origins"] == {"x_dev": 2, "y_dev": 1}
    assert manifest["sources"][0]["repo"] == "some/repo"
    assert "{" not in (tmp_path / "out" / NOTICE).read_text(encoding="utf-8")


def test_an_answer_that_leaks_is_left_out(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_answers(
        source,
        {"id": "D0", "answer": "Enns"},
        {"id": "D1", "answer": "x", "aliases": ["SomeOne 3!"]},
    )
    assert build(source, tmp_path / "out") == 0
    assert "left out" in capsys.readouterr().out
    built = files(tmp_path / "out" / "wiki_mini")
    assert built["answers.jsonl"].count(b"\n") == 1
    assert json.loads(built["manifest.json"])["answers"] == 1


def test_check_tells_what_differs_and_writes_nothing(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    build(source, target)
    assert build(source, target, "--check") == 0
    (target / "wiki_mini" / "answers.jsonl").write_text("changed\n")
    (target / "wiki_mini" / "stray.txt").write_text("")
    (target / NOTICE).unlink()
    before = files(target)
    capsys.readouterr()
    assert build(source, target, "--check") == 1
    differing = [
        f"differs: {name}" for name in (NOTICE, "wiki_mini/answers.jsonl", "wiki_mini/stray.txt")
    ]
    assert capsys.readouterr().out.splitlines() == differing
    assert files(target) == before


def test_another_gzip_of_the_same_text_is_no_difference(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    build(source, target)
    path = target / "wiki_mini" / "passages.jsonl.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), compresslevel=1))
    assert build(source, target, "--check") == 0


@pytest.mark.parametrize(
    "name", ["answer_set.jsonl", "wiki_passages.jsonl.gz", "eval/nq.jsonl", "manifest.json"]
)
def test_a_missing_or_damaged_source_stops_the_build(
    source: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / name).write_bytes(b"{}\n")
    assert build(source, tmp_path / "out") == 2
    assert Path(name).name in capsys.readouterr().err
    (source / name).unlink()
    assert build(source, tmp_path / "out") == 2
    assert not (tmp_path / "out").exists()
