"""Adopting a FAISS file with its corpus: what is taken, what is refused, and how the file comes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("faiss", reason="needs the extra 'dense'")

import faiss
from clustered import ClusteredEncoder

from ssp_env.cli import main
from ssp_env.errors import DataError
from ssp_env.search.dense.adopt import adopt_index
from ssp_env.search.dense.neighbours import FLAT, HNSW, IVF
from ssp_env.search.index.directory import build_index, open_index
from ssp_env.search.index.manifest import read_manifest

ENCODER = ClusteredEncoder(dimension=24, clusters=40)
ANOTHER = ClusteredEncoder(dimension=24, clusters=40, seed=1)
COUNT = 600
TEXTS = [f"passage {i}" for i in range(COUNT)]


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus as Search-R1 has it."""
    path = tmp_path_factory.mktemp("wiki") / "wiki-18.jsonl"
    rows = ({"id": str(i), "contents": f'"Title {i}"\n{text}'} for i, text in enumerate(TEXTS))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def vectors() -> NDArray[np.float32]:
    return ENCODER.encode_passages(TEXTS)


def faiss_file(path: Path, made_of: NDArray[np.float32], factory: str = "Flat") -> Path:
    index = faiss.index_factory(made_of.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    index.train(made_of)
    index.add(made_of)
    faiss.write_index(index, str(path))
    return path


@pytest.mark.parametrize(
    ("factory", "kind"), [("Flat", FLAT), ("HNSW16", HNSW), ("IVF8,SQ8", IVF), ("IVF8,Flat", IVF)]
)
def test_an_adopted_index_answers_like_one_that_was_built(
    wiki: Path, tmp_path: Path, factory: str, kind: str
) -> None:
    file = faiss_file(tmp_path / "e5.index", vectors(), factory)
    folder = adopt_index(wiki, tmp_path / "i", file, ENCODER)
    assert folder == tmp_path / "i" / kind
    assert os.path.samefile(file, folder / "index.faiss")
    build_index(wiki, tmp_path / "built", FLAT, encoder=ENCODER)
    queries = [f"Title {i}\npassage {i}" for i in range(0, COUNT, 30)]
    found = open_index(tmp_path / "i", encoder=ENCODER).search(queries, 3)
    exact = open_index(tmp_path / "built", encoder=ENCODER).search(queries, 3)
    pairs = zip(found, exact, strict=True)
    same = sum(len({d.id for d in a} & {d.id for d in b}) for a, b in pairs)
    assert same >= (60 if kind == FLAT else 57)

    said = read_manifest(folder).parameters
    assert said["adopted"] == "e5.index"
    assert said["lowest_cosine_checked"] > 0.99
    assert (kind == FLAT) == ("recall_at_3" not in said)


@pytest.mark.parametrize(
    ("made_of", "what"),
    [
        (lambda: np.roll(vectors(), 1, axis=0), "is not that of passage"),
        (lambda: ANOTHER.encode_passages(TEXTS), "is not that of passage"),
        (lambda: vectors()[:-1], r"holds 599 vectors, .* 600 passages"),
        (lambda: vectors()[:, :20].copy(), "has vectors of 20 numbers"),
        (lambda: 3 * vectors(), "those of unit length are wanted"),
    ],
)
def test_vectors_that_are_not_the_corpus_s_are_refused(
    wiki: Path, tmp_path: Path, made_of: Any, what: str
) -> None:
    with pytest.raises(DataError, match=what):
        adopt_index(wiki, tmp_path / "i", faiss_file(tmp_path / "f", made_of()), ENCODER)
    assert not (tmp_path / "i" / FLAT).exists()


def test_files_that_are_not_such_an_index_are_refused(wiki: Path, tmp_path: Path) -> None:
    def refused(match: str) -> None:
        with pytest.raises(DataError, match=match):
            adopt_index(wiki, tmp_path / "i", tmp_path / "f", ENCODER)

    (tmp_path / "f").write_text("nonsense")
    refused("is not an index that FAISS can read")
    faiss.write_index(faiss.IndexFlatL2(24), str(tmp_path / "f"))
    refused("by inner product is wanted")
    index = faiss.index_factory(24, "IVF4,Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors())
    index.add_with_ids(vectors(), np.arange(1000, 1000 + COUNT))
    faiss.write_index(index, str(tmp_path / "f"))
    refused("does not give its vectors by position")


def test_a_file_on_another_disk_is_copied(
    wiki: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_disk(*paths: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    file = faiss_file(tmp_path / "f", vectors())
    monkeypatch.setattr(os, "link", other_disk)
    copy = adopt_index(wiki, tmp_path / "i", file, ENCODER) / "index.faiss"
    assert copy.read_bytes() == file.read_bytes()
    assert not os.path.samefile(copy, file)


def test_by_the_command_line_with_prefixes(
    wiki: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sentence_transformers", reason="needs the extra 'dense'")
    from small_models import bert_encoder

    from ssp_env.search.dense.encoder import SentenceTransformerEncoder

    model = str(bert_encoder(tmp_path / "model"))
    encoder = SentenceTransformerEncoder(model, prefixes=("query: ", "passage: "))
    texts = [f"Title {i}\n{text}" for i, text in enumerate(TEXTS)]
    file = str(faiss_file(tmp_path / "e5_Flat.index", encoder.encode_passages(texts)))
    command = ["index", str(wiki), "--adopt", file, "--encoder", model, "--out"]
    prefixes = ["--query-prefix", "query: ", "--passage-prefix", "passage: "]
    assert main([*command, str(tmp_path / "i"), *prefixes]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "600 passages" in out
    assert "e5_Flat.index is linked (a hard link" in out

    assert read_manifest(tmp_path / "i" / FLAT).encoder == encoder.info
    expected = open_index(tmp_path / "i", encoder=encoder).search(["passage 7"], 3)
    assert open_index(tmp_path / "i").search(["passage 7"], 3) == expected
    assert main(["search", "--index", str(tmp_path / "i"), "passage 7"]) == 0
    assert main([*command, str(tmp_path / "j"), "--kind", FLAT]) == 2
    assert main(["index", str(wiki), "--out", str(tmp_path / "j"), *prefixes]) == 2
