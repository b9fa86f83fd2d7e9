"""From run directories to rows, tables and figure; nothing is played here."""

from __future__ import annotations

import csv
import json
from contextlib import suppress
from pathlib import Path

import pytest
from pyarrow import parquet
from sweep_runs import make_sweep, play

from experiments.sweeps.definition import Sweep
from experiments.sweeps.directory import TAKEN, SweepDirectory
from experiments.sweeps.figure import draw
from experiments.sweeps.plan import Trial, extend, trials
from experiments.sweeps.results import Outcome, read_outcomes, rows, write_rows
from experiments.sweeps.tables import (
    Estimate,
    as_data,
    difference,
    estimate,
    left_out,
    make_tables,
    markdown,
)
from ssp_env.cli import main
from ssp_env.errors import ConfigError, RunError

PLAIN = {"paper": None, "figures": []}


@pytest.fixture
def played(tmp_path: Path) -> tuple[Sweep, list[Trial], SweepDirectory]:
    """Two arms of three seeds; the second one's last trial was cut off."""
    made, directory = make_sweep(), SweepDirectory(tmp_path / "sweep")
    planned = trials(made)
    finals = {"one": (0.5, 0.7, 0.6), "two": (0.6, 0.9, 0.0)}
    for trial in planned:
        cut_off = (trial.arm, trial.seed) == ("two", 2)
        play(directory, trial, finals[trial.arm][trial.seed], steps=1 if cut_off else 2)
    return made, planned, directory


def test_intervals_are_student_s() -> None:
    found = estimate([1.0, 2.0, 3.0])
    # t(.975, 2) = 4.3027 and s = 1, as scipy.stats.t.interval has it.
    assert found == Estimate(2.0, pytest.approx(2.4841, abs=1e-3), 3)
    assert estimate([0.5]) == Estimate(0.5, None, 1)
    assert estimate([]) is None
    assert (str(found), str(estimate([0.25])), str(Estimate(-0.5, 0.125, 2))) == (
        "2.00 ±2.48",
        ".250",
        "-.500 ±.12",
    )


def test_comparisons_are_paired_by_seed() -> None:
    one, other = {0: 0.2, 1: 0.9, 2: 0.5}, {0: 0.1, 1: 0.8, 3: 0.0}
    found = difference(one, other)
    assert found == Estimate(pytest.approx(0.1), pytest.approx(0.0, abs=1e-9), 2)
    assert difference({0: 1.0}, {1: 1.0}) is None


def test_tables_have_means_comparisons_and_the_paper(
    played: tuple[Sweep, list[Trial], SweepDirectory],
) -> None:
    made, planned, directory = played
    outcomes = read_outcomes(directory, planned)
    assert [o.state for o in outcomes] == ["done"] * 5 + ["begun"]

    accuracy, against, figures, paper = make_tables(made, outcomes)
    assert accuracy.heads == ("arm", "seeds", "mean", "1-hop", "2-hop")
    assert accuracy.rows == [
        ("before training", "-", ".625", "1.00", ".250"),
        ("one", "3", ".800 ±.12", "1.00 ±.00", ".600 ±.25"),
        ("two", "2", ".875 ±.95", "1.00 ±.00", ".750 ±1.91"),
    ]
    assert accuracy.notes == ("two, seed 2: not finished: not in the tables.",)
    assert against.rows == [("two", "2 of 2", "+.075 ±.32", "+.000 ±.00", "+.150 ±.64")]
    assert figures.title == "Other figures, mean of the last 2 steps", "there are no ten"
    assert figures.rows[0] == ("one", ".150 ±.00")
    assert paper.notes == ("Paper: Table 0; accuracies of 100; in brackets, against one.",)
    assert paper.rows[1] == ("two", ".875 ±.95", "+.075 ±.32", "44.5 (+4.5)")
    assert "| two | 2 of 2 | +.075 ±.32 |" in markdown([against])


