"""What a sweep's file says, and how its mistakes are told: before anything is loaded or written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.sweeps.definition import find, read_sweep, shipped
from experiments.sweeps.plan import Trial, check_trials, choose, trials, unequal_answers
from experiments.sweeps.source import Source
from ssp_env.cli import main
from ssp_env.errors import ConfigError, DataError


def write(folder: Path, text: str) -> Source:
    file = folder / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return Source(file)


def plan(folder: Path, text: str) -> list[Trial]:
    source = write(folder, text)
    return trials(read_sweep(source), source)


@pytest.mark.parametrize("name", shipped())
def test_shipped_sweeps_can_be_planned(name: str) -> None:
    source = Source(find(name))
    sweep = read_sweep(source)
    planned = trials(sweep, source)
    assert len(planned) == len(sweep.all_arms()) * len(sweep.seeds)
    assert len({trial.name for trial in planned}) == len(planned)
    assert all(trial.config.seed == trial.seed for trial in planned)


@pytest.mark.parametrize("preset", ["h200", "paper-7b"])
def test_shipped_sweeps_can_be_planned_with_another_preset(preset: str) -> None:
    for name in shipped():
        source = Source(find(name))
        planned = trials(replace(read_sweep(source), preset=preset), source)
        said = unequal_answers(planned)
        assert (said is not None) == (name == "algorithms"), said


def test_arms_with_unequal_numbers_of_answers_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["sweep", "algorithms", "--dry-run", "--preset", "paper-7b"]
    assert main(command) == 0
    assert "RF-GRPO 256, RF-RF 256, GRPO-RF 32, GRPO-GRPO 32" in capsys.readouterr().err
    assert main([*command, "--set", "learning.batch_size=32"]) == 0
    said = "learning.batch_size = 32 counts only in RF-GRPO, RF-RF: the other arms have a value"
    assert capsys.readouterr().err == f"ssp: {said} of their own\n"

    batches = "arms: {a: {}}\ngrid: {learning.batch_size: [16, 32]}\n"
    assert unequal_answers(plan(tmp_path, batches)) is None, "it is what is compared"


def test_arms_and_grid_are_combined(tmp_path: Path) -> None:
    source = write(
        tmp_path,
        "seeds: [3, 4]\n"
        "set: {steps: 7, game: {noise_documents: 1}}\n"
        "arms: {plain: {}, fine: {game.invalid_reward: -0.1}}\n"
        "grid: {learning.lr: [1e-4, 0.001], game.noise_documents: [0, 2]}\n",
    )
    sweep = read_sweep(source)
    planned = trials(sweep, source)
    assert list(sweep.all_arms())[:2] == [
        "plain, lr=1e-4, noise_documents=0",
        "plain, lr=1e-4, noise_documents=2",
    ]
    assert [trial.seed for trial in planned] == [3] * 8 + [4] * 8, "seed by seed"
    last = planned[-1]
    assert str(last) == "fine, lr=0.001, noise_documents=2, seed 4"
    config = last.config
    found = (config.steps, config.learning.lr, config.game.noise_documents)
    assert found == (7, 0.001, 2), "an arm's own setting counts, not that of all runs"
    assert config.game.invalid_reward == -0.1
    assert config.game.max_searches == 4, "the rest is the preset's"

    few = choose(sweep, ["plain, lr=1e-4, noise_documents=0", str(last).rpartition(", seed")[0]])
    assert [trial.config for trial in trials(few)] == [planned[i].config for i in (0, 7, 8, 15)]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("arms:\n  a: {}\n  b: {game.noise_document: 3}\n", 3, "'noise_documents'"),
        ("seed: [0]\narms: {a: {}}\n", 1, "did you mean 'seeds'?"),
        ("arms: {a: {}}\nseeds: [0, 0]\n", 2, "each once"),
        ("arms: {a: {}}\nset:\n  learning.lr: -1\n", 3, "must be at least 0"),
        ("arms:\n  a:\n    learning:\n      lr: -1\n", 4, "must be at least 0"),
        ("arms: {a: {}}\ngrid:\n  game.noise_kind: [batch, nea]\n", 3, "did you mean 'near'?"),
        ("arms: {a: {}}\npreset: tine\n", 2, "did you mean 'tiny'?"),
        ("arms:\n  a: {}\n  c: {seed: 3}\n", 3, "give seeds"),
        ("arms:\n  a: {steps: 3}\n  a: {}\n", 3, "is there already, in line 2"),
        ("arms:\n  a: {}\n  0: {steps: 3}\n", 3, "put it in quotes"),
        ("arms: {a: {}, b: {steps: 3}}\nbaseline: c\n", 2, "known: a, b"),
        ("arms:\n  a: {}\n  b: {game.noise_documents: 4}\n", 3, "the same runs as 'a'"),
        ("arms:\n  a: {}\n  b: {record_tokens: false}\n", 3, "the same runs as 'a'"),
        ("arms: {a: {}}\npaper: {source: x, columns: [y], rows:\n  {a: [1, 2]}}\n", 3, "1 figures"),
        ("preset: tiny\n", None, "name arms with their settings, or give a grid"),
        ("arms: {a: {}}\nfigures: [games, valid_rat]\n", 2, "did you mean 'valid_rate'"),
        ("arms: {a: {}}\nfigures: [seconds.steps]\n", 2, "did you mean 'seconds.step'"),
        ("arms: {a: [1}\n", 1, "is not YAML"),
    ],
)
def test_mistakes_are_told_with_their_line(
    text: str, line: int | None, says: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as caught:
        plan(tmp_path, text)
    assert caught.value.line == line
    assert says in str(caught.value)


def test_figures_may_be_those_that_only_some_runs_have(tmp_path: Path) -> None:
    names = ["invalid_too_easy", "learner_loss_of_mine", "staleness", "seconds.wall", "share_4hop"]
    sweep = read_sweep(write(tmp_path, f"arms: {{a: {{}}}}\nfigures: {names}\n"))
    assert list(sweep.figures) == names


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "set: {world_options.one_to_many: false}\narms:\n  a: {}\n"
            "  b: {game.noise_documents: 9}\n",
            "game.noise_documents = 9 has no effect: every fact of this world has one value",
        ),
        (
            "arms:\n  a: {}\n\n  b: {learning.reset_every: 3}\n",
            "learning.reset_every has no effect: learning.strategy is reuse",
        ),
        (
            "set: {learning.strategy: dummy}\narms:\n  a: {}\n  b: {learning.examples: true}\n",
            "learning.examples has no effect: learning.strategy is dummy",
        ),
    ],
)
def test_an_arm_without_effect_is_refused(text: str, says: str, tmp_path: Path) -> None:
    source = write(tmp_path, text)
    with pytest.raises(
        DataError, match=r"mine\.yaml:4: .*the arm 'b' cannot differ by it"
    ) as caught:
        check_trials(trials(read_sweep(source), source), source)
    assert says in str(caught.value)


def test_the_comparison_needs_its_baseline() -> None:
    sweep = read_sweep(Source(find("batch")))
    with pytest.raises(ConfigError, match="compared with 'periodic reset': add it"):
        choose(sweep, ["dummy"])
    with pytest.raises(ConfigError, match="did you mean 'dummy'"):
        choose(sweep, ["dumy"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nose"], "sweep = 'nose': did you mean 'noise'?"),
        (["gone/mine.yaml"], "there is no such file"),
        ([], "name a sweep (algorithms, batch"),
        (["batch", "--set", "game.nois=3"], "game.nois = 3: did you mean 'noise_kind'?"),
        (["batch", "--parallel", "0"], "--parallel = 0: must be at least 1"),
        (["batch", "--resume"], "holds no sweep to resume"),
        (["batch", "--out", "taken"], "taken is not empty; choose another --out"),
    ],
)
def test_nothing_is_written_for_a_mistake(
    words: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    assert main(["sweep", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "taken"]


def test_a_dry_run_says_what_would_be_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "penalty", "--dry-run", "--seeds", "7", "8", "--steps", "9"]) == 0
    shown = capsys.readouterr().out
    assert "4 trials: 2 arms, 2 seeds, 9 steps each" in shown
    assert "game.invalid_reward=-0.1" in shown
    few = ["--arms", "no verification", "4 documents", "--seeds", "0"]
    assert main(["sweep", "noise", "--dry-run", *few, "--set", "game.noise_documents=5"]) == 0
    shown, said = capsys.readouterr()
    assert "2 trials: 2 arms, 1 seed, 160 steps each" in shown
    where = "counts only in no verification: the other arms have a value of their own"
    assert said == f"ssp: game.noise_documents = 5 {where}\n"
    assert main(["sweep", "laws", "--dry-run"]) == 0
    missing = "width 64 cannot be played yet: there is no model directory runs/bases/64"
    assert missing in capsys.readouterr().err
    assert main(["sweep", "--list"]) == 0
    assert [*tmp_path.iterdir()] == []
