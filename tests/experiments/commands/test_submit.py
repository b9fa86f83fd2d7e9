"""A run's row of the leaderboard, whose last cell plays the run again."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml
from small_runs import make_run

from ssp_env.cli import main
from ssp_env.replay import read_games
from ssp_experiments.commands.cards import command_of
from ssp_experiments.config import load_preset, make_config

SUMMARY = {
    "world": "mini",
    "seed": 0,
    "git_commit": "0123456789abcdef",
    "accuracy": {"base": {"1": 0.5, "2": 0.1}, "final": {"1": 0.9, "2": 0.6}},
}


def test_a_finished_run_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = make_run(tmp_path / "run")
    directory.write_summary(SUMMARY)
    page = tmp_path / "board.md"
    words = ["submit", str(directory.path), "--name", "mine", "-o", str(page)]
    assert main(words) == main(words) == 0

    head, _, first, second = page.read_text().splitlines()
    assert first == second == capsys.readouterr().out.splitlines()[0]
    names, cells = (line.strip("| ").split(" | ") for line in (head, first))
    row = dict(zip(names, cells, strict=True))
    games = [s.record for file in sorted(directory.games.iterdir()) for s in read_games(file)]
    valid = [g for g in games if g.outcome == "valid" and g.origin == "proposed"]
    known = [g.truly_correct for g in valid if g.truly_correct is not None]
    assert known
    false = known.count(False) / len(known)
    assert (row["recipe"], row["games"], row["mean"]) == ("mine", str(len(games)), "0.750")
    assert row["accuracy by group"] == "1: 0.900, 2: 0.600"
    assert row["false"] == f"{false:.3f}"


@pytest.mark.parametrize("preset", ["tiny", "wiki-small", "paper-7b"])
def test_the_line_has_the_same_settings(preset: str) -> None:
    changes = {"steps": 7, "game.noise_documents": 2, "game.asked_searches": [1, 3], "seed": 3}
    changes |= {"learning.importance_cap": None, "game.filters": ["empty_question"]}
    config = make_config(load_preset(preset), changes)
    _, _, _, named, *words = shlex.split(command_of(config))
    given = dict(word.split("=", 1) for word in words if word != "--set")
    read = {name: yaml.safe_load(value) for name, value in given.items()}
    assert make_config(load_preset(named), read) == config


def test_what_nobody_could_play_again_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = make_run(tmp_path / "run", finished=False)
    words = ["submit", str(directory.path), "--name", "mine"]
    assert main(words) == 2
    assert "finish it with --resume" in capsys.readouterr().err
    directory.write_summary({**SUMMARY, "git_commit": "0123+changes"})
    assert main(words) == 2
    assert "commit them and play it again" in capsys.readouterr().err
