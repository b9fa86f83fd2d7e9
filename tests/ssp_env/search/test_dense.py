"""Dense retrieval: neighbours, directories built, killed, moved, refused, adopted."""

from __future__ import annotations

import hashlib
import os
import pickle
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus_files import jsonl
from numpy.typing import NDArray

pytest.importorskip("faiss", reason="needs the extra 'dense'")

import faiss

from ssp_env.errors import ConfigError, DataError
from ssp_env.search.corpus import passage_text
from ssp_env.search.dense import BLOCK, FLAT, IVF, nearest
from ssp_env.search.index import KINDS, build_index, open_index
from ssp_env.search.store import EncoderInfo
from ssp_env.types import Document

DENSE = KINDS[1:]


class HashEncoder:
    """Vectors drawn from the hash of a text's last line; a query lies near the same passage."""

    def __init__(self, dimension: int = 24, seed: int = 0) -> None:
        self.seed, name = seed, f"hash, seed {seed}"
        self.info = EncoderInfo(name, hashlib.sha256(name.encode()).hexdigest(), dimension)

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._drawn([text.rpartition("\n")[2] for text in texts])

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = self.encode_passages(texts) + 0.3 * self._drawn([f"query {text}" for text in texts])
        unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit

    def _drawn(self, lines: Sequence[str]) -> NDArray[np.float32]:
        seeds = [[self.seed, zlib.crc32(line.encode())] for line in lines]
        shape = self.info.dimension
        rows = [np.random.default_rng(each).standard_normal(shape, np.float32) for each in seeds]
        return np.array([row / np.linalg.norm(row) for row in rows])


SMALL = HashEncoder()
COUNT = 1500


def corpus(count: int) -> list[Document]:
    titles = [f"title {i % 7}" if i % 3 else "" for i in range(count)]
    return [Document(f"d{i}", title, f"text {i}") for i, title in enumerate(titles)]


def ids(ranking: Sequence[Document]) -> list[str]:
    return [document.id for document in ranking]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return jsonl(tmp_path_factory.mktemp("corpus") / "c.jsonl", corpus(COUNT))


@pytest.mark.parametrize("kind", DENSE)
def test_an_index_answers_alike_wherever_it_is_in_batches_repeated_and_in_threads(
    source: Path, kind: str, tmp_path: Path
) -> None:
    build_index(source, tmp_path / "i", kind, encoder=SMALL)
    queries = [f"text {i}" for i in range(0, COUNT, 75)]
    opened = open_index(tmp_path / "i", encoder=SMALL)
    once = [ids(opened.search([query], 5)[0]) for query in queries]
    vectors = SMALL.encode_passages([passage_text(document) for document in corpus(COUNT)])
    exact = (SMALL.encode_queries(queries) @ vectors.T).argsort(axis=1)[:, -1]
    hits = [ranking[0] == f"d{best}" for ranking, best in zip(once, exact, strict=True)]
    assert all(hits) if kind == FLAT else sum(hits) >= 18

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda query: ids(opened.search([query], 5)[0]), queries)) == once
    moved = open_index((tmp_path / "i").rename(tmp_path / "moved"), encoder=SMALL)
    for retriever in (moved, pickle.loads(pickle.dumps(moved))):
        assert [ids(ranking) for ranking in retriever.search(queries * 2, 5)] == once * 2


@pytest.mark.parametrize("kind", DENSE)
@pytest.mark.parametrize("count", [1, 2, 60])
def test_small_sets_and_a_k_beyond_them(kind: str, count: int, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "c.jsonl", corpus(count))
    build_index(source, tmp_path / "i", kind, encoder=SMALL)
    [ranking] = open_index(tmp_path / "i", encoder=SMALL).search(["text 0"], 100)
    assert sorted(ids(ranking)) == sorted(f"d{i}" for i in range(count))
    scores = [document.score or 0.0 for document in ranking]
    assert scores == sorted(scores, reverse=True)


