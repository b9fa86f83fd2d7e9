"""Training and evaluation that search an index directory or a server, interrupted and resumed."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from runs import SSP, arguments, environment, timeless

from ssp_env.cli import main
from ssp_env.search.index import build_index
from ssp_env.worlds.mini import MiniWorld

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The mini-wiki as files: its passages as an index directory, its answers and questions."""
    folder, world = tmp_path_factory.mktemp("files"), MiniWorld()
    passages = [{"id": d.id, "title": d.title, "text": d.text} for d in world.corpus]
    answers = [{"id": a.id, "answer": a.answer, "aliases": a.aliases} for a in world.answers]
    questions = [
        {"id": q.id, "question": q.text, "answers": q.answers, "group": q.group}
        for q in world.questions(0, 3)
    ]
    for name, rows in (("corpus", passages), ("answers", answers), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    build_index(folder / "corpus.jsonl", folder / "index", "bm25")
    return folder


@pytest.fixture(scope="module")
def indexed(policy: Path, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps that search the index directory, without an interruption."""
    out = tmp_path_factory.mktemp("runs") / "indexed"
    return train(policy, out, "--search", str(files / "index"), "--steps", "2")


def train(policy: Path, out: Path, *more: str) -> Path:
    assert main([*arguments(policy, out, "--quiet"), *more]) == 0
    return out


def fingerprint(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())["fingerprint"]
    return found


@contextmanager
def serving(index: Path) -> Iterator[str]:
    """``ssp serve`` in a process of its own; its address."""
    command = [SSP, "serve", "--in", str(index), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    )
    try:
        assert process.stdout is not None
        address = re.search(r"http://[\d.]+:\d+", process.stdout.readline())
        assert address is not None
        yield address[0]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_a_server_plays_the_same_games_and_may_move_before_a_resume(
    policy: Path, indexed: Path, files: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for steps, more in (("1", []), ("2", ["--resume"])):
        with serving(files / "index") as url:
            train(policy, run, "--search", url, "--steps", steps, *more)
            served = fingerprint(run)["retriever"]
            assert served == {"class": "HTTPRetriever", "server": f"{url}/retrieve"}
    # The run that was cut in two also evaluated where it stopped. All else is the same, up
    # to the rounding of batches that came together in another order.
    for ours, theirs in zip(timeless(run), timeless(indexed), strict=True):
        for name, figure in theirs.items():
            rounded = isinstance(figure, float)
            assert ours[name] == (pytest.approx(figure, abs=1e-5) if rounded else figure), name
