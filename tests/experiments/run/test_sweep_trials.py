"""Trials over Ray Tune: each is the run that ``ssp train`` plays, and can be gone on with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from runs import SETTINGS, timeless

from experiments.sweeps.definition import read_sweep
from experiments.sweeps.directory import SweepDirectory
from experiments.sweeps.plan import Trial, trials
from experiments.sweeps.results import read_outcomes, rows
from experiments.sweeps.source import Source
from experiments.sweeps.trial import play
from ssp_env.cli import main
from ssp_env.disk import locked
from ssp_env.settings import plain

STEPS = 1
SLOW = {"learning.lr": 1e-8}


def begin(folder: Path, policy: Path) -> tuple[SweepDirectory, list[Trial]]:
    """A sweep of four arms and one seed, of which nothing is played yet."""
    settings = dict(setting.split("=", 1) for setting in SETTINGS)
    values = {name: yaml.safe_load(value) for name, value in settings.items()}
    shared = {"steps": STEPS, "model": str(policy), **values}
    fast, held = {"learning.lr": 0.1}, {"learning.lr": 0.2}
    arms = {"as it is": {}, "fast": fast, "slow": SLOW, "held": held}
    file = folder / "mine.yaml"
    file.write_text(yaml.safe_dump({"seeds": [0], "set": shared, "arms": arms}, sort_keys=False))

    directory, sweep = SweepDirectory(folder / "sweep"), read_sweep(Source(file))
    with directory.claimed("mine", sweep, "ssp sweep mine.yaml"):
        directory.trials.mkdir()
    return directory, trials(sweep)


def untimed(directory: SweepDirectory, planned: list[Trial]) -> list[dict[str, Any]]:
    table = rows("mine", read_outcomes(directory, planned))
    return [{name: cell for name, cell in row.items() if "seconds" not in name} for row in table]


@pytest.mark.usefixtures("cluster")
def test_what_is_left_of_a_sweep_is_played_to_the_same_table(
    policy: Path,
    whole_run: tuple[Path, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory, planned = begin(tmp_path, policy)
    _, fast, slow, held = planned
    heard: list[dict[str, Any]] = []
    for trial in (fast, slow):
        play(plain(trial.config), directory.run(trial).path, trial is fast, heard.append)
    assert [told["step"] for told in heard] == [0, 1, 0, 1]
    assert heard[0]["accuracy"] == pytest.approx(sum(heard[0][f"accuracy/{n}"] for n in "1234") / 4)
    kept = [directory.run(trial).latest_checkpoint() is not None for trial in (fast, slow)]
    assert kept == [True, False], "where it is asked for"
    before = untimed(directory, [fast, slow])

    # As if the last trial had been killed in the middle of its step.
    killed = directory.run(slow)
    killed.summary.unlink()
    first = killed.metrics.read_text().splitlines(keepends=True)[0]
    killed.metrics.write_text(first + '{"step": 1, "void')
    finished = directory.run(fast).metrics.stat().st_mtime_ns

    # And as if a process still held the directory of another, which is found out beforehand.
    directory.run(held).path.mkdir()
    directory.run(held).write_config(held.config)
    command = ["sweep", str(tmp_path / "mine.yaml"), "--out", str(directory.path), "--resume"]
    with locked(directory.run(held).path):
        assert main(command) == 2
        assert "it is in use by a run that is still going on" in capsys.readouterr().err
        monkeypatch.setattr(SweepDirectory, "check", lambda *_: None)
        assert main(command) == 1
    said = capsys.readouterr()
    assert "(3 trials to play, 1 done)" in said.err
    assert re.search(r"4/4  held, seed 0 FAILED: .*RunError: .* in use by a run", said.err)
    assert "Traceback" not in said.err
    assert "training.py" in directory.failure(held).read_text(), "all of the error"
    assert "held, seed 0: not finished: not in the tables." in said.out
    assert said.err.count(f"({STEPS} steps, ") == 2, "a line for each"
    assert "Against as it is, seed by seed" in said.out
    assert untimed(directory, [fast, slow]) == before
    assert directory.run(fast).metrics.stat().st_mtime_ns == finished

    ours = timeless(directory.run(planned[0]).path)
    theirs = timeless(whole_run[0])[: STEPS + 1]
    assert ours[0] == theirs[0]
    assert {**ours[1], **theirs[1]} == ours[1], "the last step is evaluated besides"
