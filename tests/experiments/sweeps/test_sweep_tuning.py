"""What Ray Tune is told of trials: what each takes of the machine, and when one has fallen behind.

Ray itself is not started here.
"""

from __future__ import annotations

import shlex
import signal
import threading
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sweep_runs import make_sweep

from experiments.commands.sweep import _play
from experiments.config import load_preset, make_config
from experiments.run.process import telling
from experiments.sweeps.definition import Halving
from experiments.sweeps.directory import SweepDirectory
from experiments.sweeps.plan import Trial, trials
from experiments.sweeps.tuning import METRIC, resources, scheduler
from ssp_env.cli import main
from ssp_env.settings import plain

STEPS = 8


def trial(name: str, *settings: str) -> Trial:
    values = {**load_preset("tiny"), "steps": STEPS}
    return Trial(name, 0, name, {}, make_config(values, set=settings))


@pytest.mark.parametrize(
    ("settings", "bundles"),
    [
        ((), [{"CPU": 1}]),
        (("compute.threads=3",), [{"CPU": 3}]),
        (
            ("compute.gpus_per_env_runner=0.5", "compute.gpus_per_learner=0.25"),
            [{"CPU": 1, "GPU": 0.75}],
        ),
        (
            (
                *("compute.threads=2", "compute.env_runners=2", "compute.learners=1"),
                *("compute.gpus_per_env_runner=1", "compute.gpus_per_learner=0.5"),
            ),
            [{"CPU": 2}, {"CPU": 2, "GPU": 1}, {"CPU": 2, "GPU": 1}, {"CPU": 1, "GPU": 0.5}],
        ),
    ],
)
def test_a_trial_takes_what_its_settings_ask_for(
    settings: tuple[str, ...], bundles: list[dict[str, float]]
) -> None:
    config = plain(trial("a", *settings).config)
    assert resources({"trial": {"config": config}}).bundles == bundles


def test_trials_that_fall_behind_are_ended_and_none_at_its_last_step() -> None:
    trials = [trial(name) for name in "abc"]
    asha = scheduler(Halving(first=2, keep=2), trials)
    asha.set_search_properties(METRIC, "max")
    tuned = {name: SimpleNamespace(trial_id=name, config={}) for name in "abc"}
    for one in tuned.values():
        asha.on_trial_add(None, one)

    def told(name: str, step: int, accuracy: float) -> Any:
        result = {"step": step, METRIC: accuracy, "training_iteration": step}
        return asha.on_trial_result(None, tuned[name], result)

    assert told("a", 1, 0.1) == "CONTINUE", "not compared yet"
    assert told("a", 2, 0.6) == "CONTINUE"
    assert told("b", 2, 0.9) == "CONTINUE"
    assert told("c", 2, 0.1) == "STOP"
    assert told("b", STEPS, 0.9) == "CONTINUE", "the run still has to write its summary"


def test_a_stopped_sweep_says_how_to_go_on_as_it_was_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: object, **options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("experiments.sweeps.tuning.tune_trials", interrupted)
    sweep, directory = make_sweep(), SweepDirectory(tmp_path / "a sweep")
    chosen = ["--parallel", "2", "--arms", "one", "two", "--seeds", "0"]
    for parallel, resume, more in (
        (None, False, []),
        (2, False, ["--parallel", "2"]),
        (2, True, chosen),
    ):
        given = Namespace(name="mine.yaml", quiet=True, parallel=parallel, resume=resume)
        given.arms, given.seeds = ["one", "two"], [0]
        with pytest.raises(KeyboardInterrupt):
            _play(sweep, trials(sweep), directory, given)
        assert directory.trials.is_dir(), "so that a new sweep keeps its definition"
        words = ["ssp", "sweep", "mine.yaml", "--out", str(directory.path), *more, "--resume"]
        assert f"go on with: {shlex.join(words)}\n" in capsys.readouterr().err


def test_a_sweep_that_is_stopped_before_its_first_trial_can_be_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def interrupted(*args: object, **options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("experiments.sweeps.tuning.tune_trials", interrupted)
    Path("mine.yaml").write_text("seeds: [0]\nset: {steps: 2}\narms: {one: {}}\n")
    assert main(["sweep", "mine.yaml", "--out", "a"]) == 130
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "go on with: " in line]
    words = shlex.split(said.partition("go on with: ssp ")[2])

    asked: list[str] = []
    monkeypatch.setattr(
        "experiments.sweeps.tuning.tune_trials",
        lambda left, directory, board, **options: asked.extend(trial.name for trial in left) or 1,
    )
    assert main(words) == 2, "no trial has ended"
    assert asked == ["one-seed0"]


def test_ctrl_c_is_told_at_once_and_handled_by_whoever_took_it() -> None:
    told, heard = threading.Event(), list[str]()
    before = signal.getsignal(signal.SIGINT)
    with telling(told.set) as again:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert told.wait(10)

        told.clear()
        signal.signal(signal.SIGINT, lambda *given: heard.append("Tune"))
        again()
        signal.raise_signal(signal.SIGINT)
        assert told.wait(10)
    assert heard == ["Tune"]
    assert signal.getsignal(signal.SIGINT) is before
