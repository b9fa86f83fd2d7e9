"""Small run directories without Ray: scripted players, real games, real figures."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import ssp_env
from ssp_agents.metrics import step_figures
from ssp_env import scripted_player
from ssp_env.game.record import record_game
from ssp_env.game.rules import Rules
from ssp_env.replay import SavedRules
from ssp_env.types import Role
from ssp_experiments.config import RunConfig
from ssp_experiments.run.rundir import RunDirectory

GAMES = 5
HOSTILE = 'why </script><script>window.hacked = 1</script> "<img src=x onerror=hacked=1>" ?'


def make_run(path: Path, seed: int = 0, steps: int = 2, finished: bool = True) -> RunDirectory:
    """A run with 5 games a step; of each, one is without a question and one has HTML in it."""
    directory = RunDirectory(path)
    path.mkdir(parents=True)
    directory.write_config(RunConfig(seed=seed, steps=max(1, steps)))
    directory.append_metrics({"step": 0, **measured(0.2)})
    for step in range(1, steps + 1):
        add_step(directory, step, seed)
    if finished:
        directory.write_summary({"verifier": "world", "fingerprint": {"hash": "abc", "top_k": 2}})
    return directory


def add_step(directory: RunDirectory, step: int, seed: int = 0) -> None:
    """Plays a step, and writes its games and figures."""
    env = ssp_env.TurnVectorEnv(GAMES, rules=_rules())
    player = scripted_player(env.rules)
    env.reset(seed=100 * seed + step)
    while turns := env.turns:
        texts = [
            "<think> nothing comes to mind"
            if turn.game == 1 and turn.role is Role.PROPOSER
            else player.write(turn.trajectory)
            for turn in turns
        ]
        env.step([env.rules.tokenizer.encode(text) for text in texts])

    rules = env.rules
    # Each game of a batch is a batch of its own, so the index of all of them is 0.
    records = [
        replace(record_game(game, rules, step - 1), first_index=index)
        for index, game in enumerate(env.games)
    ]
    hostile = replace(records[2], question=HOSTILE)
    directory.write_games(step, SavedRules.of(rules), [*records[:2], hostile, *records[3:]])

    found = step_figures(records, GAMES, [{"loss": 0.5, "novel_figure": 0.25 * step}])
    figures = {name: value for name, value in found.items() if value is not None}
    seconds = {"engine": 0.5, "step": 1.0}
    directory.append_metrics({"step": step, **figures, "seconds": seconds, **measured(0.1 * step)})


@cache
def _rules() -> Rules:
    """Built once: the world and its index are what takes long."""
    return ssp_env.TurnVectorEnv(1, world="mini", game={"attempts": 2}).rules


def measured(accuracy: float) -> dict[str, Any]:
    """What an evaluation adds to a line."""
    near = [max(0.0, accuracy - 0.1), accuracy + 0.1]
    groups = ("1", "2", "3", "4")
    return {
        "accuracy": {group: accuracy / int(group) for group in groups},
        "interval": dict.fromkeys(groups, near),
        "questions": dict.fromkeys(groups, 10),
        "void_questions": 0,
    }
