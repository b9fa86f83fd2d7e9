"""Index directories: passages on disk, manifests, and builds that are killed or run out of disk."""

from __future__ import annotations

import gzip
import os
import pickle
import resource
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import jsonl

from ssp_env.errors import DataError, SSPError
from ssp_env.search.base import Corpus
from ssp_env.search.index import build_index, open_index
from ssp_env.search.store import PassageStore, build_store, read_manifest
from ssp_env.types import Document

ROWS = [Document(f"p{i}", f"Title {i}", f"Text {i}. " + "word " * (i % 7)) for i in range(50)]
PARTS = st.text(st.characters(codec=None), max_size=20)


def stored(folder: Path, documents: Sequence[Document] = ROWS) -> PassageStore:
    return build_store(jsonl(folder / "c.jsonl", documents), folder / "s")


def test_a_store_can_be_copied_and_read_by_threads(tmp_path: Path) -> None:
    store = stored(tmp_path)
    assert store.name == "c.jsonl"
    assert store[np.int64(3)] == ROWS[3]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(store.__getitem__, list(range(50)) * 20)) == ROWS * 20
    assert list(pickle.loads(pickle.dumps(store))) == ROWS


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(PARTS, PARTS, PARTS), min_size=1, max_size=8, unique_by=lambda row: row[0])
)
def test_a_store_holds_what_a_corpus_holds(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    """Whatever the text."""
    documents, count = [Document(*row) for row in rows], len(rows)
    store, corpus = stored(tmp_path_factory.mktemp("any"), documents), Corpus(documents)
    assert list(store) == list(corpus) == documents
    assert store.digest() == corpus.digest()
    assert [store[i] for i in range(-count, count)] == documents * 2
    assert store[::-3] == list(corpus[::-3])
    for missing in (count, -count - 1):
        with pytest.raises(IndexError):
            store[missing]


def test_a_whole_store_is_not_built_again_and_other_passages_are_refused(tmp_path: Path) -> None:
    store = stored(tmp_path)
    zipped = tmp_path / "c.jsonl.gz"
    zipped.write_bytes(gzip.compress((tmp_path / "c.jsonl").read_bytes()))
    before = {path: path.stat().st_mtime_ns for path in store.folder.iterdir()}
    assert list(build_store(zipped, tmp_path / "s")) == ROWS
    assert before == {path: path.stat().st_mtime_ns for path in store.folder.iterdir()}
    with pytest.raises(DataError, match="other passages"):
        stored(tmp_path, [ROWS[1], ROWS[0], *ROWS[2:]])


@pytest.fixture
def index(tmp_path: Path) -> Path:
    build_index(jsonl(tmp_path / "c.jsonl", ROWS), tmp_path / "i")
    return tmp_path / "i"


def test_every_damaged_file_is_noticed(index: Path) -> None:
    files = [*(index / "bm25").iterdir(), *(index / "passages").iterdir()]
    assert len(files) >= 9
    for path in files:
        data = path.read_bytes()
        for damaged in (data[:-1], data + b"0", None):
            path.write_bytes(damaged) if damaged is not None else path.unlink()
            with pytest.raises(DataError, match=r"has not the|that can be used"):
                open_index(index)
        path.write_bytes(data)
    assert open_index(index).search(["title"], 1)[0]

    manifest = index / "bm25" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 7', '"format": 6', 1))
    with pytest.raises(DataError, match="Input should be 7"):
        open_index(index)


FULL = 3
"""Exit status of a child whose build was refused with an error that says what to do."""
GOOD = '{"id": "1", "contents": "danube"}'


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    words = [" ".join(f"w{w}" for w in rng.zipf(1.4, 20) % 5000) for _ in range(1500)]
    documents = [Document(str(i), "", text) for i, text in enumerate(words)]
    return jsonl(tmp_path_factory.mktemp("corpus") / "c.jsonl", documents)


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[Document]]:
    """The answers of an uninterrupted build."""
    directory = tmp_path_factory.mktemp("whole") / "index"
    build_index(corpus, directory)
    return answers(directory)


def answers(directory: Path) -> list[list[Document]]:
    """The answers of a whole index, in whose directory nothing else may be left."""
    assert {path.name for path in directory.iterdir()} == {"passages", "bm25"}
    for part in directory.iterdir():
        read_manifest(part)
    return open_index(directory).search([f"w{i}" for i in range(100)], 3)


def fork(work: Callable[[], object]) -> int:
    """Runs something in a child process and returns its id; its status is 0, or :data:`FULL`."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except DataError as error:
            status = FULL if "run the same command again" in str(error) else 2
        finally:
            os._exit(status)
    return child


def end_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_kill_at_any_moment(corpus: Path, whole: list[list[Document]], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ends: list[int] = []
    refused = 0
    while True:
        child = fork(lambda: build_index(corpus, tmp_path / "i"))
        # From its first file on, however long a busy machine takes to begin.
        while not (tmp_path / "i").exists():
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.02 + 0.04 * len(ends)))
        os.kill(child, signal.SIGKILL)
        ends.append(end_of(child))
        assert ends[-1] in (0, -signal.SIGKILL)
        assert len(ends) < 200, "a build does not get on"
        try:
            open_index(tmp_path / "i")
        except SSPError as error:
            assert ends[-1] != 0
            refused += "half built; run `ssp index` again over the same corpus" in str(error)
        else:
            break  # it has come to its end, or was killed between that and its exit
    assert refused
    assert answers(tmp_path / "i") == whole


@pytest.mark.parametrize("part", ["passages", "bm25"])
def test_a_file_that_may_not_grow_is_an_error_that_says_what_to_do(
    corpus: Path, whole: list[list[Document]], tmp_path: Path, part: str
) -> None:
    if part == "bm25":
        build_store(corpus, tmp_path / "i" / "passages")

    def build() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        build_index(corpus, tmp_path / "i")

    assert end_of(fork(build)) == FULL
    # Then several at once: one builds, the others are refused or find it whole.
    children = [fork(lambda: build_index(corpus, tmp_path / "i")) for _ in range(4)]
    ends = [end_of(child) for child in children]
    assert 0 in ends
    assert set(ends) <= {0, FULL}
    assert answers(tmp_path / "i") == whole
