"""Runs several programs turn by turn, each in a process and a checkout of its own.

Shared machines are slower at one moment than at another. Programs that take turns meet the same
moments, so the ratio of their times says more than either time.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]


def check_out(revision: str, folder: Path) -> Path:
    """Writes the files of an earlier commit into a new folder."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", revision]
    packed = subprocess.run(command, check=True, capture_output=True).stdout
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


class Side:
    """A program that works once for each line that it reads, and answers with a line of JSON."""

    def __init__(self, root: Path, worker: Path, *arguments: str) -> None:
        """
        Args:
            root: the checkout whose code it runs.
            worker: the program; may be of another checkout, so it imports what both have.
            arguments: what it is told.
        """
        environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
        # Safe path: what lies beside the program is of this checkout, perhaps not of its own.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(worker), *arguments],
            cwd=root,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said = self._answer()
        """What it said when it was ready."""

    def turn(self, word: str = "") -> Any:
        """Lets it work once."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # Libraries may print as well, dictionaries too.
            if line.startswith('{"'):
                return json.loads(line)
        raise RuntimeError(f"the program ended with status {self._process.wait()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


def in_turns(
    sides: Mapping[str, tuple[Path, Path, tuple[str, ...]]], turns: int
) -> dict[str, list[Any]]:
    """What each side answers in each turn, after one turn to warm up.

    Args:
        sides: root, worker and arguments of each, by name; see :class:`Side`.
        turns: how many are measured.
    """
    found: dict[str, list[Any]] = {name: [] for name in sides}
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(Side(root, worker, *arguments))
            for name, (root, worker, arguments) in sides.items()
        }
        for turn in range(1 + turns):
            for name, side in running.items():
                answer = side.turn()
                if turn:
                    found[name].append(answer)

    return found
