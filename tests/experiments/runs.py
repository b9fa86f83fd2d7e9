"""What the tests of runs share: the command as users type it, settings of small runs, and what a
run left behind."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from ssp_env.game.record import GameRecord
from ssp_env.replay import read_games

SSP = str(Path(sys.executable).with_name("ssp"))
SETTINGS = (
    "game.attempts=2",
    "game.verifier=none",
    "game.noise_documents=0",
    "game.filters=[empty_question,short_question]",
    "game.question_chars=[31,1000]",
    "game.max_response_tokens=64",
    "learning.batch_size=8",
    "learning.drop_uniform_groups=false",
    "learning.strategy=periodic_reset",
    "per_group=3",
    "evaluate_every=1000",
    "patience=null",
)
"""Small games of which about half are valid, so that earlier questions are played again, and which
hardly any attempt solves, so that runs have to be told to go on."""


def sets(*settings: str) -> list[str]:
    """Options of a command line that set these."""
    return [word for setting in settings for word in ("--set", setting)]


def arguments(
    policy: Path, out: Path | str, *more: str, settings: tuple[str, ...] = SETTINGS
) -> list[str]:
    """A command line of ``ssp train``, without ``ssp``."""
    return ["train", "--model", str(policy), "--out", str(out), *sets(*settings), *more]


def environment() -> dict[str, str]:
    """Of a user's shell, with one thread a process."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl``."""
    return [
        json.loads(line)
        for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def timeless(run: Path) -> list[dict[str, Any]]:
    """The lines without wall-clock times."""
    return [
        {name: value for name, value in line.items() if name != "seconds"} for line in metrics(run)
    ]


def games(run: Path) -> dict[str, str]:
    """The text of every file of games."""
    return {
        file.name: file.read_text(encoding="utf-8") for file in sorted((run / "games").iterdir())
    }


def all_games(run: Path) -> list[GameRecord]:
    """All games of a run, step by step."""
    files = sorted((run / "games").iterdir())
    return [saved.record for file in files for saved in read_games(file)]