def test_a_k_that_a_short_look_cannot_fill_is_filled_by_a_longer_one() -> None:
    vectors = SMALL.encode_passages([str(i) for i in range(3000)])
    index = faiss.index_factory(24, "IVF32,SQ8", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    _, positions = nearest(index, vectors[:1], 2000)
    assert len(set(positions[0].tolist())) == 2000


# -- builds ------------------------------------------------------------------------------------


class Killed(Exception):
    pass


class Counting(HashEncoder):
    """Counts the passages that it encodes, and may be killed over it."""

    def __init__(self, patience: int = 10**9) -> None:
        super().__init__()
        self.passages, self.patience = 0, patience

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.passages + len(texts) > self.patience:
            raise Killed
        self.passages += len(texts)
        return super().encode_passages(texts)


@pytest.mark.parametrize("kind", DENSE)
def test_a_killed_build_continues_encoding_where_it_stopped(
    source: Path, kind: str, tmp_path: Path
) -> None:
    whole = build_index(source, tmp_path / "whole", kind, encoder=SMALL) / "index.faiss"
    with pytest.raises(Killed):
        build_index(source, tmp_path / "i", kind, encoder=Counting(3 * BLOCK))
    name = "index.faiss" if kind == FLAT else "vectors.faiss"
    with open(tmp_path / "i" / f".{kind}.unfinished" / name, "ab") as file:
        file.write(b"half a vector")

    other = HashEncoder(seed=1)
    with pytest.raises(DataError, match="begun with other passages or another encoder; delete it"):
        build_index(source, tmp_path / "i", kind, encoder=other)

    # The last block may be half written, so it is encoded again.
    second = Counting(COUNT - 2 * BLOCK)
    folder = build_index(source, tmp_path / "i", kind, encoder=second)
    assert second.passages == COUNT - 2 * BLOCK
    assert (folder / "index.faiss").read_bytes() == whole.read_bytes()


def test_an_index_of_another_encoder_is_refused(source: Path, tmp_path: Path) -> None:
    build_index(source, tmp_path / "i", FLAT, encoder=SMALL)
    for dimension, seed in ((24, 1), (25, 0)):
        other = HashEncoder(dimension, seed)
        with pytest.raises(DataError, match=r"was made with hash.*not with hash"):
            open_index(tmp_path / "i", FLAT, encoder=other)
    with pytest.raises(ConfigError, match="encoder"):
        open_index(tmp_path / "i", FLAT)


# -- adopting a FAISS file ---------------------------------------------------------------------


def faiss_file(path: Path, made_of: NDArray[np.float32], factory: str = "Flat") -> Path:
    index = faiss.index_factory(made_of.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    index.train(made_of)
    index.add(made_of)
    faiss.write_index(index, str(path))
    return path


@pytest.fixture(scope="module")
def vectors() -> NDArray[np.float32]:
    return SMALL.encode_passages([passage_text(document) for document in corpus(COUNT)])


@pytest.mark.parametrize(("factory", "kind"), [("Flat", FLAT), ("IVF8,SQ8", IVF)])
def test_an_adopted_index_answers_like_the_exact_one(
    source: Path,
    vectors: NDArray[np.float32],
    tmp_path: Path,
    factory: str,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = faiss_file(tmp_path / "e5.index", vectors, factory)
    folder = build_index(source, tmp_path / "i", kind, encoder=SMALL, adopt=file)
    assert os.path.samefile(file, folder / "index.faiss")
    queries = [f"text {i}" for i in range(0, 600, 30)]
    found = open_index(tmp_path / "i", encoder=SMALL).search(queries, 3)
    exact = (-SMALL.encode_queries(queries) @ vectors.T).argsort(axis=1)[:, :3]
    pairs = zip(found, exact, strict=True)
    same = sum(len({*ids(ranking)} & {f"d{i}" for i in best}) for ranking, best in pairs)
    assert same >= (60 if kind == FLAT else 45)

    def other_disk(*paths: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", other_disk)
    copy = build_index(source, tmp_path / "j", kind, encoder=SMALL, adopt=file) / "index.faiss"
    assert copy.read_bytes() == file.read_bytes()
    assert not os.path.samefile(copy, file)


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda vectors: np.roll(vectors, 1, axis=0), "is not the unit vector of passage"),
        (lambda vectors: 3 * vectors, "is not the unit vector"),
        (lambda vectors: vectors[:-1], r"1,499 vectors .* has 1,500"),
        (lambda vectors: vectors[:, :20].copy(), "vectors of 20 numbers"),
    ],
)
def test_vectors_that_are_not_the_corpus_s_are_refused(
    source: Path, vectors: NDArray[np.float32], tmp_path: Path, spoil: Any, what: str
) -> None:
    file = faiss_file(tmp_path / "f", spoil(vectors))
    with pytest.raises(DataError, match=what):
        build_index(source, tmp_path / "i", FLAT, encoder=SMALL, adopt=file)
    file.write_bytes(b"no index")
    with pytest.raises(DataError, match="FAISS can read"):
        build_index(source, tmp_path / "i", FLAT, encoder=SMALL, adopt=file)
    assert not (tmp_path / "i" / FLAT).exists()
