"""Builds that are killed or run out of disk go on to the same bytes; several processes at once."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import ssp_env.search.bm25.build as build_module
import ssp_env.search.index.store as store_module
from ssp_env.errors import DataError
from ssp_env.search.index.directory import build_index, open_index

PASSAGES = 1500
FULL = 3
"""Exit status of a child whose build was refused with an error that says what to do."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    rows = [
        {
            "id": str(i),
            "title": f"t{i % 11}",
            "text": " ".join(f"w{w}" for w in rng.zipf(1.4, 20) % 5000),
        }
        for i in range(PASSAGES)
    ]
    path = tmp_path_factory.mktemp("corpus") / "c.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module", autouse=True)
def _small_steps() -> Iterator[None]:
    """Many checkpoints in a short build."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "CHECKPOINT_BYTES", 20_000)
        patch.setattr(store_module, "_BLOCK", 64)
        patch.setattr(build_module, "RUN_WORDS", 3_000)
        patch.setattr(build_module, "RANGE_POSTINGS", 3_000)
        patch.setattr(build_module, "_EVERY", 100)
        yield


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bytes of an uninterrupted build."""
    directory = tmp_path_factory.mktemp("whole") / "index"
    build_index(corpus, directory, "bm25")
    return contents(directory)


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(files)}


def fork(work: Callable[[], object]) -> int:
    """Runs something in a child process and returns its id; the child's status is 0, or
    :data:`FULL`."""
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


def test_a_build_that_kills_itself_again_and_again_ends_in_the_same_bytes(
    corpus: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    def build() -> None:
        told = 0

        def progress(stage: str, done: int, total: int) -> None:
            nonlocal told
            told += 1
            if told == 14:
                os.kill(os.getpid(), signal.SIGKILL)

        build_index(corpus, tmp_path / "i", "bm25", progress=progress)

    ends = []
    while not ends or ends[-1] == -signal.SIGKILL:
        ends.append(end_of(fork(build)))
        assert len(ends) < 60, "a build does not get on"
    assert ends[-1] == 0
    assert len(ends) > 3
    assert contents(tmp_path / "i") == whole


@pytest.mark.parametrize("seed", [0, 1])
def test_kill_at_any_moment(
    corpus: Path, whole: dict[str, bytes], tmp_path: Path, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    ends = []
    while not ends or ends[-1] != 0:
        child = fork(lambda: build_index(corpus, tmp_path / "i", "bm25"))
        time.sleep(rng.uniform(0.005, 0.02 + 0.005 * len(ends)))
        os.kill(child, signal.SIGKILL)
        ends.append(end_of(child))
        assert ends[-1] in (0, -signal.SIGKILL)
        assert len(ends) < 200, "a build does not get on"
    assert len(ends) > 2
    assert contents(tmp_path / "i") == whole


def test_a_killed_build_is_refused_by_readers(corpus: Path, tmp_path: Path) -> None:
    def build() -> None:
        def progress(stage: str, done: int, total: int) -> None:
            if stage == "merging postings":
                os.kill(os.getpid(), signal.SIGKILL)

        build_index(corpus, tmp_path / "i", "bm25", progress=progress)

    assert end_of(fork(build)) == -signal.SIGKILL
    with pytest.raises(DataError, match="half built"):
        open_index(tmp_path / "i")


@pytest.mark.parametrize("limit", [30_000, 60_000, 110_000])
def test_a_file_that_may_not_grow_leaves_what_the_next_build_needs(
    corpus: Path, whole: dict[str, bytes], tmp_path: Path, limit: int
) -> None:
    assert max(map(len, whole.values())) > limit

    def build() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        build_index(corpus, tmp_path / "i", "bm25")

    assert end_of(fork(build)) == FULL
    assert end_of(fork(build)) == FULL
    build_index(corpus, tmp_path / "i", "bm25")
    assert contents(tmp_path / "i") == whole


def test_a_full_disk_leaves_what_the_next_build_needs(
    corpus: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        filler = disk / "filler"
        for room in (100_000, 200_000, 300_000):
            filler.write_bytes(bytes(1_000_000 - room))
            with pytest.raises(
                DataError, match="make room and run the same command again"
            ) as refused:
                build_index(corpus, disk / "i", "bm25")
            assert os.strerror(errno.ENOSPC) in str(refused.value)
        filler.unlink()
        build_index(corpus, disk / "i", "bm25")
        assert contents(disk / "i") == whole
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_two_builders_at_once(corpus: Path, whole: dict[str, bytes], tmp_path: Path) -> None:
    children = [fork(lambda: build_index(corpus, tmp_path / "i", "bm25")) for _ in range(4)]
    ends = [end_of(child) for child in children]
    assert 0 in ends
    assert set(ends) <= {0, 2}
    assert contents(tmp_path / "i") == whole


def test_a_second_builder_is_told_to_wait(corpus: Path, tmp_path: Path) -> None:
    def progress(stage: str, done: int, total: int) -> None:
        with pytest.raises(DataError, match="in use by another build"):
            build_index(corpus, tmp_path / "i", "bm25")

    build_index(corpus, tmp_path / "i", "bm25", progress=progress)


def test_an_unfinished_build_is_not_continued_with_other_passages(
    corpus: Path, tmp_path: Path
) -> None:
    def stop(stage: str, done: int, total: int) -> None:
        if stage == "counting words":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(corpus, tmp_path / "i", "bm25", progress=stop)
    other = tmp_path / "d.jsonl"
    other.write_text(corpus.read_text().replace('"w1 ', '"w2 '))
    build_index(other, tmp_path / "j", "bm25")
    (tmp_path / "i" / "passages").rename(tmp_path / "i" / "old")
    (tmp_path / "j" / "passages").rename(tmp_path / "i" / "passages")
    with pytest.raises(DataError, match="begun with other passages"):
        build_index(other, tmp_path / "i", "bm25")


def test_a_damaged_journal_is_told(corpus: Path, tmp_path: Path) -> None:
    nothing = hashlib.sha256().hexdigest()
    ahead = {
        "passages": 3,
        "bytes": 99,
        "source_bytes": 0,
        "source_lines": 0,
        "source_digest": nothing,
    }
    for name, text in (("a", "{"), ("b", "[]"), ("c", json.dumps(ahead))):
        place = tmp_path / name / "passages.building"
        place.mkdir(parents=True)
        (place / "journal.json").write_text(text)
        with pytest.raises(DataError, match="delete"):
            build_index(corpus, tmp_path / name, "bm25")


def test_processes_read_one_index_at_once(corpus: Path, tmp_path: Path) -> None:
    build_index(corpus, tmp_path / "i", "bm25")
    queries = [f"w{i} w1 w{i * 7}" for i in range(50)]
    expected = open_index(tmp_path / "i").search(queries, 5)

    def read() -> None:
        for _ in range(10):
            assert open_index(tmp_path / "i").search(queries, 5) == expected

    assert [end_of(child) for child in [fork(read) for _ in range(4)]] == [0] * 4


def test_a_directory_that_cannot_be_written(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be built"):
        build_index(corpus, tmp_path / "file" / "i", "bm25")
