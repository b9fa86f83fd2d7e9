"""Outside algorithms learn the small world: curves over three seeds, beside a random player.

Runs ``examples/rllib_ppo.py``, ``cleanrl_ppo.py`` and ``batch_policy_gradient.py`` (both roles, one
policy per role) and ``sb3_maskable_ppo.py`` (the solver alone), or those that are named, one after
the other, each on one thread. A valid game pays both roles 1 in total and any other pays 0, so
their mean return is the share of valid games. How often the solver is right in these is drawn
beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd

import ssp_env
from benchmarks.harness import ROOT, parser, write
from ssp_experiments.report.curves import panels, save_figure

SEEDS = (0, 1, 2)
CLIENTS = {
    "rllib_ppo": "RLlib PPO, both roles",
    "cleanrl_ppo": "CleanRL's PPO loop, both roles",
    "sb3_maskable_ppo": "SB3 MaskablePPO, solver",
    "batch_policy_gradient": "Policy gradient over TurnVectorEnv, both roles",
}
LABELS = {
    "return": "return",
    "proposer": "proposer's return",
    "solver": "solver's return in valid games",
}
"""Columns of a curve. The return of both is the share of valid games."""
LATE = 5
"""The end of a curve is the mean of its last this many points."""


def main() -> None:
    """Runs everything, and writes curves, a summary and a picture."""
    options = parser(__doc__, seed=False)
    options.add_argument("--games", type=int, default=1000, help="of the random legal player")
    options.add_argument("--steps", type=int, help="tokens per run; by default, each example's own")
    options.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    settings = options.parse_args()
    settings.out.mkdir(parents=True, exist_ok=True)
    games = settings.games
    random = {"both": random_both(games), "solver": random_solver(games)}
    clients: dict[str, Any] = {}
    curves: dict[str, list[pd.DataFrame]] = {}
    for client in settings.clients:
        curves[client] = [learn(client, seed, settings.steps, settings.out) for seed in SEEDS]
        ends = pd.DataFrame([curve.tail(LATE).mean() for curve in curves[client]])
        last = pd.DataFrame([curve.iloc[-1] for curve in curves[client]])
        clients[client] = {
            "seeds": list(SEEDS),
            "mean_of_the_last_points": ends[returns(ends)].to_dict(orient="list"),
            **last[["steps", "cpu_seconds"]].to_dict(orient="list"),
        }

    player = {**random, "games": games, "seeds": [0, games - 1]}
    write(settings.out / "summary.json", {"random_legal_player": player, "clients": clients})
    draw(curves, random, settings.out / "learning_curves.png")


def returns(curve: pd.DataFrame) -> list[str]:
    """Columns of a curve that are means of returns."""
    return [name for name in LABELS if name in curve]


def random_both(games: int) -> float:
    """Mean return of the random legal player in both roles together."""
    env, rng, total = ssp_env.raw_env(world="small"), np.random.default_rng(0), 0.0
    for game in range(games):
        env.reset(seed=game)
        while not any(env.terminations.values()):
            legal = np.flatnonzero(env.observe(env.agent_selection)["action_mask"])
            env.step(rng.choice(legal))
        total += sum(env.rewards.values())

    return total / games


def random_solver(games: int) -> float:
    """Mean return of the random legal player in the solver's view."""
    env, rng, total = gym.make("ssp/Solver-v0", world="small"), np.random.default_rng(0), 0.0
    for game in range(games):
        observation, _ = env.reset(seed=game)
        ended = False
        while not ended:
            action = rng.choice(np.flatnonzero(observation["action_mask"]))
            observation, reward, terminated, truncated, _ = env.step(action)
            total, ended = total + float(reward), terminated or truncated

    return total / games


def learn(client: str, seed: int, steps: int | None, out: Path) -> pd.DataFrame:
    """Runs one example in its own process, which writes its curve."""
    file = out / f"{client}_seed{seed}.jsonl"
    script = str(ROOT / "examples" / f"{client}.py")
    command = [sys.executable, script, "--seed", str(seed), "--out", str(file)]
    command += [] if steps is None else ["--steps", str(steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=environment)
    curve = pd.read_json(file, lines=True)
    print(f"{client}, seed {seed}: {curve.iloc[-1].to_dict()}", flush=True)
    return curve


def draw(curves: dict[str, list[pd.DataFrame]], random: dict[str, float], out: Path) -> None:
    """A panel for each client: its seeds as thin lines, their mean, and the random legal player."""
    figure, axes = panels(len(curves))
    for axis, (client, runs) in zip(axes, curves.items(), strict=True):
        for name in returns(runs[0]):
            drawn = [run[["steps", name]].dropna().to_numpy().T for run in runs]
            grid = np.linspace(max(x[0] for x, _ in drawn), min(x[-1] for x, _ in drawn), 100)
            mean = np.mean([np.interp(grid, x, y) for x, y in drawn], axis=0)
            (line,) = axis.plot(grid, mean, label=LABELS[name])
            for x, y in drawn:
                axis.plot(x, y, color=line.get_color(), alpha=0.3, linewidth=0.8)

        base = random["both" if "proposer" in runs[0] else "solver"]
        axis.axhline(base, color="black", linestyle=":", label="return of a random legal player")
        axis.set(title=CLIENTS[client], xlabel="tokens played", ylim=(-0.02, 1.02))
        axis.legend(frameon=False, fontsize=8)
    save_figure(figure, out)


if __name__ == "__main__":
    main()
