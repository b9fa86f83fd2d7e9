"""Dense retrieval: neighbours, approximate indexes; directories built, killed, moved, refused."""

from __future__ import annotations

import json
import pickle
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
from clustered import ClusteredEncoder

from ssp_env.errors import ConfigError, DataError
from ssp_env.search.corpus import no_progress, passage_text
from ssp_env.search.dense.build import BLOCK
from ssp_env.search.dense.neighbours import (
    FLAT,
    HNSW,
    IVF,
    KINDS,
    approximate,
    list_count,
    nearest,
    set_effort,
    tune,
    write_faiss,
)
from ssp_env.search.index.directory import build_index, open_index
from ssp_env.search.index.manifest import EncoderInfo, read_manifest
from ssp_env.types import Document

SMALL = ClusteredEncoder(dimension=24, clusters=40)
COUNT = 1500


def corpus(count: int) -> list[Document]:
    titles = [f"title {i % 7}" if i % 3 else "" for i in range(count)]
    return [Document(f"d{i}", title, f"text {i}") for i, title in enumerate(titles)]


def unit(rng: np.random.Generator, rows: int, dimension: int) -> NDArray[np.float32]:
    vectors = rng.standard_normal((rows, dimension)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def flat(vectors: NDArray[np.float32]) -> Any:
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index


def ids(ranking: Sequence[Document]) -> list[str]:
    return [document.id for document in ranking]


# Neighbours


def tuned(kind: str, vectors: NDArray[np.float32], queries: NDArray[np.float32]) -> Any:
    exact = flat(vectors)
    index = approximate(kind, exact, no_progress)
    return index, tune(kind, index, exact, queries)


def share_found(kind: str, encoder: ClusteredEncoder, count: int) -> tuple[float, dict[str, Any]]:
    """The share of the exact top three that an index finds, measured with other queries than the
    index measured itself with; and what it says of itself."""
    vectors, step = encoder.encode_passages([str(i) for i in range(count)]), count // 200
    asked, others = (
        encoder.encode_queries([str(i) for i in range(first, count, step)]) for first in (0, 1)
    )
    index, chosen = tuned(kind, vectors, others)
    exact = nearest(flat(vectors), asked, 3)
    found = nearest(index, asked, 3)
    for query, (scores, positions) in zip(asked, found, strict=True):
        assert scores.tolist() == sorted(scores, reverse=True)
        assert len(positions) == 3
        assert abs(scores - vectors[positions] @ query).max() < (0.02 if kind == IVF else 1e-5)
    hits = [len(set(a[1]) & set(b[1])) for a, b in zip(exact, found, strict=True)]
    return sum(hits) / (3 * len(hits)), chosen


def test_lists_are_probed_as_far_as_the_vectors_need_it() -> None:
    tight, loose = (ClusteredEncoder(48, 500, closeness) for closeness in ((0.9, 0.8), (0.65, 0.6)))
    (found, few), (found_too, more) = (
        share_found(IVF, encoder, 20_000) for encoder in (tight, loose)
    )
    assert min(found, found_too) >= 0.95
    assert few["lists_probed"] < more["lists_probed"] < more["lists"] == list_count(20_000)
    assert more["recall_at_3"] == pytest.approx(found_too, abs=0.03)
    assert more["recall_queries"] == 200


def test_a_graph_finds_the_exact_top_three() -> None:
    found, chosen = share_found(HNSW, ClusteredEncoder(48, 500), 4000)
    assert found >= 0.95
    assert chosen["nodes_in_view"] < 2048


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 60])
def test_small_sets_and_a_k_beyond_them(kind: str, count: int) -> None:
    vectors = unit(np.random.default_rng(3), count, 16)
    index = flat(vectors) if kind == FLAT else tuned(kind, vectors, vectors)[0]
    for scores, positions in nearest(index, vectors[:2], 100):
        assert sorted(positions.tolist()) == list(range(count))
        assert scores[0] == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("kind", [HNSW, IVF])
