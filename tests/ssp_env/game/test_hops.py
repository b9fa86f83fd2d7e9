"""One search through a batch of games is a short way through few files."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import ssp_env

ROOT = str(Path(ssp_env.__file__).parent)
MOST_CALLS, MOST_FILES = 65, 14


def test_one_search_takes_few_calls() -> None:
    batch = ssp_env.GameBatch(1, world="mini")
    player = ssp_env.scripted_player(batch.rules)
    (turn,) = batch.reset(seed=0)
    ids = batch.rules.tokenizer.encode(player.write(turn.trajectory))
    calls: list[str] = []

    def count(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        # Comprehensions are frames of their own, but nothing that a reader follows.
        if event == "call" and code.co_filename.startswith(ROOT) and code.co_name[0] != "<":
            calls.append(code.co_filename)

    sys.setprofile(count)
    try:
        batch.step([ids], [[-0.5] * len(ids)])
    finally:
        sys.setprofile(None)

    assert len(turn.trajectory.searches) == 1
    assert len(calls) <= MOST_CALLS
    assert len(set(calls)) <= MOST_FILES
