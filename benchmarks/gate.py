"""The gate of self-play over steps: what it lets pass, and what of the truth it lets through.

    python -m benchmarks.gate RUN... --out DIR

Reads the games of finished runs in generated worlds, whose directories are named ``VARIANT_sSEED``,
and adds them to those that ``gate.json`` in DIR has already.
Of the questions that reached verification in 20 steps, precision is the share of the valid ones
that are truly correct, recall the share of the truly correct ones that are valid, unsolved the
share of the verified ones that no attempt solves, and paid the share of the proposer's reward that
truly correct ones earn. Writes ``gate.json`` and ``gate.md``, with means and deviations over seeds.
Games are read as plain JSON, so that runs of earlier commits can be read as well.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.harness import headline, origin, parser, write

WINDOW = 20
"""Steps that are counted together."""
SHARES = {
    "precision": ("valid_true", "valid"),
    "recall": ("valid_true", "true"),
    "unsolved": ("unsolved", "verified"),
    "paid": ("paid_true", "paid"),
}
"""Numerator and denominator of each share."""


def main() -> int:
    """Reads the runs and writes the results."""
    options = parser(__doc__, seed=False)
    options.add_argument("runs", type=Path, nargs="+", help="run directories")
    settings = options.parse_args()

    out = settings.out / "gate.json"
    earlier = json.loads(out.read_text(encoding="utf-8"))["runs"] if out.exists() else []
    found = {(run["variant"], run["seed"]): run for run in earlier}
    for run in settings.runs:
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        variant, _, seed = run.name.rpartition("_s")
        named = {"variant": variant, "seed": seed, "git_commit": summary["git_commit"]}
        counts = pd.DataFrame(counted(run)).groupby("step").sum()
        shares = {name: (counts[a] / counts[b]).round(4) for name, (a, b) in SHARES.items()}
        gate = {str(step): row for step, row in pd.DataFrame(shares).to_dict("index").items()}
        read = {**named, "gate": gate, "accuracy": summary["accuracy"]["final"]}
        found[variant, seed] = read

    runs = [found[name] for name in sorted(found)]
    write(out, {"window": WINDOW, "runs": runs})
    (settings.out / "gate.md").write_text(page(runs), encoding="utf-8")
    return 0


def counted(run: Path) -> Iterator[dict[str, Any]]:
    """What each proposed question of a run that reached verification counts as, by the last step of
    its window."""
    for file in sorted((run / "games").glob("step_*.jsonl")):
        step = int(file.stem.removeprefix("step_"))
        for line in file.read_text(encoding="utf-8").splitlines()[1:]:
            game = json.loads(line)
            if game["start"]["origin"] != "proposed" or game["verification"] is None:
                continue

            attempts = [t for t in game["trajectories"] if t["role"] == "solver"]
            solved = any(t["verdict"] and t["verdict"]["correct"] for t in attempts)
            valid, true = game["outcome"] == "valid", bool(game["truly_correct"])
            verified, paid = game["verification"]["correct"], game["proposer_reward"] or 0.0
            yield {
                "step": step + -step % WINDOW,
                "true": true,
                "verified": verified,
                "unsolved": verified and not solved,
                "valid": valid,
                "valid_true": valid and true,
                "paid": paid,
                "paid_true": paid * true,
            }


def page(runs: list[dict[str, Any]]) -> str:
    """Tables in Markdown: a share by steps, and the last accuracy by hops."""
    commits: dict[str, set[str]] = {}
    for run in runs:
        commits.setdefault(run["variant"], set()).add(run["git_commit"][:8])
    made = "; ".join(f"{name}: {', '.join(sorted(by))}" for name, by in commits.items())
    parts = [f"# The gate over steps\n\n{headline(origin())} Runs are of these commits: {made}."]
    for name in SHARES:
        rows = [{s: share[name] for s, share in run["gate"].items()} for run in runs]
        parts.append(table(f"{name} to step", rows, runs))
    parts.append(table("last accuracy by hops", [run["accuracy"] for run in runs], runs))
    return "\n\n".join(parts) + "\n"


def table(title: str, rows: list[dict[Any, float]], runs: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over seeds, a row per variant."""
    by = pd.DataFrame(rows).groupby([run["variant"] for run in runs])
    cells = by.mean().map("{:.2f}".format) + by.std().map(" ±{:.2f}".format)
    cells.insert(0, "seeds", by.size())
    return str(cells.rename_axis(title).reset_index().to_markdown(index=False))


if __name__ == "__main__":
    sys.exit(main())
