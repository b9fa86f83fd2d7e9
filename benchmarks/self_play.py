"""The main result: self-play against solver-only over several seeds, at equal steps.

Runs ``ssp train`` once per seed and arm, each in its own process, and writes ``results.json``, a
table in ``results.md``, two plots, and the ``summary.json`` and ``metrics.jsonl`` of every run. A
run whose summary is already there is not repeated, so an interrupted benchmark can be continued.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from experiments.run.provenance import git_commit, machine

ARMS = {"ssp": [], "solver-only": ["--solver-only"]}


def main() -> int:
    """Runs what is missing, then writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="results folder")
    parser.add_argument(
        "--work", type=Path, default=Path("runs/science"), help="where the run directories go"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--parallel", type=int, default=2, help="runs side by side")
    parser.add_argument(
        "--train-args", default="", help="further arguments of ssp train, one string"
    )
    settings = parser.parse_args()
    jobs = [(arm, seed) for seed in settings.seeds for arm in ARMS]
    with ThreadPoolExecutor(settings.parallel) as pool:
        folders = dict(zip(jobs, pool.map(lambda job: _run(*job, settings), jobs), strict=True))
    _collect(folders, settings)

    return 0


def _command(arm: str, seed: int, out: Path, extra: str) -> list[str]:
    ssp = str(Path(sys.executable).with_name("ssp"))
    return [
        ssp,
        "train",
        "--preset",
        "tiny",
        "--seed",
        str(seed),
        "--out",
        str(out),
        "--quiet",
        *ARMS[arm],
        *extra.split(),
    ]


def _run(arm: str, seed: int, settings: argparse.Namespace) -> Path:
    out: Path = settings.work / f"{arm}-seed{seed}"
    if not (out / "summary.json").is_file():
        shutil.rmtree(out, ignore_errors=True)
        subprocess.run(
            _command(arm, seed, out, settings.train_args), check=True, stdout=subprocess.DEVNULL
        )

    print(
        f"{arm} seed {seed}: {json.loads((out / 'summary.json').read_text())['accuracy']['final']}",
        flush=True,
    )

    return out


def _collect(folders: dict[tuple[str, int], Path], settings: argparse.Namespace) -> None:
    settings.out.mkdir(parents=True, exist_ok=True)
    summaries = {}
    for (arm, seed), folder in folders.items():
        summaries[arm, seed] = json.loads((folder / "summary.json").read_text())
        for name in ("summary.json", "metrics.jsonl"):
            shutil.copyfile(folder / name, settings.out / f"{arm}-seed{seed}-{name}")

    groups = list(summaries["ssp", settings.seeds[0]]["accuracy"]["base"])
    means = {
        arm: {
            when: {
                g: fmean(summaries[arm, s]["accuracy"][when][g] for s in settings.seeds)
                for g in groups
            }
            for when in ("base", "final")
        }
        for arm in ARMS
    }
    result = {
        "command": " ".join(["python -m benchmarks.self_play", *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git_commit": git_commit(),
        "machine": machine(),
        "seeds": settings.seeds,
        "steps": summaries["ssp", settings.seeds[0]]["steps"],
        "verifier": summaries["ssp", settings.seeds[0]]["verifier"],
        "questions_per_hop": summaries["ssp", settings.seeds[0]]["questions_per_hop"],
        "mean_accuracy": means,
        "runs": {
            f"{arm} seed {seed}": s["accuracy"]["final"] for (arm, seed), s in summaries.items()
        },
        "seconds_per_step": {
            f"{arm} seed {seed}": s["seconds_per_step"] for (arm, seed), s in summaries.items()
        },
        "wall_seconds": {
            f"{arm} seed {seed}": s["wall_seconds"] for (arm, seed), s in summaries.items()
        },
    }
    (settings.out / "results.json").write_text(json.dumps(result, indent=2) + "\n")
    (settings.out / "results.md").write_text(_table(result, groups))

    for arm in ARMS:
        runs = [str(folders[arm, seed]) for seed in settings.seeds]
        ssp = str(Path(sys.executable).with_name("ssp"))
        subprocess.run([ssp, "plot", *runs, "--out", str(settings.out / f"{arm}.png")], check=True)


def _table(result: dict, groups: list[str]) -> str:
    head = (
        f"# Self-play on the mini-wiki, {result['steps']} steps, {len(result['seeds'])} seeds\n\n"
    )
    head += (
        f"`{result['command']}` on {result['date']}, commit {result['git_commit']}, "
        f"{result['machine']}.\n"
    )
    head += (
        f"Greedy, {result['questions_per_hop']} unseen questions per hop count; verifier: "
        f"{result['verifier']}.\n\n"
    )
    lines = [
        "| run | " + " | ".join(f"{g}-hop" for g in groups) + " |",
        "|---" * (len(groups) + 1) + "|",
    ]
    means = result["mean_accuracy"]
    rows = {
        "base": means["ssp"]["base"],
        "**SSP, mean**": means["ssp"]["final"],
        "**solver-only, mean**": means["solver-only"]["final"],
        **result["runs"],
    }
    lines += [
        f"| {name} | " + " | ".join(f"{row[g]:.3f}" for g in groups) + " |"
        for name, row in rows.items()
    ]

    return head + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
