"""Builds that are refused: what they say, and that they leave everything as it was."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path

import pytest

from ssp_env.errors import DataError
from ssp_env.search.index.directory import build_index, one_kind, open_index
from ssp_env.search.index.workplace import Workplace

WORDS = ["danube", "hill", "sea"]


def corpus(path: Path, words: list[str]) -> Path:
    rows = ({"id": str(i), "title": "", "text": word} for i, word in enumerate(words))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_passages_are_not_put_beside_an_index_of_others(tmp_path: Path) -> None:
    right, wrong = (
        corpus(tmp_path / "right.jsonl", WORDS),
        corpus(tmp_path / "wrong.jsonl", WORDS[::-1]),
    )
    directory = tmp_path / "i"
    build_index(right, directory, "bm25")
    whole = contents(directory)
    shutil.rmtree(directory / "passages")
    before = contents(directory)
    for _ in range(2):
        with pytest.raises(
            DataError, match=r"wrong\.jsonl: is not the corpus that .* made of \(bm25\)"
        ) as refused:
            build_index(wrong, directory, "bm25")
        assert str(directory) in str(refused.value)
        assert "index that corpus, or give another --out" in str(refused.value)
        assert contents(directory) == before
    build_index(right, directory, "bm25")
    assert contents(directory) == whole
    assert open_index(directory).search(["hill"], 1)[0][0].id == "1"


@pytest.mark.parametrize("folder", ["passages", "bm25"])
def test_a_build_that_was_killed_just_before_the_end_is_not_taken_for_another(
    folder: str, tmp_path: Path
) -> None:
    right, wrong = (
        corpus(tmp_path / "right.jsonl", WORDS),
        corpus(tmp_path / "wrong.jsonl", WORDS[::-1]),
    )
    directory = tmp_path / "i"
    build_index(right, directory, "bm25")
    whole = contents(directory)
    (directory / folder).rename(directory / f"{folder}.building")
    if folder == "bm25":
        shutil.rmtree(directory / "passages")
    with pytest.raises(DataError, match=r"holds other passages|belongs to another corpus"):
        build_index(wrong, directory, "bm25")
    if folder == "bm25":
        shutil.rmtree(directory / "passages")
    build_index(right, directory, "bm25")
    assert contents(directory) == whole


@pytest.mark.parametrize("kind", ["absent", "folder", "empty", "blank", "wrong in the first line"])
def test_what_never_took_a_passage_in_leaves_nothing(kind: str, tmp_path: Path) -> None:
    source, directory = tmp_path / "c.jsonl", tmp_path / "made" / "i"
    if kind == "folder":
        source.mkdir()
    elif kind != "absent":
        source.write_text({"empty": "", "blank": "\n \n"}.get(kind, "{\n"))
    with pytest.raises(DataError, match=r"c\.jsonl"):
        build_index(source, directory, "bm25")
    assert not directory.parent.exists()
    directory.mkdir(parents=True)
    with pytest.raises(DataError, match=r"c\.jsonl"):
        build_index(source, directory, "bm25")
    assert list(directory.iterdir()) == []


def test_a_wrong_line_in_the_middle_is_said_again_and_can_be_put_right(tmp_path: Path) -> None:
    source, directory = corpus(tmp_path / "c.jsonl", WORDS), tmp_path / "i"
    good = source.read_text()
    source.write_text(good + "{\n")
    for _ in range(2):
        with pytest.raises(DataError, match=r"c\.jsonl:4: not JSON"):
            build_index(source, directory, "bm25")
    half_built = (
        "half built; run `ssp index` again over the same corpus: it goes on where it "
        "stopped, or says what"
    )
    with pytest.raises(DataError, match=half_built):
        open_index(directory)
    with pytest.raises(DataError, match=half_built):
        one_kind(directory, None)
    source.write_text(good)
    build_index(source, directory, "bm25")
    assert open_index(directory).search(["hill"], 1)[0]


def test_a_second_builder_is_kept_out_even_where_the_first_leaves_nothing(tmp_path: Path) -> None:
    first, second = Workplace(tmp_path / "i" / "a"), Workplace(tmp_path / "i" / "b")
    with first.open(), pytest.raises(DataError, match="in use by another build"), second.open():
        pass
    assert not (tmp_path / "i").exists()
    with second.open():
        assert second.path.is_dir()


def test_a_lock_that_its_holder_removed_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Workplace(tmp_path / "a")

    def late(lock: object, how: int) -> None:
        (tmp_path / ".lock").unlink()

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", late)
        with pytest.raises(DataError, match="in use by another build"), place.open():
            pass
    with place.open():
        assert place.path.is_dir()


def test_out_that_is_a_file(tmp_path: Path) -> None:
    source, file = corpus(tmp_path / "c.jsonl", WORDS), tmp_path / "file"
    file.write_text("kept")
    with pytest.raises(
        DataError, match="file: is a file; an index is a directory: give another --out"
    ):
        build_index(source, file, "bm25")
    assert file.read_text() == "kept"


@pytest.mark.parametrize("text", ["", '{"id": "1", "contents": "x"}\n' * 2], ids=["empty", "twice"])
def test_the_corpus_is_named_as_it_was_given(text: str, tmp_path: Path) -> None:
    source = tmp_path / "c.jsonl"
    source.write_text(text)
    with pytest.raises(DataError) as refused:
        build_index(source, tmp_path / "i", "bm25")
    assert str(refused.value).startswith(f"{source}:")


def test_a_pipe_is_told_from_a_file(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"{}\n")
    os.close(writing)
    with pytest.raises(DataError, match="a regular file is wanted"):
        build_index(f"/dev/fd/{reading}", tmp_path / "i", "bm25")
    os.close(reading)
    assert not (tmp_path / "i").exists()
