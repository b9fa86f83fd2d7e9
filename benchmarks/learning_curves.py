"""Outside algorithms learn the small world: curves over three seeds, beside a random player.

Runs ``examples/rllib_ppo.py``, ``cleanrl_ppo.py`` and ``batch_policy_gradient.py`` (both roles, one
policy per role) and ``sb3_maskable_ppo.py`` (the solver alone), or those that are named, one after
the other, each on one thread. A valid game pays both roles 1 in total and any other pays 0, so
their mean return is the share of valid games. How often the solver is right in these is drawn
beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import matplotlib
import numpy as np

import ssp_env
from benchmarks.origin import origin

ROOT = Path(__file__).resolve().parent.parent
SEEDS = (0, 1, 2)
CLIENTS = {
    "rllib_ppo": "RLlib PPO, both roles",
    "cleanrl_ppo": "CleanRL's PPO loop, both roles",
    "sb3_maskable_ppo": "SB3 MaskablePPO, solver",
    "batch_policy_gradient": "Policy gradient over GameBatch, both roles",
}
LATE = 5
"""The end of a curve is the mean of its last this many points."""

Curve = list[dict[str, float]]


def main() -> int:
    """Runs everything, and writes curves, a summary and a picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a directory")
    parser.add_argument(
        "--games", type=int, default=1000, help="games of the random legal player, in each view"
    )
    parser.add_argument(
        "--steps", type=int, help="tokens per run; by default, as many as each example sets"
    )
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    settings = parser.parse_args()
    settings.out.mkdir(parents=True, exist_ok=True)
    random = {"both": random_both(settings.games), "solver": random_solver(settings.games)}
    curves, cpu = {}, {}

    for client in settings.clients:
        for seed in SEEDS:
            curves[client, seed], cpu[client, seed] = learn(
                client, seed, settings.steps, settings.out
            )
            end = curves[client, seed][-1]
            print(
                f"{client}, seed {seed}: {cpu[client, seed]:.0f} CPU-seconds, {json.dumps(end)}",
                flush=True,
            )

    summary = {
        **origin("learning_curves"),
        "threads": 1,
        "random_legal_player": random | {"games": settings.games, "seeds": [0, settings.games - 1]},
        "clients": {client: client_summary(client, curves, cpu) for client in settings.clients},
    }
    (settings.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    draw(curves, random, settings.out / "learning_curves.png")
    print(json.dumps(summary, indent=2))

    return 0


def random_both(games: int) -> dict[str, float]:
    """Mean returns of the random legal player in both roles; the solver's over valid games only."""
    env, rng = ssp_env.raw_env(world="small"), np.random.default_rng(0)
    proposer, solver = 0.0, []
    for game in range(games):
        env.reset(seed=game)
        while not any(env.terminations.values()):
            legal = np.flatnonzero(env.observe(env.agent_selection)["action_mask"])
            env.step(rng.choice(legal))

        proposer += env.rewards["proposer"]
        if env.infos["solver"]["outcome"] == "valid":
            solver.append(env.rewards["solver"])

    solved = float(np.mean(solver))
    return {
        "return": (proposer + sum(solver)) / games,
        "proposer": proposer / games,
        "solver": solved,
    }


def random_solver(games: int) -> dict[str, float]:
    """Mean return of the random legal player in the solver's view."""
    env, rng, total = gym.make("ssp/Solver-v0", world="small"), np.random.default_rng(0), 0.0
    for game in range(games):
        observation, _ = env.reset(seed=game)
        ended = False
        while not ended:
            action = rng.choice(np.flatnonzero(observation["action_mask"]))
            observation, reward, terminated, truncated, _ = env.step(action)
            total, ended = total + float(reward), terminated or truncated

    return {"return": total / games}


def learn(client: str, seed: int, steps: int | None, out: Path) -> tuple[Curve, float]:
    """Runs one example in its own process: its curve, and the CPU-seconds of that process."""
    file = out / f"{client}_seed{seed}.jsonl"
    command = [
        sys.executable,
        str(ROOT / "examples" / f"{client}.py"),
        "--seed",
        str(seed),
        "--out",
        str(file),
    ]
    command += [] if steps is None else ["--steps", str(steps)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command,
        check=True,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return [json.loads(line) for line in file.read_text().splitlines()], cpu


def client_summary(
    client: str, curves: dict[tuple[str, int], Curve], cpu: dict[tuple[str, int], float]
) -> Any:
    """Where the curves of a client ended, and what they cost."""
    runs = [curves[client, seed] for seed in SEEDS]
    names = [name for name in ("return", "proposer", "solver") if name in runs[0][-1]]
    end = {
        name: [float(np.mean([p[name] for p in run[-LATE:] if name in p])) for run in runs]
        for name in names
    }

    return {
        "seeds": list(SEEDS),
        "steps": [run[-1]["steps"] for run in runs],
        "mean_of_the_last_points": end,
        "lowest_return_of_the_last_points": [min(p["return"] for p in run[-LATE:]) for run in runs],
        "cpu_seconds": [cpu[client, seed] for seed in SEEDS],
    }


def draw(
    curves: dict[tuple[str, int], Curve], random: dict[str, dict[str, float]], out: Path
) -> None:
    """A panel for each client: its seeds as thin lines, their mean, and the random legal player."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    clients = list(dict.fromkeys(client for client, _ in curves))
    size = (5 * len(clients), 4.5)
    figure, axes = pyplot.subplots(
        1, len(clients), figsize=size, constrained_layout=True, squeeze=False
    )

    for axis, client in zip(axes[0], clients, strict=True):
        title = CLIENTS[client]
        runs = [curves[client, seed] for seed in SEEDS]
        both = "proposer" in runs[0][-1]
        labels = {
            "return": "return of both (share of valid games)",
            "proposer": "proposer's return",
        }
        labels["solver"] = "solver's return in valid games"

        for name, label in labels.items() if both else [("return", "return")]:
            lines = [
                ([p["steps"] for p in run if name in p], [p[name] for p in run if name in p])
                for run in runs
            ]
            grid = np.linspace(
                max(line[0][0] for line in lines), min(line[0][-1] for line in lines), 100
            )
            (drawn,) = axis.plot(
                grid, np.mean([np.interp(grid, *line) for line in lines], axis=0), label=label
            )
            for line in lines:
                axis.plot(*line, color=drawn.get_color(), alpha=0.3, linewidth=0.8)

        base = random["both" if both else "solver"]["return"]
        axis.axhline(base, color="black", linestyle=":", label="return of a random legal player")
        axis.set(title=title, xlabel="tokens played", ylim=(-0.02, 1.02))
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8)

    figure.savefig(out, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
