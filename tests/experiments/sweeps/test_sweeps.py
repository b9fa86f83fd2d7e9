"""Sweeps: their files, tables and mistakes, with run directories that hold what a run would leave
behind; and their trials over Ray Tune, each of which is the run that ``ssp train`` plays.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from runs import SETTINGS, timeless

from ssp_agents.health import OUTAGE, Diagnosis
from ssp_env.cli import main
from ssp_env.disk import locked
from ssp_env.errors import ConfigError
from ssp_experiments.config import shipped
from ssp_experiments.run.rundir import RunDirectory
from ssp_experiments.sweeps.definition import Sweep, SweepDirectory, Trial, read_sweep, trials
from ssp_experiments.sweeps.results import Results, Table
from ssp_experiments.sweeps.tuning import play as play_trial

SWEEP = {
    "seeds": [0, 1, 2],
    "set": {"steps": 2},
    "arms": {"one": {}, "two": {"learning.lr": 0.5}},
    "paper": {"average": {"one": 40, "two": 44.5}},
}
Played = tuple[Sweep, list[Trial], SweepDirectory]
FINALS = {"one": (0.5, 0.7, 0.6), "two": (0.6, 0.9, 0.0)}


def play(directory: SweepDirectory, trial: Trial, steps: int = 2) -> RunDirectory:
    """Leaves behind what a run would: accuracy rises at two hops."""
    made = directory.run(trial)
    made.path.mkdir(parents=True, exist_ok=True)
    made.metrics.unlink(missing_ok=True)
    made.write_config(trial.config)
    final = FINALS[trial.arm][trial.seed]
    for step in range(steps + 1):
        line: dict[str, Any] = {"step": step, "seconds": {"wall": 1.0, "step": 2.0 + step}}
        line |= {"valid_rate": step / 10} if step else {}
        if step != 1:
            line["accuracy"] = {"1": 1.0, "2": final if step else 0.25}
            line["interval"] = {"1": [0.9, 1.0], "2": [0.0, 1.0]}
        made.append_metrics(line)
    if steps == 2:
        made.write_summary({"steps": steps, "git_commit": "abc", "machine": "this"})
    return made


@pytest.fixture
def played(tmp_path: Path) -> Played:
    """Two arms of three seeds; the second one's last trial was cut off."""
    sweep, directory = Sweep(**SWEEP), SweepDirectory(tmp_path / "sweep")
    planned = trials(sweep)
    for trial in planned:
        play(directory, trial, steps=1 if (trial.arm, trial.seed) == ("two", 2) else 2)
    return sweep, planned, directory


def rows(table: Table) -> list[tuple[str, ...]]:
    return list(table.cells.itertuples(name=None))


# -- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", shipped("sweeps"))
def test_shipped_sweeps_can_be_planned(name: str) -> None:
    sweep = read_sweep(name)
    planned = trials(sweep)
    assert len({trial.name for trial in planned}) == len(sweep.all_arms()) * len(sweep.seeds)
    assert all(trial.config.seed == trial.seed for trial in planned)


def test_arms_and_grid_are_combined() -> None:
    sweep = Sweep(
        seeds=[3, 4],
        set={"steps": 7, "game": {"noise_documents": 1}},
        arms={"plain": {}, "fine": {"game.invalid_reward": -0.1}},
        grid={"learning.lr": ["1e-4", 0.001], "game.noise_documents": [0, 2]},
    )
    planned = trials(sweep)
    assert next(iter(sweep.all_arms())) == "plain, lr=1e-4, noise_documents=0"
    assert [trial.seed for trial in planned] == [3] * 8 + [4] * 8, "seed by seed"
    last = planned[-1]
    assert str(last) == "fine, lr=0.001, noise_documents=2, seed 4"
    found = (last.config.steps, last.config.learning.lr, last.config.game.noise_documents)
    assert found == (7, 0.001, 2), "an arm's own setting counts, not that of all runs"
    assert last.config.game.invalid_reward == -0.1

    for mistake in ({"grid": {"steps": []}}, {"grid": {"steps": [1]}, "arms": {"a": {"steps": 2}}}):
        with pytest.raises(ConfigError, match=r"arms = |leave it out of one"):
            Sweep(**mistake)

    few = sweep.choose(["plain, lr=1e-4, noise_documents=0", last.arm])
    assert [trial.config for trial in trials(few)] == [planned[i].config for i in (0, 7, 8, 15)]


# -- tables ------------------------------------------------------------------------------------


def test_tables_have_means_comparisons_and_the_paper(played: Played) -> None:
    results = Results(*played)
    assert [state for _, state in results.states] == ["done"] * 5 + ["not finished"]

    accuracy, against, figures, paper = results.tables()
    assert list(accuracy.cells) == ["seeds", "mean", "1 hop", "2 hops"]
    assert rows(accuracy) == [
        ("before training", "-", "0.625", "1.000", "0.250"),
        ("one", "3", "0.800 ±0.12", "1.000 ±0.00", "0.600 ±0.25"),
        ("two", "2", "0.875 ±0.95", "1.000 ±0.00", "0.750 ±1.91"),
    ]
    assert accuracy.notes == ("two, seed 2: not finished, so not in the tables.",)
    assert rows(against) == [("two", "2 of 2", "+0.075 ±0.32", "+0.000 ±0.00", "+0.150 ±0.64")]
    assert rows(figures)[0] == ("one", "0.150 ±0.00", "3.500 ±0.00")
    assert rows(paper)[1] == ("two", "0.875 ±0.95", "+0.075 ±0.32", "44.5 (+4.5)")
    results.draw(played[2].path / "figure.png")
    assert (played[2].path / "figure.png").stat().st_size > 10_000