def test_rows_are_tidy_in_both_files(played: tuple[Sweep, list[Trial], SweepDirectory]) -> None:
    made, planned, directory = played
    table = rows("mine", read_outcomes(directory, planned))
    write_rows(directory, table)
    with open(directory.csv, newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert len(written) == len(table) == 5 * 3 + 2
    assert list(written[0]) == [
        *("sweep", "arm", "seed", "state", "learning.lr", "step"),
        *("accuracy.mean", "accuracy.1", "accuracy.2", "valid_rate"),
        *("seconds.wall", "seconds.step"),
    ]
    last = written[-3]
    assert (last["arm"], last["seed"], last["step"], last["learning.lr"]) == ("one", "2", "2", "")
    assert (last["accuracy.mean"], last["valid_rate"]) == ("0.8", "0.2")
    assert parquet.read_table(directory.parquet).to_pylist() == table
    draw(made, read_outcomes(directory, planned), directory.figure)
    assert directory.figure.stat().st_size > 10_000


def test_a_reason_that_nothing_failed_for_has_share_0_in_tables_and_rows() -> None:
    lines = [{"step": 0}, {"step": 1, "valid_rate": 0.5, "invalid_spoiler": 0.5}]
    lines += [{"step": 2, "valid_rate": 1.0}, {"step": 3, "void_games": 5.0}]
    some, none = (
        Outcome(trial, "begun", found, None)
        for trial, found in zip(trials(make_sweep())[:2], (lines, lines[2:3]), strict=True)
    )
    assert (some.last("invalid_spoiler"), none.last("invalid_spoiler")) == (0.25, 0.0)
    shares = [row["invalid_spoiler"] for row in rows("mine", [some, none])]
    assert shares == [None, 0.5, 0.0, None, 0.0]


def test_settings_of_several_types_share_a_column(tmp_path: Path) -> None:
    arms = {
        "off": {"learning.baseline_decay": None},
        "on": {"learning.baseline_decay": 0.5},
        "roles": {"learning.learning_roles": ["solver"], "game.closed_book": True},
    }
    made, directory = make_sweep(arms=arms, seeds=[0], paper=None), SweepDirectory(tmp_path)
    planned = trials(made)
    for trial in planned:
        play(directory, trial, 0.5)
    table = rows("mine", read_outcomes(directory, planned))
    write_rows(directory, table)
    found = parquet.read_table(directory.parquet).to_pylist()
    assert [row["learning.baseline_decay"] for row in found[::3]] == [None, 0.5, None]
    assert found[-1]["learning.learning_roles"] == "['solver']"
    assert found[-1]["game.closed_book"] is True


def test_a_trial_that_was_stopped_counts_and_is_named(
    played: tuple[Sweep, list[Trial], SweepDirectory],
) -> None:
    made, planned, directory = played
    cut_off = directory.run(planned[-1])
    cut_off.stopped.write_text(json.dumps({"sign": "nothing_valid"}))
    outcomes = read_outcomes(directory, planned)
    assert outcomes[-1].state == "stopped"
    accuracy = make_tables(made, outcomes)[0]
    assert accuracy.rows[2][1] == "3"
    assert "two, seed 2: stopped because its figures went wrong" in accuracy.notes[0]
    assert left_out(outcomes) == {}

    cut_off.stopped.write_text(json.dumps({"sign": "outage"}))
    assert directory.state(planned[-1]) == "begun", "an outage is no result"


def test_a_trial_that_fell_behind_is_not_averaged_with_those_of_the_last_step(
    played: tuple[Sweep, list[Trial], SweepDirectory],
) -> None:
    made, planned, directory = played
    directory.end_early(planned[-1])
    outcomes = read_outcomes(directory, planned)
    assert outcomes[-1].state == "ended early"

    accuracy, against, early, figures, _ = make_tables(made, outcomes)
    assert accuracy.rows[2][:3] == ("two", "2", ".875 ±.95")
    assert accuracy.notes == ()
    assert against.rows[0][1] == "2 of 2"
    assert early.rows == [("two, seed 2", "0", ".625", "1.00", ".250")]
    assert figures.rows[1] == ("two", ".150 ±.00"), "its first step is no last step"
    assert as_data(made, outcomes)["two"]["mean"]["by_seed"].keys() == {0, 1}
    assert left_out(outcomes)["two-seed2"]["step"] == 0


@pytest.mark.parametrize("known", [{"1": 1.0}, {}], ids=["one group", "all groups"])
def test_an_evaluation_that_an_outage_hit_is_named_and_not_averaged(
    known: dict[str, float], played: tuple[Sweep, list[Trial], SweepDirectory]
) -> None:
    made, planned, directory = played
    run = directory.run(planned[1])
    lines = run.read_metrics()
    run.metrics.unlink()
    for line in [*lines[:-1], {**lines[-1], "accuracy": known}]:
        run.append_metrics(line)

    outcomes = read_outcomes(directory, planned)
    assert outcomes[1].accuracy == known, "not that of an earlier evaluation"
    accuracy, against, *_ = make_tables(made, outcomes)
    assert accuracy.rows[2] == ("two", "1", ".950", "1.00", ".900"), "seed 1 alone"
    assert against.rows[0][:3] == ("two", "1 of 1", "+.100")
    assert accuracy.notes[0].startswith("two, seed 0: an outage hit whole groups")
    assert left_out(outcomes)["two-seed0"] == {"state": "done", "step": 2, "accuracy": known}
    last = [row for row in rows("mine", outcomes) if (row["arm"], row["seed"]) == ("two", 0)][-1]
    assert last["accuracy.mean"] is None


def test_seconds_of_trials_that_shared_the_machine_are_marked(tmp_path: Path) -> None:
    made, directory = make_sweep(figures=["seconds.step"], paper=None), SweepDirectory(tmp_path)
    planned = trials(made)
    for trial in planned:
        play(directory, trial, 0.5)

    def notes() -> tuple[str, ...]:
        return make_tables(made, read_outcomes(directory, planned))[-1].notes

    assert "of 6 it is not known" in notes()[0]
    for trial in planned:
        directory.note_playing([trial.name])
    assert notes() == ()
    directory.note_playing([trial.name for trial in planned[:2]])
    directory.note_playing([planned[0].name])
    assert "up to 2 trials shared the machine." in notes()[0]
    (directory.run(planned[0]).path / TAKEN).write_text(
        json.dumps({"sweep": "s", "trial": "t", "directory": "d", "git_commit": "c"})
    )
    assert "1 were played by other sweeps" in notes()[0]


def test_arms_of_several_models_have_their_own_beginnings(tmp_path: Path) -> None:
    made, directory = make_sweep(seeds=[0], paper=None), SweepDirectory(tmp_path)
    planned = trials(made)
    for trial in planned:
        play(directory, trial, 0.5)
    metrics = directory.run(planned[1]).metrics
    metrics.write_text(metrics.read_text().replace("0.25", "0.75"))
    accuracy = make_tables(made, read_outcomes(directory, planned))[0]
    assert [row[0] for row in accuracy.rows] == ["one, before", "two, before", "one", "two"]
    assert [row[-1] for row in accuracy.rows[:2]] == [".250", ".750"]


# -- the directory -----------------------------------------------------------------------------


def test_a_finished_sweep_gives_the_same_tables_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left to play, so neither Ray nor a policy is needed."""
    out = SweepDirectory(tmp_path / "sweep")
    file = tmp_path / "mine.yaml"
    file.write_text("seeds: [0, 1]\nset: {steps: 2}\narms: {one: {}, two: {learning.lr: 0.5}}\n")
    made = make_sweep(seeds=[0, 1], paper=None, figures=[])
    with out.claimed("mine", made, "ssp sweep mine.yaml"):
        for trial in trials(made):
            play(out, trial, 0.5 if trial.arm == "one" else 0.75)
    assert main(["sweep", str(file), "--out", str(out.path), "--resume"]) == 0
    shown, said = capsys.readouterr()
    assert "2 of 2" in shown
    assert "nothing is left to play: 4 trials ended before" in said
    assert "+.250" in out.tables.read_text()
    data = json.loads(out.summary.read_text())
    assert (data["git_commits"], data["seeds"]) == (["abc"], [0, 1])
    assert data["command"] == "ssp sweep mine.yaml", "the one that began it"
    assert data["arms"]["two"]["2"]["accuracy"] == {"mean": 0.75, "half": 0.0}

    assert data["resumed"] == [], "nothing was played"
    page = out.tables.read_text()
    assert "4 trials took 0.2 minutes, added up over trials" in page, "nobody noted how"

    before = out.csv.read_text()
    assert main(["sweep", str(file), "--out", str(out.path), "--resume"]) == 0
    assert out.csv.read_text() == before
    for trial in trials(made):
        out.note_playing([trial.name])
    assert main(["sweep", str(file), "--out", str(out.path), "--tables"]) == 0
    assert "minutes, one after the other" in out.tables.read_text()
    out.note_playing([trial.name for trial in trials(made)])
    assert main(["sweep", str(file), "--out", str(out.path), "--tables", "--seeds", "1", "0"]) == 0
    assert "minutes, up to 4 at a time" in out.tables.read_text()
    capsys.readouterr()

    # In the middle of a sweep, the tables are of what has ended.
    out.run(trials(made)[-1]).summary.unlink()
    assert main(["sweep", str(file), "--out", str(out.path), "--tables"]) == 0
    assert "two, seed 1: not finished: not in the tables." in capsys.readouterr().out
    assert json.loads(out.summary.read_text())["trials"] == 3
    assert main(["sweep", str(file), "--out", str(tmp_path / "none"), "--tables"]) == 2
    assert "holds no sweep" in capsys.readouterr().err
    for words, says in (
        ([], "holds a sweep; go on with it by --resume"),
        (["--resume", "--set", "learning.kl_coeff=1"], "other settings (learning.kl_coeff)"),
        (["--resume", "--steps", "9"], "other settings (steps)"),
        (["--resume", "--arms", "three"], "known: one, two"),
        (["--tables", "--seeds", "0"], "--seeds = [0]: tables are of all arms and seeds"),
        (["--tables", "--arms", "one"], "--arms = ['one']: tables are of all arms and seeds"),
        (["--tables", "--steps", "9"], "other settings (steps)"),
    ):
        assert main(["sweep", str(file), "--out", str(out.path), *words]) == 2
        assert says in capsys.readouterr().err


def test_a_sweep_that_is_gone_on_with_is_extended_and_never_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, file = SweepDirectory(tmp_path / "sweep"), tmp_path / "mine.yaml"
    file.write_text(
        "seeds: [0, 1, 2]\nset: {steps: 2}\n"
        "arms: {zero: {learning.lr: 0.1}, one: {}, two: {learning.lr: 0.5}}\nbaseline: one\n"
    )
    begun = make_sweep(
        seeds=[0, 2], arms={"one": {}, "two": {"learning.lr": 0.5}}, baseline="one", **PLAIN
    )
    with out.claimed("mine", begun, "ssp sweep mine.yaml --arms one two --seeds 0 2"):
        for trial in trials(begun):
            if trial.seed == 0:
                play(out, trial, 0.5)

    # What Ray would play; a run of its own takes too long here.
    def playing(left: list[Trial], directory: SweepDirectory, *_: object, **__: object) -> int:
        for trial in left:
            play(directory, trial, 0.75)
        return 0

    monkeypatch.setattr("experiments.sweeps.tuning.tune_trials", playing)

    def resume(*words: str) -> None:
        monkeypatch.setattr("sys.argv", ["ssp", "sweep", "mine.yaml", "--resume", *words])
        assert main(["sweep", str(file), "--out", str(out.path), "--resume", *words]) == 0

    resume("--arms", "zero", "--seeds", "1")
    held = out.read("mine")
    assert (held.seeds, list(held.all_arms())) == ((0, 1, 2), ["zero", "one", "two"])
    states = {trial.name: out.state(trial) for trial in trials(held)}
    assert [name for name, state in states.items() if state == "done"] == [
        *("one-seed0", "two-seed0", "zero-seed1"),
    ]
    said = capsys.readouterr()
    assert "(1 trial to play, 0 done)" in said.err
    assert "not begun: not in the tables" in out.tables.read_text()

    resume("--seeds", "0")
    resume("--seeds", "0")
    assert out.read("mine") == held
    commands = json.loads(out.summary.read_text())["resumed"]
    assert commands == [
        "ssp sweep mine.yaml --resume --arms zero --seeds 1",
        "ssp sweep mine.yaml --resume --seeds 0",
    ]
    assert all(f"`{command}`" in out.tables.read_text() for command in commands)
    assert out.state(trials(held)[0]) == "done"
    assert out.state(trials(held)[-1]) == "waiting"


def test_arms_of_another_sweep_are_not_added() -> None:
    held, other = make_sweep(arms={"one": {}}, **PLAIN), {"two": {"learning.lr": 0.5}}
    changed = make_sweep(arms={"one": {"learning.lr": 0.1}, **other}, **PLAIN)
    with pytest.raises(ConfigError, match="another arm 'one' than its file"):
        extend(held, changed, ["two"], None)
    # Both would be called `a-b`, which is the name of what is there.
    held = make_sweep(arms={"a-b": {}}, baseline="a-b", **PLAIN)
    named = make_sweep(arms={"a b": other["two"], "a-b": {}}, baseline="a-b", **PLAIN)
    with pytest.raises(ConfigError, match="directories would change"):
        extend(held, named, ["a b"], None)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("name: mine", "name: other"), "holds the sweep 'other', not 'mine'"),
        (("format: 1", "format: 0"), "is of another version"),
        (("version: ", "version: 9."), "is a sweep of version 9."),
        (("seeds:", "sseeds:"), "did you mean 'seeds'?"),
    ],
)
def test_a_directory_of_another_sweep_or_version_is_refused(
    change: tuple[str, str], says: str, tmp_path: Path
) -> None:
    directory = SweepDirectory(tmp_path / "sweep")
    made = make_sweep()
    with directory.claimed("mine", made, "ssp sweep mine.yaml"):
        directory.trials.mkdir()
    assert directory.read("mine") == made

    directory.definition.write_text(directory.definition.read_text().replace(*change))
    with pytest.raises((RunError, ValueError)) as caught:
        directory.read("mine")
    assert says in str(caught.value)


def test_a_sweep_that_could_not_begin_leaves_nothing(tmp_path: Path) -> None:
    directory = SweepDirectory(tmp_path / "runs" / "sweep")
    with (
        suppress(KeyboardInterrupt),
        directory.claimed("mine", make_sweep(), "ssp sweep mine.yaml"),
    ):
        assert directory.definition.exists()
        raise KeyboardInterrupt
    assert [*tmp_path.iterdir()] == []
