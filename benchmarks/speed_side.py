"""One side of ``speed``: ``python -P speed_side.py WHAT``, a measurement for each line read.

It imports the checkout of its Python, and asks no more of it than documented doors.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from itertools import count
from time import process_time
from typing import Any

THINK = "<think> who built it, and when? </think> "


def turn_of(role: str, number: int) -> str:
    """Two searches, then a question of the proposer's or an answer of the solver's."""
    if number < 2:
        return f"{THINK}<search> the rival of the mentor {number} </search>"
    if role == "proposer":
        return f"{THINK}<question> who is the rival of the mentor of the rival ? </question>"
    return f"{THINK}<answer> nobody </answer>"


def aec() -> Callable[[], dict[str, float]]:
    """Steps of one token through the PettingZoo environment, per CPU-second."""
    import ssp_env

    env = ssp_env.raw_env(**_setup())
    encode, seeds = env.rules.tokenizer.encode, count()

    def measure() -> dict[str, float]:
        steps, began = 0, process_time()
        while (spent := process_time() - began) < 3:
            env.reset(seed=next(seeds))
            turns: dict[str, int] = {}
            while not any((*env.terminations.values(), *env.truncations.values())):
                agent = env.agent_selection
                number = turns[agent] = turns.get(agent, -1) + 1
                for token in encode(turn_of(agent, number % 3)):
                    env.last()
                    env.step(token)
                    steps += 1
                    if any((*env.terminations.values(), *env.truncations.values())):
                        break
        return {"rate": steps / spent}

    return measure


def batch() -> Callable[[], dict[str, float]]:
    """Tokens of whole turns in 64 games of ``GameBatch``, per CPU-second."""
    import ssp_env

    games = ssp_env.GameBatch(64, **_setup())
    encode, seeds = games.rules.tokenizer.encode, count()

    def measure() -> dict[str, float]:
        tokens, began = 0, process_time()
        while (spent := process_time() - began) < 3:
            turns = games.reset(seed=64 * next(seeds))
            while turns:
                written = [
                    encode(turn_of(str(turn.role), len(turn.trajectory.searches))) for turn in turns
                ]
                tokens += sum(map(len, written))
                turns = games.step(written)
        return {"rate": tokens / spent}

    return measure


def step() -> Callable[[], dict[str, float]]:
    """CPU-seconds of a training step of the tiny policy, in one process; the same steps anew."""
    import torch

    from ssp_agents.rllib import SSPConfig

    torch.set_num_threads(1)
    config = SSPConfig().environment(env_config={"world": "mini"})
    config.training(batch_size=16, lr=3e-4, proposer_weight=0.03)
    config.env_runners(num_env_runners=0).debugging(seed=0)
    algorithm = config.build_algo()

    def measure() -> dict[str, float]:
        began = process_time()
        for _ in range(3):
            algorithm.train()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"seconds": (process_time() - began) / 3, "peak_mib": memory / 1024}

    return measure


def _setup() -> dict[str, Any]:
    """Bytes as tokens, and no verifier: what the doors themselves cost."""
    from ssp_env.tokenizers import ByteTokenizer

    game = {"verifier": "none", "filters": (), "attempts": 3, "max_searches": 4}
    return {"world": "mini", "tokenizer": ByteTokenizer(), "game": game}


def main() -> None:
    """Measures once for every line."""
    measure = {"aec": aec, "batch": batch, "step": step}[sys.argv[1]]()
    for _ in sys.stdin:
        print(json.dumps(measure()), flush=True)


if __name__ == "__main__":
    main()
