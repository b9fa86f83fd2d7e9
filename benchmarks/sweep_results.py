"""What is kept of a sweep under ``benchmarks/results``: tables, a figure of some curves, and means.

    python -m benchmarks.sweep_results runs/sweeps/noise --panels accuracy.3 question_hops --out DIR

``trials.csv`` has a row per trial and ten steps, their means; accuracies are those of evaluations.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pandas as pd
from PIL import Image

from benchmarks.harness import parser
from ssp_experiments.config import read_yaml
from ssp_experiments.sweeps.definition import SweepDirectory, trials
from ssp_experiments.sweeps.results import Results

KEPT = (
    r"arm|seed|step|accuracy\..*|games|reused_games|(proposer|solver)_(reward|searches)|valid_rate|"
    r"(true|ambiguous|unsolved)_share|question_hops|share_\d+hop|learner_trained_tokens|"
    r"learner_(teacher_kl|turn_gain|updates)|given_uniform|seconds\.step"
)


def main() -> int:
    """Writes the four files."""
    options = parser(__doc__, seed=False)
    options.add_argument("sweep", type=Path)
    options.add_argument("--panels", nargs="+", required=True, help="figures that are drawn")
    settings = options.parse_args()
    settings.out.mkdir(parents=True, exist_ok=True)
    for name in ("tables.md", "sweep.yaml"):
        shutil.copy(settings.sweep / name, settings.out)

    steps = pd.read_csv(settings.sweep / "results.csv")
    steps = steps[[name for name in steps if re.fullmatch(KEPT, name)]]
    steps["step"] += -steps["step"] % 10
    means = steps.groupby(["arm", "seed", "step"], sort=False).mean().reset_index()
    means.to_csv(settings.out / "trials.csv", index=False, float_format="%.4g")

    directory = SweepDirectory(settings.sweep)
    sweep, _ = directory.read(read_yaml(directory.definition)["name"])
    results = Results(sweep, trials(sweep), directory)
    figure = settings.out / "figure.png"
    results.draw(figure, settings.panels)
    # A third of the size, with colours to spare.
    Image.open(figure).convert("RGB").quantize(192).save(figure, optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
