"""Sweeps whose trials nobody has played: their directories hold what a run would leave behind."""

from __future__ import annotations

from typing import Any

from experiments.run.rundir import RunDirectory
from experiments.sweeps.definition import Sweep
from experiments.sweeps.directory import SweepDirectory
from experiments.sweeps.plan import Trial
from ssp_env.settings import read

PAPER = {"source": "Table 0", "columns": ["average"], "rows": {"one": [40], "two": [44.5]}}


def make_sweep(**values: Any) -> Sweep:
    given = {"seeds": [0, 1, 2], "arms": {"one": {}, "two": {"learning.lr": 0.5}}, "paper": PAPER}
    return read(Sweep, {"set": {"steps": 2}, "figures": ["valid_rate"], **given, **values})


def play(directory: SweepDirectory, trial: Trial, final: float, steps: int = 2) -> RunDirectory:
    """Leaves behind what a run would: accuracy rises to ``final`` at two hops."""
    made = directory.run(trial)
    made.path.mkdir(parents=True)
    made.write_config(trial.config)
    for step in range(steps + 1):
        line: dict[str, Any] = {"step": step, "seconds": {"wall": 1.0, "step": 2.0 + step}}
        if step:
            line["valid_rate"] = step / 10
        if step in (0, 2):
            line["accuracy"] = {"1": 1.0, "2": final if step else 0.25}
            line["interval"] = {"1": [0.9, 1.0], "2": [0.0, 1.0]}
        made.append_metrics(line)
    if steps == trial.config.steps:
        made.write_summary({"steps": steps, "git_commit": "abc", "machine": "this"})
    return made
