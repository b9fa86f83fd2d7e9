"""Training and evaluation that search an index directory or a server, interrupted and resumed."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from runs import SSP, arguments, environment, timeless

from ssp_env.cli import main
from ssp_env.search.index import build_index
from ssp_env.worlds.mini import MiniWorld

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index directory of the mini-wiki's passages."""
    folder = tmp_path_factory.mktemp("files")
    passages = [{"id": d.id, "title": d.title, "text": d.text} for d in MiniWorld().corpus]
    (folder / "c.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in passages))
    build_index(folder / "c.jsonl", folder / "index")
    return folder / "index"


@pytest.fixture(scope="module")
def indexed(policy: Path, index: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps that search the index directory, without an interruption."""
    out = tmp_path_factory.mktemp("runs") / "indexed"
    return train(policy, out, "--search", str(index), "--steps", "2")


def train(policy: Path, out: Path, *more: str) -> Path:
    assert main([*arguments(policy, out, "--quiet"), *more]) == 0
    return out


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
    policy: Path, indexed: Path, index: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for steps, more in (("1", []), ("2", ["--resume"])):
        with serving(index) as url:
            train(policy, run, "--search", url, "--steps", steps, *more)
            served = json.loads((run / "summary.json").read_text())["fingerprint"]["retriever"]
            assert served == {"class": "HTTPRetriever", "server": f"{url}/retrieve"}
    # The run that was cut in two also evaluated where it stopped. All else is the same, up
    # to the rounding of batches that came together in another order.
    for ours, theirs in zip(timeless(run), timeless(indexed), strict=True):
        for name, figure in theirs.items():
            rounded = isinstance(figure, float)
            assert ours[name] == (pytest.approx(figure, abs=1e-5) if rounded else figure), name
