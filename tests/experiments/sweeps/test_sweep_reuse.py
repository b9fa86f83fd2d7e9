"""Trials that another sweep has played are copied, and none is taken for what it is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sweep_runs import make_sweep, play

from experiments.sweeps import reuse
from experiments.sweeps.directory import TAKEN, SweepDirectory
from experiments.sweeps.plan import Trial, trials
from experiments.sweeps.reuse import Found, find_played, read_taken, sweeps_in
from ssp_env.cli import main
from ssp_env.errors import ConfigError, RunError

OTHER = {"arms": {"theirs": {"game.noise_documents": 4}, "slow": {"learning.lr": 1e-8}}}
MINE = "seeds: [0, 1]\nset: {steps: 2}\narms: {as it is: {}}\n"


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepDirectory:
    """A sweep whose arm ``theirs`` has the preset's own settings; all of it is played."""
    monkeypatch.setattr(reuse, "git_commit", lambda: "abc")
    made = make_sweep(**OTHER, seeds=[0, 1], paper=None, figures=[])
    directory = SweepDirectory(tmp_path / "sweeps" / "other")
    with directory.claimed("other", made, "ssp sweep other.yaml"):
        for trial in trials(made):
            run = play(directory, trial, 0.5 + trial.seed / 10)
            (run.path / "games").mkdir()
            (run.path / "games" / "step_000001.jsonl").write_text("{}")
            (run.checkpoints / "step_000002").mkdir(parents=True)
    return directory


def wanted(**values: Any) -> list[Trial]:
    return trials(make_sweep(**{"arms": {"mine": {}}, "seeds": [0, 2], "paper": None, **values}))


def search(planned: list[Trial], tmp_path: Path, keep: bool = False) -> list[Found]:
    own = SweepDirectory(tmp_path / "sweeps" / "mine")
    return find_played(planned, sweeps_in([str(tmp_path / "sweeps")], own), own, keep)


@pytest.mark.usefixtures("other")
def test_the_same_settings_and_seed_are_found(tmp_path: Path) -> None:
    (found,) = search(wanted(), tmp_path)
    assert str(found).startswith("mine, seed 0: taken from ")
    assert found.taken is not None
    assert str(found.taken) == "theirs-seed0 of other"
    assert found.taken.directory == "../other/trials/theirs-seed0"

    for setting in ("game.noise_documents", "steps", "evaluation.per_group", "checkpoint_every"):
        assert search(wanted(arms={"mine": {setting: 3}}), tmp_path) == []


@pytest.mark.parametrize(
    ("theirs", "ours", "keep", "why"),
    [
        ({"git_commit": "def"}, "abc", False, "what changed between def, which played it, and abc"),
        ({"git_commit": None}, "abc", False, "the commit that played it is not known"),
        ({}, "abc+changes", False, "at abc, files were changed that are in no commit"),
        ({"steps": 1}, "abc", False, "it was not played to its end"),
        ({}, "abc", True, "its checkpoints are gone"),
    ],
)
def test_what_is_not_taken_is_told(
    other: SweepDirectory,
    theirs: dict[str, Any],
    ours: str,
    keep: bool,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = other.run(trials(other.read("other"))[0])
    run.write_summary({**json.loads(run.summary.read_text()), **theirs})
    if keep:
        (run.checkpoints / "step_000002").rmdir()
    monkeypatch.setattr(reuse, "git_commit", lambda: ours)
    (found,) = search(wanted(), tmp_path, keep)
    assert found.taken is None
    assert why in str(found)


def test_a_sweep_of_trials_that_are_all_there_plays_nothing(
    other: SweepDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    out = SweepDirectory(tmp_path / "sweeps" / "mine")
    command = ["sweep", str(tmp_path / "mine.yaml"), "--out", str(out.path)]
    assert main([*command, "--reuse", str(tmp_path / "sweeps"), "--dry-run"]) == 0
    assert "as it is, seed 1: taken from" in capsys.readouterr().err
    assert not out.path.exists()

    assert main([*command, "--reuse", str(other.path)]) == 0
    shown = capsys.readouterr()
    assert "as it is, seed 1: taken from" in shown.err
    assert "starting Ray" not in shown.err
    note = "as it is, seeds 0, 1: played by the sweep other, with the same settings."
    assert note in out.tables.read_text()
    taken = json.loads(out.summary.read_text())["taken"]
    assert taken["as-it-is-seed1"]["trial"] == "theirs-seed1"

    # A copy is a run like any other, without the checkpoints that nobody asked for; who takes it
    # from here names the sweep that played it.
    run = out.trials / "as-it-is-seed0"
    assert (run / "games" / "step_000001.jsonl").exists()
    assert not (run / "checkpoints").exists()
    assert (run / "metrics.jsonl").read_text() == (
        other.trials / "theirs-seed0" / "metrics.jsonl"
    ).read_text()
    third = SweepDirectory(tmp_path / "third")
    (found,) = find_played(wanted(), [out], third, False)
    assert str(found.taken) == "theirs-seed0 of other"


def test_a_copy_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    directory, made = SweepDirectory(tmp_path), make_sweep()
    with directory.claimed("mine", made, "ssp sweep mine.yaml"):
        cut_off = play(directory, trials(made)[0], 0.5)
        cut_off.path.rename(directory.trials / ".one-seed0.unfinished")
    with directory.claimed("mine", made, "ssp sweep mine.yaml"):
        assert [*directory.trials.iterdir()] == []


def test_bad_places_and_notes(tmp_path: Path) -> None:
    own = SweepDirectory(tmp_path)
    with pytest.raises(ConfigError, match=r"--reuse = '.*gone': there is no such directory"):
        sweeps_in([str(tmp_path / "gone")], own)
    run = own.run(trials(make_sweep())[0])
    run.path.mkdir(parents=True)
    assert read_taken(run) is None
    (run.path / TAKEN).write_text('{"who": 1}')
    with pytest.raises(RunError, match="cannot be read"):
        read_taken(run)
