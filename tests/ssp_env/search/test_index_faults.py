"""Builds that are killed, refused or run out of disk; several processes at once."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from corpus_files import jsonl

from ssp_env.errors import DataError
from ssp_env.search.index import build_index, one_kind, open_index
from ssp_env.search.store import build_store, read_manifest
from ssp_env.types import Document

PASSAGES = 1500
FULL = 3
"""Exit status of a child whose build was refused with an error that says what to do."""
GOOD = '{"id": "1", "contents": "danube"}'


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    words = [" ".join(f"w{w}" for w in rng.zipf(1.4, 20) % 5000) for _ in range(PASSAGES)]
    documents = [Document(str(i), "", text) for i, text in enumerate(words)]
    return jsonl(tmp_path_factory.mktemp("corpus") / "c.jsonl", documents)


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[Document]]:
    """The answers of an uninterrupted build."""
    directory = tmp_path_factory.mktemp("whole") / "index"
    build_index(corpus, directory, "bm25")
    return answers(directory)


def answers(directory: Path) -> list[list[Document]]:
    """What a whole index answers; nothing else may be left beside it."""
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
        time.sleep(rng.uniform(0.005, 0.02 + 0.02 * len(ends)))
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


def test_a_directory_that_cannot_be_written(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(DataError, match="cannot be built"):
        build_index(corpus, tmp_path / "file" / "i", "bm25")
    with pytest.raises(DataError, match="cannot be built"):
        build_index(corpus, tmp_path / "file", "bm25")
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("kind", ["absent", "folder", "", "\n \n", f"{GOOD}\n{{"])
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


def test_a_pipe_is_told_from_a_file(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"{}\n")
    os.close(writing)
    with pytest.raises(DataError, match="a regular file is wanted"):
        build_index(f"/dev/fd/{reading}", tmp_path / "i", "bm25")
    os.close(reading)
    assert not (tmp_path / "i").exists()
