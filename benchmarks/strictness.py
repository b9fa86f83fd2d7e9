"""How strict a gate has to be: what self-play comes to, against what its gate lets pass.

    ssp sweep gate
    ssp sweep benchmarks/data/self_consistency.yaml
    python -m benchmarks.strictness runs/sweeps/* --out benchmarks/results/sweeps/gate

Of each trial's last 20 steps, the leak is the share of the unsound questions, those that are wrong
or ambiguous, that verification read and the game accepted; ``unsound`` is their share of what was
accepted, ``paid`` of what the proposer was paid; ``unsolved`` is the share of the accepted that no
attempt solved. Writes ``strictness.json``, ``strictness.png``, and means with 95% intervals over
seeds, ``strictness.md``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.harness import headline, origin, parser, write
from ssp_experiments.commands.questions import figures, games_of, written
from ssp_experiments.config import read_yaml
from ssp_experiments.report.curves import panels, save_figure
from ssp_experiments.stats import over_runs
from ssp_experiments.sweeps.definition import ENDED, SweepDirectory, trials

WINDOW = 20
PANELS = {
    "unsound": "accepted questions that are wrong or ambiguous",
    "paid": "share of the proposer's pay that they earn",
    "3 hops": "accuracy at three hops (dotted: before training)",
}


def main() -> int:
    """Reads the trials that have ended, and writes the files."""
    options = parser(__doc__, seed=False)
    options.add_argument("sweeps", type=Path, nargs="+")
    settings = options.parse_args()

    ended = []
    for directory in map(SweepDirectory, settings.sweeps):
        sweep, _ = directory.read(read_yaml(directory.definition)["name"])
        ended += [
            (trial, directory.run(trial))
            for trial in trials(sweep)
            if directory.state(trial) in ENDED
        ]

    rows = []
    for trial, run in ended:
        asked = written(games_of(run.path))
        last = asked[asked["step"] > trial.config.steps - WINDOW]
        refusable = last[(last["sound"] == 0) & last["verified"].notna()]
        accepted = last.loc[last["accepted"], "sound"]
        summary: dict[str, Any] = run.read_summary() or {}
        rows.append(
            {
                "arm": trial.arm,
                "seed": trial.seed,
                "leak": refusable["accepted"].mean(),
                "unsound": 1 - accepted.mean(),
                **{name: figures(last)[name] for name in ("paid", "unsolved")},
                "3 hops": summary["accuracy"]["final"]["3"],
                "3 hops before": summary["accuracy"]["base"]["3"],
            }
        )
    table = pd.DataFrame(rows).round(4)
    settings.out.mkdir(parents=True, exist_ok=True)
    draw(table, settings.out / "strictness.png")
    write(settings.out / "strictness.json", {"window": WINDOW, "trials": table.to_dict("records")})
    cells = table.drop(columns=["seed", "3 hops before"]).groupby("arm", sort=False).agg(shown)
    page = f"{headline(origin())}\n\n{cells.to_markdown()}\n"
    (settings.out / "strictness.md").write_text(page, encoding="utf-8")
    return 0


def shown(seeds: pd.Series[float]) -> str:
    """A mean over seeds and half of its interval, if there are several."""
    known = seeds.dropna()
    if known.empty:
        return "-"
    found = over_runs(list(known))
    return f"{found.mean:.3f}" + ("" if found.half is None else f" ±{found.half:.2f}")


def draw(table: pd.DataFrame, out: Path) -> None:
    """A point per trial against its leak, and a line through the means of the arms that leak by
    chance; the policy's own gate leaks what it does not see."""
    figure, axes = panels(len(PANELS))
    kinds = {"1-p": "leak", "4p(1-p)": "4p"}
    kinds |= {name: name for name in ("self-consistency", "the policy verifies")}
    for axis, (name, title) in zip(axes, PANELS.items(), strict=True):
        for place, (label, start) in enumerate(kinds.items()):
            own = table[table["arm"].str.startswith(start)]
            axis.plot(
                own["leak"], own[name], "o*vs"[place], color=f"C{place}", label=label, alpha=0.6
            )
            means = own.groupby("arm")[["leak", name]].mean().sort_values("leak")
            axis.plot(means["leak"], means[name], color=f"C{place}", linewidth=1)
        if name == "3 hops":
            axis.axhline(table["3 hops before"].mean(), color="gray", linestyle=":")
        axis.set(xlabel="unsound questions that pass the gate", ylim=(-0.02, 1.02))
        axis.set_title(title, fontsize="medium")
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False)
    save_figure(figure, out)


if __name__ == "__main__":
    sys.exit(main())
