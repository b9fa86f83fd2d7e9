"""What an index directory says of itself, and every way in which it is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from corpus_files import jsonl

from ssp_env.errors import ConfigError, DataError
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.index import build_index, open_index, open_passages
from ssp_env.search.store import (
    FORMAT,
    EncoderInfo,
    Manifest,
    read_manifest,
    write_manifest,
)
from ssp_env.types import Document

ENCODER = EncoderInfo("minilm", "d" * 64, 384)


def corpus(path: Path, *texts: str) -> Path:
    return jsonl(path, [Document(str(i), "t", text) for i, text in enumerate(texts)])


@pytest.fixture
def index(tmp_path: Path) -> Path:
    source = corpus(tmp_path / "c.jsonl", "a river", "a hill", "river and hill")
    build_index(source, tmp_path / "i", "bm25")
    return tmp_path / "i"


def test_what_is_written_is_read_and_another_kind_corpus_or_encoder_is_refused(
    tmp_path: Path,
) -> None:
    folder = tmp_path
    (folder / "data.bin").write_bytes(b"0123456789")
    wrote = write_manifest(folder, Manifest("dense-flat", "c" * 64, 3, ENCODER, {"m": 1}))
    read = read_manifest(folder, "dense-flat", corpus="c" * 64, encoder=ENCODER, check=True)
    assert read == wrote
    assert (wrote.format, wrote.sizes) == (FORMAT, {"data.bin": 10})
    with pytest.raises(DataError, match="holds 'dense-flat', not 'bm25'"):
        read_manifest(folder, "bm25")
    with pytest.raises(DataError, match=r"another corpus .* build it again with `ssp index`"):
        read_manifest(folder, corpus="e" * 64)
    with pytest.raises(DataError, match="was made with minilm"):
        read_manifest(folder, encoder=replace(ENCODER, digest="e" * 64))
    elsewhere = replace(ENCODER, name="the same model elsewhere")
    assert read_manifest(folder, encoder=elsewhere).encoder == ENCODER


@pytest.mark.parametrize(
    ("text", "what"),
    [
        *((text, "manifest") for text in ("", "{", "[]", "{}", '{"format": "x"}', "\x00")),
        (json.dumps({"format": FORMAT}), "manifest"),
        (json.dumps({"format": FORMAT, "encoder": 3}), "manifest"),
        (json.dumps({"format": FORMAT + 1}), "; .*upgrade"),
        ('{"format": 1}', "is of format 1; .*build it again"),
        (None, r"has no manifest\.json"),
    ],
)
def test_a_manifest_that_cannot_be_used(index: Path, text: str | None, what: str) -> None:
    path = index / "bm25" / "manifest.json"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(DataError, match=what):
        open_index(index)


def test_a_manifest_cannot_name_files_elsewhere(index: Path) -> None:
    path = index / "bm25" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sizes": {"../../passwd": 1}}))
    with pytest.raises(DataError, match="outside the folder"):
        open_index(index)


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
