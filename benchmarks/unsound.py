"""What got through the gate in a sweep's own games, and what it earned.

    python -m benchmarks.unsound runs/sweeps/verifier --out benchmarks/results/sweeps/verifier

Of each trial's last 20 steps, ``leak`` is the share of the unsound questions, those that are wrong
or ambiguous, that verification read and the game accepted; ``recall`` the share of the sound ones
that it read and verification let pass; ``unsound`` the share of unsound ones among what was
accepted, ``paid`` of what the proposer was paid; ``unsolved`` the share of the accepted that no
attempt solved. Writes ``unsound.json``, with the figures of every 20 steps, and ``unsound.md``:
means with 95% intervals over seeds, with accuracies of ``--groups``, and differences to the arms of
``--against`` (the first), seed by seed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.harness import headline, origin, parser, write
from ssp_experiments.commands.questions import figures, games_of, written
from ssp_experiments.config import read_yaml
from ssp_experiments.report.curves import group_in_words
from ssp_experiments.stats import over_runs
from ssp_experiments.sweeps.definition import ENDED, SweepDirectory, trials

WINDOW = 20
SHOWN = ["leak", "recall", "unsound", "paid", "unsolved", "hops"]


def main() -> int:
    """Reads the trials that have ended, and writes both files."""
    options = parser(__doc__, seed=False)
    options.add_argument("sweep", type=Path)
    options.add_argument("--groups", nargs="+", default=["2", "3"], help="accuracies to show")
    options.add_argument("--against", nargs="+", help="arms that others are compared with")
    settings = options.parse_args()

    directory = SweepDirectory(settings.sweep)
    sweep, _ = directory.read(read_yaml(directory.definition)["name"])
    rows = []
    for trial in trials(sweep):
        if directory.state(trial) not in ENDED:
            continue
        run = directory.run(trial)
        asked = written(games_of(run.path))
        final = (run.read_summary() or {})["accuracy"]["final"]
        for window, part in asked.groupby((asked["step"] - 1) // WINDOW):
            row = {"arm": trial.arm, "seed": trial.seed, "to_step": (int(window) + 1) * WINDOW}
            rows.append({**row, **counted(part)})
        rows[-1] |= {group_in_words(group): final[group] for group in settings.groups}
    table = pd.DataFrame(rows).round(4)
    settings.out.mkdir(parents=True, exist_ok=True)
    known = [row.dropna().to_dict() for _, row in table.iterrows()]
    write(settings.out / "unsound.json", {"window": WINDOW, "trials": known})

    last = table[table["to_step"] == table["to_step"].max()]
    names = [*SHOWN, *map(group_in_words, settings.groups)]
    last = last.set_index(["arm", "seed"])[names]
    tables = [("Means", last, "")]
    for arm in settings.against or [next(iter(sweep.all_arms()))]:
        others = last.index.get_level_values("arm") != arm
        if others.any():
            tables.append((f"Less {arm}, seed by seed", (last - last.loc[arm])[others], "+"))
    parts = [headline(origin())]
    for title, frame, sign in tables:
        cells = frame.groupby("arm", sort=False).agg(lambda seeds, sign=sign: shown(seeds, sign))
        parts += [f"{title}, steps to {table['to_step'].max()}:", cells.to_markdown()]
    (settings.out / "unsound.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return 0


def counted(asked: pd.DataFrame) -> dict[str, Any]:
    """Figures of the questions of some steps."""
    unsound = asked[(asked["sound"] == 0) & asked["verified"].notna()]
    accepted = asked.loc[asked["accepted"], "sound"]
    kept = figures(asked)
    return {
        "leak": unsound["accepted"].mean(),
        "unsound": 1 - accepted.mean(),
        **{name: kept[name] for name in ("recall", "paid", "unsolved", "hops", "accepted")},
    }


def shown(seeds: pd.Series[float], sign: str) -> str:
    """A mean over seeds and half of its interval, if there are several."""
    known = seeds.dropna()
    if known.empty:
        return "-"
    found = over_runs(list(known))
    return f"{found.mean:{sign}.3f}" + ("" if len(known) < 2 else f" ±{found.half:.2f}")


if __name__ == "__main__":
    sys.exit(main())
