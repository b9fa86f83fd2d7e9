"""Index directories: passages on disk, manifests, and builds that are killed or run out of disk."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import resource
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from corpus_files import jsonl
from hypothesis import given, settings
from hypothesis import strategies as st

from ssp_env.errors import ConfigError, DataError
from ssp_env.search.corpus import Corpus
from ssp_env.search.index import build_index, one_kind, open_index, open_passages
from ssp_env.search.store import FORMAT, PassageStore, build_store, read_manifest
from ssp_env.types import Document

ROWS = [Document(f"p{i}", f"Title {i}", f"Text {i}. " + "word " * (i % 7)) for i in range(50)]
PARTS = st.text(st.characters(codec=None), max_size=20)


def stored(folder: Path, documents: Sequence[Document] = ROWS) -> PassageStore:
    return build_store(jsonl(folder / "c.jsonl", documents), folder / "s")


# -- passages ----------------------------------------------------------------------------------


def test_a_store_holds_what_a_corpus_holds(tmp_path: Path) -> None:
    corpus, store = Corpus(ROWS), stored(tmp_path)
    assert store.name == "c.jsonl"
    assert list(store) == list(corpus) == ROWS
    assert [store[i] for i in range(-50, 50)] == [corpus[i] for i in range(-50, 50)]
    assert store[np.int64(3)] == corpus[3]
    assert store[::-3] == list(corpus[::-3])
    assert all(store.by_id(document.id) == document for document in corpus)
    assert list(store.read_from(49)) == ROWS[49:]
    for missing in (50, -51):
        with pytest.raises(IndexError):
            store[missing]
    with pytest.raises(KeyError):
        store.by_id("p50")
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda i: (store[i], store.by_id(f"p{i}")), list(range(50)) * 20))
    assert read == [(row, row) for row in ROWS] * 20
    assert list(pickle.loads(pickle.dumps(store))) == ROWS


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(PARTS, PARTS, PARTS), min_size=1, max_size=8, unique_by=lambda row: row[0])
)
def test_any_text_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    documents = [Document(*row) for row in rows]
    store = stored(tmp_path_factory.mktemp("any"), documents)
    assert list(store) == documents == store[:]
    assert [store.by_id(document.id) for document in documents] == documents
    assert store.digest() == Corpus(documents).digest()


def test_a_whole_store_is_not_built_again_and_other_passages_are_refused(tmp_path: Path) -> None:
    store = stored(tmp_path)
    zipped = tmp_path / "c.jsonl.gz"
    zipped.write_bytes(gzip.compress((tmp_path / "c.jsonl").read_bytes()))
    before = {path: path.stat().st_mtime_ns for path in store.folder.iterdir()}
    assert list(build_store(zipped, tmp_path / "s")) == ROWS
    assert before == {path: path.stat().st_mtime_ns for path in store.folder.iterdir()}
    for other in (ROWS[:-1], [ROWS[1], ROWS[0], *ROWS[2:]]):
        with pytest.raises(DataError, match="other passages"):
            build_store(jsonl(tmp_path / "d.jsonl", other), tmp_path / "s")


def test_bytes_that_are_not_text_are_told_from_passages(tmp_path: Path) -> None:
    path = stored(tmp_path).folder / "passages.sqlite"
    path.write_bytes(path.read_bytes().replace(b"Title 0", b"Title\xff0"))
    store = PassageStore(path.parent)
    for read in (lambda: store[0], lambda: list(store), lambda: store.by_id("p0")):
        with pytest.raises(DataError, match="is corrupt"):
            read()


# -- manifests ---------------------------------------------------------------------------------


@pytest.fixture
def index(tmp_path: Path) -> Path:
    build_index(jsonl(tmp_path / "c.jsonl", ROWS), tmp_path / "i", "bm25")
    return tmp_path / "i"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', None])
def test_a_manifest_that_cannot_be_used(index: Path, text: str | None) -> None:
    path = index / "bm25" / "manifest.json"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(DataError, match=r"has no manifest\.json that can be used .*build it again"):
        open_index(index)


def test_an_older_format_is_named(index: Path) -> None:
    path = index / "bm25" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": FORMAT - 1}))
    with pytest.raises(DataError, match=f"format {FORMAT - 1}; this version reads"):
        open_index(index)


def test_every_damaged_file_is_noticed(index: Path) -> None:
    files = [*(index / "bm25").iterdir(), *(index / "passages").iterdir()]
    files = [path for path in files if path.name != "manifest.json"]
    assert len(files) >= 7
    for path in files:
        data = path.read_bytes()
        for damaged in (data[:-1], data + b"\0", None):
            path.write_bytes(damaged) if damaged is not None else path.unlink()
            with pytest.raises(DataError, match="is missing, or has not the"):
                open_index(index)

        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(DataError, match="is corrupt"):
            read_manifest(path.parent, check=True)
        path.write_bytes(data)
    read_manifest(index / "bm25", check=True)
    assert open_index(index).search(["title"], 1)[0]


def test_an_index_of_other_passages_is_refused(index: Path, tmp_path: Path) -> None:
    build_index(jsonl(tmp_path / "d.jsonl", ROWS[:-1]), tmp_path / "j", "bm25")
    shutil.rmtree(index / "bm25")
    shutil.copytree(tmp_path / "j" / "bm25", index / "bm25")
    with pytest.raises(DataError, match="belongs to another corpus"):
        open_index(index)
    with pytest.raises(DataError, match="belongs to another corpus"):
        build_index(tmp_path / "c.jsonl", index, "bm25")


def test_kinds_are_named(index: Path) -> None:
    with pytest.raises(ConfigError, match=r"kind = 'bm52'.*has bm25.*did you mean 'bm25'"):
        open_index(index, "bm52")
    with pytest.raises(ConfigError, match="did you mean 'bm25'"):
        build_index(index, index, "bm52")
    shutil.rmtree(index / "bm25")
    with pytest.raises(DataError, match="holds no index; `ssp index CORPUS --out DIR`"):
        open_index(index)
    assert list(open_passages(index)) == ROWS


# -- builds that do not end well ---------------------------------------------------------------

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
    build_index(corpus, directory, "bm25")
    return answers(directory)


def answers(directory: Path) -> list[list[Document]]:
    """The answers of a whole index, in whose directory nothing else may be left."""
    assert {path.name for path in directory.iterdir()} == {"passages", "bm25"}
    for part in directory.iterdir():
        read_manifest(part, check=True)
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
            status = FULL if "make room and run the same command again" in str(error) else 2
        finally:
            os._exit(status)
    return child


def end_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("stage", ["reading passages", "indexing words"])
def test_a_killed_build_is_refused_by_readers_and_finished_by_the_next(
    corpus: Path, whole: list[list[Document]], tmp_path: Path, stage: str
) -> None:
    def build() -> None:
        def progress(now: str, done: int, total: int) -> None:
            if now == stage:
                os.kill(os.getpid(), signal.SIGKILL)

        build_index(corpus, tmp_path / "i", "bm25", progress=progress)

    assert end_of(fork(build)) == -signal.SIGKILL
    half_built = "half built; run `ssp index` again over the same corpus"
    with pytest.raises(DataError, match=half_built):
        open_index(tmp_path / "i")
    build_index(corpus, tmp_path / "i", "bm25")
    assert answers(tmp_path / "i") == whole


def test_kill_at_any_moment(corpus: Path, whole: list[list[Document]], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ends: list[int] = []
    while not ends or ends[-1] != 0:
        child = fork(lambda: build_index(corpus, tmp_path / "i", "bm25"))
        time.sleep(rng.uniform(0.005, 0.02 + 0.04 * len(ends)))
        os.kill(child, signal.SIGKILL)
        ends.append(end_of(child))
        assert ends[-1] in (0, -signal.SIGKILL)
        assert len(ends) < 200, "a build does not get on"
    assert answers(tmp_path / "i") == whole


@pytest.mark.parametrize("part", ["passages", "bm25"])
def test_a_file_that_may_not_grow_is_an_error_that_says_what_to_do(
    corpus: Path, whole: list[list[Document]], tmp_path: Path, part: str
) -> None:
    if part == "bm25":
        build_store(corpus, tmp_path / "i" / "passages")

    def build() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        build_index(corpus, tmp_path / "i", "bm25")

    assert end_of(fork(build)) == FULL
    build_index(corpus, tmp_path / "i", "bm25")
    assert answers(tmp_path / "i") == whole


def test_two_builders_at_once(corpus: Path, whole: list[list[Document]], tmp_path: Path) -> None:
    children = [fork(lambda: build_index(corpus, tmp_path / "i", "bm25")) for _ in range(4)]
    ends = [end_of(child) for child in children]
    assert 0 in ends
    assert set(ends) <= {0, 2}
    assert answers(tmp_path / "i") == whole


@pytest.mark.parametrize("kind", ["absent", "folder", "\n \n", f"{GOOD}\n{{", f"{GOOD}\n{GOOD}"])
def test_a_corpus_that_cannot_be_used_leaves_nothing(kind: str, tmp_path: Path) -> None:
    source, directory = tmp_path / "c.jsonl", tmp_path / "made" / "i"
    if kind == "folder":
        source.mkdir()
    elif kind != "absent":
        source.write_text(kind)
    with pytest.raises(DataError) as refused:
        build_index(source, directory, "bm25")
    assert str(refused.value).startswith(f"{source}:")
    assert not directory.parent.exists()
    with pytest.raises(DataError, match="no such folder"):
        one_kind(directory, None)


def test_a_directory_that_cannot_be_written(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(DataError, match="cannot be built"):
        build_index(corpus, tmp_path / "file" / "i", "bm25")
    assert (tmp_path / "file").read_text() == "kept"