def test_a_k_that_a_short_look_cannot_fill_is_filled_by_a_longer_one(kind: str) -> None:
    vectors = SMALL.encode_passages([str(i) for i in range(3000)])
    index, _ = tuned(kind, vectors, vectors[:9])
    set_effort(index, 1)
    [(_, positions)] = nearest(index, vectors[:1], 2000)
    assert len(set(positions.tolist())) == 2000


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_is_searched_on_a_gpu_where_faiss_sees_one(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = jsonl(tmp_path / "c.jsonl", corpus(3000))
    folder = build_index(source, tmp_path / "i", kind, encoder=SMALL)
    expected = open_index(tmp_path / "i", encoder=SMALL).search(["text 7"], 3)

    # What FAISS would need of a GPU; an index that is there is a copy in memory.
    moved: list[Any] = []

    def move(resources: str, device: int, index: Any) -> Any:
        if moved:
            raise RuntimeError("out of memory")
        moved.append(faiss.clone_index(index))
        return moved[0]

    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    monkeypatch.setattr(faiss, "StandardGpuResources", lambda: "resources", raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", move, raising=False)
    assert open_index(tmp_path / "i", encoder=SMALL).search(["text 7"], 3) == expected
    assert len(moved) == (kind != HNSW)  # FAISS searches no graph on a GPU
    if kind == IVF:
        assert moved[0].nprobe == read_manifest(folder).parameters["lists_probed"]
    if kind != HNSW:
        with pytest.raises(DataError, match=r"cannot be moved to the GPU \(out of memory\); hide"):
            open_index(tmp_path / "i", encoder=SMALL)


# On disk


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return jsonl(tmp_path_factory.mktemp("corpus") / "c.jsonl", corpus(COUNT))


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_answers_alike_wherever_it_is_in_batches_repeated_and_in_threads(
    source: Path, kind: str, tmp_path: Path
) -> None:
    folder = build_index(source, tmp_path / "i", kind, encoder=SMALL)
    assert sorted(path.name for path in folder.iterdir()) == ["index.faiss", "manifest.json"]
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


class Killed(Exception):
    pass


class Counting(ClusteredEncoder):
    """Counts the passages that it encodes, and may be killed over it."""

    def __init__(self, patience: int = 10**9) -> None:
        super().__init__(dimension=24, clusters=40)
        self.passages, self.patience = 0, patience

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.passages + len(texts) > self.patience:
            raise Killed
        self.passages += len(texts)
        return super().encode_passages(texts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_build_goes_on_with_encoding_where_it_stopped(
    source: Path, kind: str, tmp_path: Path
) -> None:
    expected = build_index(source, tmp_path / "whole", kind, encoder=SMALL) / "index.faiss"
    first = Counting(3 * BLOCK)
    with pytest.raises(Killed):
        build_index(source, tmp_path / "i", kind, encoder=first)
    assert first.passages == 3 * BLOCK
    # What a kill in the middle of a write leaves behind the journal's end is cut off.
    name = "index.faiss" if kind == FLAT else "vectors.faiss"
    with open(tmp_path / "i" / f"{kind}.building" / name, "ab") as file:
        file.write(b"half a vector")

    def kill(stage: str, done: int, total: int) -> None:
        if stage == "adding vectors":
            raise Killed

    second, stages = Counting(), []
    if kind != FLAT:
        with pytest.raises(Killed):
            build_index(source, tmp_path / "i", kind, encoder=second, progress=kill)
        assert second.passages == COUNT - 3 * BLOCK
    third = second if kind == FLAT else Counting(0)
    folder = build_index(
        source, tmp_path / "i", kind, encoder=third, progress=lambda *told: stages.append(told[0])
    )
    assert second.passages == COUNT - 3 * BLOCK
    resumed = f"encoding passages (resuming at {3 * BLOCK if kind == FLAT else COUNT:,} of 1,500)"
    assert resumed in stages
    assert (folder / "index.faiss").read_bytes() == expected.read_bytes()


def test_an_unfinished_encoding_is_not_continued_with_another_encoder_or_a_damaged_journal(
    source: Path, tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        build_index(source, tmp_path / "i", FLAT, encoder=Counting(BLOCK))
    other = ClusteredEncoder(dimension=24, clusters=40, seed=1)
    with pytest.raises(DataError, match="begun with other passages or another encoder; delete it"):
        build_index(source, tmp_path / "i", FLAT, encoder=other)

    journal = tmp_path / "i" / f"{FLAT}.building" / "journal.json"
    state = json.loads(journal.read_text())
    for text in ("{", "[1]", json.dumps(state | {"vectors": 10**6})):
        journal.write_text(text)
        with pytest.raises(DataError, match="delete"):
            build_index(source, tmp_path / "i", FLAT, encoder=SMALL)


def test_a_flat_index_spares_the_others_the_encoding(source: Path, tmp_path: Path) -> None:
    build_index(source, tmp_path / "i", FLAT, encoder=SMALL)
    build_index(source, tmp_path / "i", IVF, encoder=Counting(0))
    other = Counting(0)
    other.info = EncoderInfo("another", "0", 24)
    with pytest.raises(Killed):
        build_index(source, tmp_path / "i", HNSW, encoder=other)


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_of_another_encoder_is_refused(source: Path, kind: str, tmp_path: Path) -> None:
    build_index(source, tmp_path / "i", kind, encoder=SMALL)
    for dimension, seed in ((24, 1), (25, 0)):
        other = ClusteredEncoder(dimension=dimension, clusters=40, seed=seed)
        with pytest.raises(DataError, match=r"was made with generated.*not with generated"):
            open_index(tmp_path / "i", kind, encoder=other)
    with pytest.raises(ConfigError, match="encoder"):
        open_index(tmp_path / "i", kind)


def test_files_that_are_not_what_the_manifest_says_are_refused(
    source: Path, tmp_path: Path
) -> None:
    folder = build_index(source, tmp_path / "i", IVF, encoder=SMALL)
    manifest, index = (folder / "manifest.json").read_text(), folder / "index.faiss"

    def refused(match: str) -> None:
        whole = json.loads(manifest)
        whole["sizes"]["index.faiss"] = index.stat().st_size
        (folder / "manifest.json").write_text(json.dumps(whole))
        with pytest.raises(DataError, match=match):
            open_index(tmp_path / "i", encoder=SMALL)

    good = index.read_bytes()
    index.write_bytes(good[: len(good) // 2])
    refused("is not an index that FAISS can read")
    faiss.write_index(faiss.IndexFlatIP(24), str(index))
    refused("does not hold a dense-ivf-sq8 index of 1500 vectors of 24 numbers")
    index.write_bytes(good)
    manifest = manifest.replace('"lists_probed": ', '"lists_probed": -')
    refused("its manifest names no effort")


@pytest.mark.parametrize("count", [1, 100_000], ids=["in the last bytes", "before"])
def test_a_disk_that_fills_up_while_faiss_writes_is_an_error_of_the_disk(count: int) -> None:
    with pytest.raises(OSError, match="No space left"):
        write_faiss(flat(np.zeros((count, 4), np.float32)), Path("/dev/full"))
