"""Trials over Ray Tune: each is the run that ``ssp train`` plays, and can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from runs import SETTINGS, timeless

from ssp_env.cli import main
from ssp_env.disk import locked
from ssp_experiments.sweeps.definition import SweepDirectory, read_sweep, trials
from ssp_experiments.sweeps.results import Results
from ssp_experiments.sweeps.tuning import play

STEPS = 1


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_what_is_left_of_a_sweep_is_played_to_the_same_table(
    policy: Path,
    whole_run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = dict(setting.split("=", 1) for setting in SETTINGS)
    values = {name: yaml.safe_load(value) for name, value in settings.items()}
    shared = {"steps": STEPS, "model": str(policy), **values}
    arms = {"as it is": {}, "fast": {"learning.lr": 0.1}, "held": {"learning.lr": 0.2}}
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"seeds": [0], "set": shared, "arms": arms}, sort_keys=False))

    directory, sweep = SweepDirectory(tmp_path / "sweep"), read_sweep(str(file))
    with directory.claimed("mine", sweep, ["ssp sweep mine.yaml"]):
        planned = trials(sweep)
    plain, fast, held = planned
    told: list[dict[str, Any]] = []
    for trial in (plain, fast):
        config, out = trial.config.model_dump(mode="json"), directory.run(trial).path
        play({"config": config, "out": out, "keep_checkpoints": trial is fast}, told.append)
    assert [figures["step"] for figures in told] == [0, 1, 0, 1]
    kept = [directory.run(trial).latest_checkpoint() is not None for trial in (plain, fast)]
    assert kept == [False, True], "where it is asked for"

    def untimed() -> Any:
        steps = Results(sweep, [plain, fast], directory).steps
        return steps[[name for name in steps if not name.startswith("seconds.")]]

    before = untimed()
    # As if the first trial had been killed in the middle of its step.
    killed = directory.run(plain)
    killed.summary.unlink()
    first = killed.metrics.read_text().splitlines(keepends=True)[0]
    killed.metrics.write_text(first + '{"step": 1, "void')
    finished = directory.run(fast).metrics.stat().st_mtime_ns

    # And as if a process still held the directory of another, which is found out beforehand.
    directory.run(held).path.mkdir()
    directory.run(held).write_config(held.config)
    command = ["sweep", str(file), "--out", str(directory.path), "--resume", "--parallel", "1"]
    with locked(directory.run(held).path):
        assert main(command) == 2
        assert "it is in use by a run that is still going on" in capsys.readouterr().err
        monkeypatch.setattr("ssp_experiments.commands.sweep.check_trials", lambda *_: None)
        assert main(command) == 1
    said = capsys.readouterr()
    assert "2 trials to play, 1 done" in said.err
    assert "held, seed 0 FAILED: " in said.err
    assert "training.py" in directory.failure(held).read_text(), "all of the error"
    assert "held, seed 0: not finished, so not in the tables." in said.out
    assert "Against as it is, seed by seed" in said.out
    assert untimed().equals(before)
    assert directory.run(fast).metrics.stat().st_mtime_ns == finished

    ours = timeless(directory.run(plain).path)
    theirs = timeless(whole_run)[: STEPS + 1]
    assert ours[0] == theirs[0]
    assert {**ours[1], **theirs[1]} == ours[1], "the last step is evaluated besides"
