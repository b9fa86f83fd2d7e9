"""What an index directory says of itself, and every way in which it is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ssp_env.errors import ConfigError, DataError
from ssp_env.search.bm25.retriever import BM25Retriever
from ssp_env.search.index.directory import build_index, open_index, open_passages
from ssp_env.search.index.manifest import (
    FORMAT,
    EncoderInfo,
    Manifest,
    read_manifest,
    write_manifest,
)

ENCODER = EncoderInfo("minilm", "d" * 64, 384)


def corpus(path: Path, *texts: str) -> Path:
    rows = ({"id": str(i), "title": "t", "text": text} for i, text in enumerate(texts))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def index(tmp_path: Path) -> Path:
    source = corpus(tmp_path / "c.jsonl", "a river", "a hill", "river and hill")
    build_index(source, tmp_path / "i", "bm25")
    return tmp_path / "i"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "data.bin").write_bytes(b"0123456789")
    return tmp_path / "f"


def edit(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_what_is_written_is_read(folder: Path) -> None:
    manifest = Manifest("dense-flat", "c" * 64, 3, ENCODER, {"m": 1})
    wrote = write_manifest(folder, manifest)
    read = read_manifest(folder, "dense-flat", corpus="c" * 64, encoder=ENCODER, check=True)
    assert read == wrote
    assert wrote.sizes == {"data.bin": 10}
    assert wrote.format == FORMAT


def test_another_kind_corpus_or_encoder_is_refused(folder: Path) -> None:
    write_manifest(folder, Manifest("dense-flat", "c" * 64, 3, ENCODER))
    with pytest.raises(DataError, match="holds 'dense-flat', not 'bm25'"):
        read_manifest(folder, "bm25")
    with pytest.raises(DataError, match=r"another corpus .* build it again with `ssp index`"):
        read_manifest(folder, corpus="e" * 64)
    with pytest.raises(DataError, match="was made with minilm"):
        read_manifest(folder, encoder=replace(ENCODER, digest="e" * 64))
    elsewhere = replace(ENCODER, name="the same model elsewhere")
    assert read_manifest(folder, encoder=elsewhere).encoder == ENCODER


@pytest.mark.parametrize(("found", "fix"), [(FORMAT + 1, "upgrade"), (1, "build it again")])
def test_another_format_is_refused(index: Path, found: int, fix: str) -> None:
    edit(index / "bm25" / "manifest.json", format=found)
    with pytest.raises(DataError, match=rf"is of format {found}; .*{fix}"):
        open_index(index)


@pytest.mark.parametrize("name", ["bm25", "passages"])
def test_an_index_without_manifest_is_not_whole(index: Path, name: str) -> None:
    (index / name / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"has no manifest\.json"):
        open_index(index)


HEAD = f'{{"format": {FORMAT}'


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": "x"}', HEAD + "}", HEAD + ', "encoder": 3}', "\x00"]
)
def test_a_manifest_that_is_none(index: Path, text: str) -> None:
    (index / "bm25" / "manifest.json").write_text(text)
    with pytest.raises(DataError, match="manifest"):
        open_index(index)


def test_a_manifest_cannot_name_files_elsewhere(index: Path) -> None:
    edit(index / "bm25" / "manifest.json", sizes={"../../../etc/passwd": 1})
    with pytest.raises(DataError, match="outside the folder"):
        open_index(index)


def test_half_built_says_how_to_go_on(index: Path) -> None:
    for name in ("bm25", "passages"):
        (index / name).rename(index / f"{name}.building")
        with pytest.raises(DataError, match="is half built; run `ssp index` again over the same"):
            open_index(index)
        (index / f"{name}.building").rename(index / name)
    assert open_index(index).search(["hill"], 1)[0]


def test_passages_are_opened_alone(index: Path) -> None:
    shutil.rmtree(index / "bm25")
    texts = [document.text for document in open_passages(index)]
    assert texts == ["a river", "a hill", "river and hill"]


def every_file(index: Path) -> list[Path]:
    files = [*(index / "bm25").iterdir(), *(index / "passages").iterdir()]
    return [path for path in files if path.name != "manifest.json"]


def test_every_cut_grown_or_missing_file_is_noticed_at_load(index: Path) -> None:
    assert len(every_file(index)) >= 7
    for path in every_file(index):
        data = path.read_bytes()
        for damaged in (data[:-1], data + b"\0", b""):
            path.write_bytes(damaged)
            with pytest.raises(DataError, match="it was cut or changed"):
                open_index(index)
        path.unlink()
        with pytest.raises(DataError, match="is missing"):
            open_index(index)
        path.write_bytes(data)
    assert open_index(index).search(["hill"], 1)[0]


def test_every_changed_byte_is_noticed_by_the_full_check(index: Path) -> None:
    for path in every_file(index):
        data = path.read_bytes()
        for at in (0, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            with pytest.raises(DataError, match="is corrupt"):
                read_manifest(path.parent, check=True)
        path.write_bytes(data)
        read_manifest(path.parent, check=True)


def test_an_index_of_other_passages_is_refused(index: Path, tmp_path: Path) -> None:
    source = corpus(tmp_path / "d.jsonl", "a river", "a hill", "river and hills")
    build_index(source, tmp_path / "j", "bm25")
    shutil.rmtree(index / "bm25")
    shutil.copytree(tmp_path / "j" / "bm25", index / "bm25")
    with pytest.raises(DataError, match="belongs to another corpus"):
        open_index(index)
    with pytest.raises(DataError, match="belongs to another corpus"):
        build_index(tmp_path / "c.jsonl", index, "bm25")


def test_kinds(index: Path) -> None:
    assert isinstance(open_index(index, "bm25"), BM25Retriever)
    with pytest.raises(ConfigError, match=r"kind = 'bm52'.*has bm25.*did you mean 'bm25'"):
        open_index(index, "bm52")
    with pytest.raises(ConfigError, match="did you mean 'bm25'"):
        build_index(index, index, "bm52")
    shutil.rmtree(index / "bm25")
    with pytest.raises(DataError, match="holds no index; `ssp index CORPUS --out DIR`"):
        open_index(index)
