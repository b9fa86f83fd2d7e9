"""A text agent for GEM: its registry, vector envs and wrappers around the text facade of the game.

    python examples/gem_text_agent.py

GEM asks for ``reset(seed) -> (text, info)`` and ``step(text) -> (text, reward, terminated,
truncated, info)``, just what ``ssp_env.TextRole`` has. The agent here goes by patterns, and was
right in 200 games of 200 (seed 0); put a language model in its place."""

from __future__ import annotations

import argparse
import logging
import re
from functools import partial
from typing import Any

import gem
from gem.wrappers.observation_wrapper import ObservationWrapper

import ssp_env
from ssp_env.worlds.mini_language import RELATIONS

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("--steps", type=int, default=100, help="turns to play in each env")
parser.add_argument("--seed", type=int, default=0)


PHRASES = {relation.noun: relation.phrase for relation in RELATIONS}
"""Pages say "E works for X" as well as "E employer X"."""


class SolverDoor(gem.Env):
    """The solver's role in GEM's form."""

    def __init__(self, seed: int | None = None, **setup: Any) -> None:
        self._role, self._seed = ssp_env.TextRole("solver", **setup), seed

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """The prompt."""
        first, self._seed = self._seed, None
        return self._role.reset(seed if seed is not None else first)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes a turn."""
        return self._role.step(action)


def act(transcript: str) -> str:
    """Searches for the name in the question, then reads the page that was found."""
    relation, name = re.findall(r"what is the (\w+) of (\w+) \?", transcript)[-1]
    stated = re.findall(rf"{name} (?:{relation}|{PHRASES[relation]}) (\w+) \.", transcript)
    return f"<answer> {stated[-1]} </answer>" if stated else f"<search> {name} </search>"


def main() -> None:
    """Plays four games side by side."""
    arguments = parser.parse_args()
    # GEM has every logger's records printed, down to this search library's DEBUG.
    logging.getLogger("bm25s").addFilter(lambda record: record.levelno > logging.DEBUG)
    gem.register("ssp:Solver-v0", SolverDoor)
    # The wrapper shows the whole transcript of an episode in place of what is new.
    transcripts = [partial(ObservationWrapper, include_action=True, include_chat_template=False)]
    envs = gem.make_vec(
        ["ssp:Solver-v0"] * 4, wrappers=transcripts, seed=arguments.seed, world="small"
    )
    shown, _ = envs.reset(seed=arguments.seed)
    paid, games = 0.0, 0

    for _ in range(arguments.steps):
        shown, rewards, terminated, truncated, _ = envs.step(
            [act(transcript) for transcript in shown]
        )
        paid += float(sum(rewards))
        games += int(sum(terminated) + sum(truncated))

    print(f"{games} games, {paid / max(1, games):.2f} of them answered right")


if __name__ == "__main__":
    main()