def test_trials_that_are_not_like_the_others_are_named(played: Played) -> None:
    """Stopped ones count; an evaluation that an outage hit has no mean over the same groups."""
    sweep, planned, directory = played
    cut_off, hit, alone = planned[-1], directory.run(planned[1]), directory.run(planned[0])
    directory.run(cut_off).write_stopped(Diagnosis("nothing_valid", 1, "why", "what helps"))
    assert directory.state(cut_off) == "stopped"
    for run, known in ((hit, {"1": 1.0}), (alone, {})):
        lines = run.read_metrics()
        run.metrics.unlink()
        for line in [*lines[:-1], {**lines[-1], "accuracy": known}]:
            run.append_metrics(line)

    accuracy, against, *_ = Results(sweep, planned, directory).tables()
    assert [row[1] for row in rows(accuracy)] == ["-", "2", "2"]
    assert rows(against)[0][:2] == ("two", "1 of 2")
    assert accuracy.notes[0].startswith("one, seed 0; two, seed 0: an outage hit whole groups")
    assert accuracy.notes[1].startswith("two, seed 2: stopped because its figures went wrong")

    directory.run(cut_off).write_stopped(Diagnosis(OUTAGE, 1, "why", "what helps"))
    assert directory.state(cut_off) == "not finished", "an outage is no result"


# -- the directory -----------------------------------------------------------------------------


def test_a_sweep_is_resumed_to_the_same_table_and_extended_by_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for Ray: what is played, not how."""
    asked: list[list[str]] = []

    def playing(left: list[Trial], directory: SweepDirectory, _: object) -> dict[str, str]:
        asked.append([trial.name for trial in left])
        if len(asked) == 1:
            play(directory, left[0])
            raise KeyboardInterrupt
        for trial in left:
            play(directory, trial)
        return {}

    monkeypatch.setattr("ssp_experiments.sweeps.tuning.tune_trials", playing)
    monkeypatch.setattr(
        "ssp_experiments.commands.sweep.Results.draw", lambda *_: None
    )  # takes seconds
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(yaml.safe_dump({**SWEEP, "paper": {}}))

    def run(*words: str) -> int:
        monkeypatch.setattr("sys.argv", ["ssp", "sweep", "mine.yaml", *words])
        return main(["sweep", "mine.yaml", *words])

    assert run("--seeds", "0", "--out", "a", "--keep-checkpoints") == 130
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "continue with" in line]
    assert said.endswith(" --keep-checkpoints")
    assert main(shlex.split(said.partition("with: ssp ")[2])) == 0
    assert asked == [["one-seed0", "two-seed0"], ["two-seed0"]]
    assert run("--seeds", "0", "--out", "b") == 0
    tables = [Path(name, "results.csv").read_text() for name in "ab"]
    assert tables[0] == tables[1]

    assert run("--resume", "--seeds", "1", "0", "--out", "a") == 0
    assert asked[-1] == ["one-seed1", "two-seed1"]
    page = Path("a/tables.md").read_text()
    assert "2 of 2" in page
    assert "then `ssp sweep mine.yaml --resume --seeds 1 0 --out a`, " in page
    assert "commit abc, this. Preset `tiny`, seeds 0, 1;" in page
    assert len(pd.read_csv("a/results.csv")) == 4 * 3

    before, count = Path("a/results.csv").read_text(), len(asked)
    assert run("--resume", "--out", "a") == run("--tables", "--out", "a") == 0
    assert (Path("a/results.csv").read_text(), len(asked)) == (before, count)
    capsys.readouterr()
    for words, says in (
        (["mine.yaml"], "continue the sweep in it by --resume"),
        (["mine.yaml", "--resume", "--set", "learning.kl_coeff=1"], "learning.kl_coeff"),
        (["mine.yaml", "--resume", "--steps", "9"], "its checkpoints are gone (a sweep deletes"),
        (["batch", "--resume"], "the sweep 'mine', not 'batch'"),
        (["mine.yaml", "--tables", "--seeds", "7"], "--tables takes --out alone"),
    ):
        assert main(["sweep", *words, "--out", "a"]) == 2
        assert says in capsys.readouterr().err


def test_a_failed_trial_is_told_with_its_exception_and_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = 'Traceback:\n  File "own.py", line 3\nValueError: no\nIt arose in the judge'
    monkeypatch.setattr(
        "ssp_experiments.sweeps.tuning.tune_trials", lambda left, *_: {left[0].name: error}
    )
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(yaml.safe_dump({**SWEEP, "paper": {}}))
    assert main(["sweep", "mine.yaml", "--seeds", "0"]) == 2, "no trial has ended"
    assert "one, seed 0 FAILED: ValueError: no It arose in the judge (" in capsys.readouterr().err


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
    shared = {"steps": 1, "model": str(policy), **values}
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
        play_trial({"config": config, "out": out, "keep_checkpoints": trial is fast}, told.append)
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
    assert "held, seed 0 FAILED: " in capsys.readouterr().err
    assert "training.py" in directory.failure(held).read_text(), "all of the error"
    assert untimed().equals(before)
    assert directory.run(fast).metrics.stat().st_mtime_ns == finished

    ours = timeless(directory.run(plain).path)
    theirs = timeless(whole_run)[:2]
    assert ours[0] == theirs[0]
    assert {**ours[1], **theirs[1]} == ours[1], "the last step is evaluated besides"
