"""One side of ``speed``: ``python -P speed_side.py WHAT``, a measurement for each line read.

It imports the checkout of its Python, and asks no more of it than documented interfaces and
commands. Rates are per CPU-second.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any

THINK = "<think> who built it, and when? </think> "
SSP = str(Path(sys.executable).with_name("ssp"))
Measure = Callable[[], dict[str, float]]


def turn_of(role: str, number: int) -> str:
    """Two searches, then a question of the proposer's or an answer of the solver's."""
    if number < 2:
        return f"{THINK}<search> the rival of the mentor {number} </search>"
    if role == "proposer":
        return f"{THINK}<question> who is the rival of the mentor of the rival ? </question>"
    return f"{THINK}<answer> nobody </answer>"


def setup() -> dict[str, Any]:
    """Bytes as tokens, and no verifier: what the interfaces themselves cost."""
    from ssp_env.tokenizers import ByteTokenizer

    game = {"verifier": "none", "filters": (), "attempts": 3, "max_searches": 4}
    return {"world": "mini", "tokenizer": ByteTokenizer(), "game": game}


def aec() -> Measure:
    """Steps of one token through the PettingZoo environment."""
    import ssp_env

    env = ssp_env.raw_env(**setup())
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


def batch() -> Measure:
    """Tokens of whole turns in 64 games of ``TurnVectorEnv``."""
    import ssp_env

    # An older checkout calls it GameBatch.
    make: Any = getattr(ssp_env, "TurnVectorEnv", None) or ssp_env.GameBatch
    games = make(64, **setup())
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


def step() -> Measure:
    """Tokens of training steps of the tiny policy, in one process. Versions may play other games,
    some of them longer, so steps cannot be compared."""
    import torch

    from ssp_agents.rllib import SSPConfig

    torch.set_num_threads(1)
    config = SSPConfig().environment(env_config={"world": "mini"})
    config.training(batch_size=16, lr=3e-4, proposer_weight=0.03)
    config.env_runners(num_env_runners=0).debugging(seed=0)
    algorithm = config.build_algo()

    def measure() -> dict[str, float]:
        tokens, began = 0.0, process_time()
        for _ in range(3):
            algorithm.train()
            tokens += algorithm.last_figures["all_tokens"]
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"rate": tokens / (process_time() - began), "peak_mib": memory / 1024}

    return measure


def server() -> Measure:
    """Requests of 16 clients, with one query each, by the search server's own CPU-seconds."""
    import httpx

    process = subprocess.Popen([SSP, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True)
    atexit.register(process.terminate)
    assert process.stdout is not None
    found = (re.search(r"http://[\d.]+:\d+", line) for line in process.stdout)
    url = next(match[0] for match in found if match)
    numbers, stat = count(), Path(f"/proc/{process.pid}/stat")

    def client(requests: int) -> None:
        with httpx.Client(base_url=url, timeout=60) as asked:
            for _ in range(requests):
                query = f"Who wrote the opera number {next(numbers)} of the year ?"
                body = {"queries": [query], "topk": 3, "return_scores": True}
                asked.post("/retrieve", json=body).raise_for_status()

    def spent() -> float:
        user, system = stat.read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def measure() -> dict[str, float]:
        before = spent()
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(client, [250] * 16))
        return {"rate": 4000 / (spent() - before)}

    return measure


def of_command(*command: str) -> Measure:
    """Runs of a command, three at a time."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def measure() -> dict[str, float]:
        before = spent()
        for _ in range(3):
            subprocess.run(command, cwd="/", stdout=subprocess.DEVNULL, check=True)
        return {"rate": 3 / (spent() - before)}

    return measure


SIDES: dict[str, Callable[[], Measure]] = {
    "aec": aec,
    "batch": batch,
    "step": step,
    "server": server,
    "import": lambda: of_command(sys.executable, "-P", "-c", "import ssp_env"),
    "help": lambda: of_command(SSP, "--help"),
}

if __name__ == "__main__":
    measure = SIDES[sys.argv[1]]()
    for _ in sys.stdin:
        print(json.dumps(measure()), flush=True)
