"""Dense retrieval: neighbours, directories built, killed, moved, refused, adopted."""

from __future__ import annotations

import hashlib
import os
import pickle
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scripted import jsonl

pytest.importorskip("faiss", reason="needs the extra 'dense'")

import faiss

from ssp_env.search.base import passage_text
from ssp_env.search.dense import FLAT
from ssp_env.search.index import build_index, open_index
from ssp_env.search.store import EncoderInfo
from ssp_env.types import Document


class HashEncoder:
    """Vectors drawn from the hash of a text's last line; a query lies near the same passage."""

    def __init__(self, dimension: int = 24, seed: int = 0) -> None:
        self.seed, name = seed, f"hash, seed {seed}"
        self.info = EncoderInfo(name, hashlib.sha256(name.encode()).hexdigest(), dimension)

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._drawn([text.rpartition("\n")[2] for text in texts])

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = self._drawn(texts) + 0.3 * self._drawn([f"query {text}" for text in texts])
        unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit

    def _drawn(self, lines: Sequence[str]) -> NDArray[np.float32]:
        seeds = [[self.seed, zlib.crc32(line.encode())] for line in lines]
        shape = self.info.dimension
        rows = [np.random.default_rng(each).standard_normal(shape, np.float32) for each in seeds]
        return np.array([row / np.linalg.norm(row) for row in rows])


SMALL = HashEncoder()
COUNT = 1500


CORPUS = [Document(f"d{i}", f"title {i % 7}" if i % 3 else "", f"text {i}") for i in range(COUNT)]
QUERIES = [f"text {i}" for i in range(0, COUNT, 50)]
VECTORS = SMALL.encode_passages([passage_text(document) for document in CORPUS])
EXACT = (-SMALL.encode_queries(QUERIES) @ VECTORS.T).argsort(axis=1)[:, :3]


def right(rankings: Sequence[Sequence[Document]]) -> int:
    """Exact neighbours among those that were found; 90 is all."""
    pairs = zip(rankings, EXACT, strict=True)
    return sum(len({d.id for d in found} & {f"d{i}" for i in best}) for found, best in pairs)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return jsonl(tmp_path_factory.mktemp("corpus") / "c.jsonl", CORPUS)


def test_an_index_answers_alike_wherever_it_is_in_batches_repeated_and_in_threads(
    source: Path, tmp_path: Path
) -> None:
    build_index(source, tmp_path / "i", FLAT, encoder=SMALL)
    opened = open_index(tmp_path / "i", encoder=SMALL)
    once = [opened.search([query], 3)[0] for query in QUERIES]
    assert right(once) == 90
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda query: opened.search([query], 3)[0], QUERIES)) == once
    moved = open_index((tmp_path / "i").rename(tmp_path / "moved"), encoder=SMALL)
    for retriever in (moved, pickle.loads(pickle.dumps(moved))):
        assert retriever.search(QUERIES * 2, 3) == once * 2


def faiss_file(path: Path, made_of: NDArray[np.float32]) -> Path:
    index = faiss.IndexFlatIP(made_of.shape[1])
    index.add(made_of)
    faiss.write_index(index, str(path))
    return path


def test_an_adopted_index_answers_like_the_exact_one(source: Path, tmp_path: Path) -> None:
    file = faiss_file(tmp_path / "e5.index", VECTORS)
    folder = build_index(source, tmp_path / "i", FLAT, encoder=SMALL, adopt=file)
    assert os.path.samefile(file, folder / "index.faiss")
    assert right(open_index(tmp_path / "i", encoder=SMALL).search(QUERIES, 3)) == 90
