"""The cards of a model and a data set; a run's row of the leaderboard, which plays it again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_runs import make_run

from ssp_env.cli import main
from ssp_env.game.filters import FILTERS
from ssp_env.replay import read_games
from ssp_experiments.commands.cards import command_of, data_card, model_card
from ssp_experiments.config import load_preset, make_config
from ssp_experiments.run.rundir import RunDirectory

SUMMARY = {
    "world": "mini",
    "seed": 3,
    "git_commit": "0123456789abcdef",
    "accuracy": {"base": {"1": 0.5, "2": 0.1}, "final": {"1": 0.9, "2": 0.6}},
    "machine": "a machine",
    "fingerprint": {"judge": "ExactMatchJudge", "hash": "016a2cbd257c", "corpus": {"digest": "d1"}},
}
ENTRY = {"accepted": True, "solve_rate": 0.5, "truly_correct": True, "right_answers": ["a"]}


def run_of(folder: Path, **changes: Any) -> RunDirectory:
    """A finished run of one step."""
    run = make_run(folder, steps=1)
    run.write_config(make_config(load_preset("tiny"), {"learning.lr": 1e-4, **changes}))
    run.write_summary(SUMMARY)
    return run


def head_of(card: str) -> dict[str, Any]:
    return dict(yaml.safe_load(card.split("---\n")[1]))


def test_a_model_card_has_figures_settings_fingerprint_and_licence(tmp_path: Path) -> None:
    card = model_card(run := run_of(tmp_path / "mine"), 1, "bfloat16")
    assert head_of(card)["license"] == "apache-2.0"
    assert "# mine, step 1" in card
    assert "bfloat16" in card
    assert "| 1 hop | 0.200 [0.10, 0.30] | 0.100 [0.00, 0.20] |" in card
    assert "| fingerprint: hash | `016a2cbd257c` |" in card
    assert "| git_commit | `0123456789abcdef` |" in card
    assert "learning.lr: 0.0001" in card

    # A checkpoint that was not evaluated borrows no figure.
    assert "| questions | before training |\n" in model_card(run, 5, "float32")


@pytest.mark.parametrize(
    ("changes", "model", "data"),
    [
        ({"world": "wiki-sentences"}, "cc-by-sa-4.0", "cc-by-sa-4.0"),
        ({"world": "mini", "model": "/home/me/qwen"}, "other", "apache-2.0"),
        ({"world": "files"}, "other", "other"),
    ],
    ids=["Wikipedia", "a user's model", "a user's corpus"],
)
def test_no_licence_is_claimed_that_is_not_known(
    tmp_path: Path, changes: dict[str, Any], model: str, data: str
) -> None:
    run = run_of(tmp_path / "run", **changes)
    cards = model_card(run, 10, "float32"), data_card(run, [ENTRY])
    assert [head_of(card)["license"] for card in cards] == [model, data]
    for licence, card in zip((model, data), cards, strict=True):
        assert ("fill it in" in card) == (licence == "other")
    assert "/home/me" not in "".join(cards)


def test_a_data_card_counts_what_the_world_knows(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", **{"search.source": "http://inside:8000"})
    wrong = {**ENTRY, "truly_correct": False, "right_answers": [], "solve_rate": 0.0}
    card = data_card(run, [ENTRY, wrong])
    assert "| their mean solve rate | 0.250 |" in card
    assert "| 1 of 2 |" in card
    assert "http://inside" not in card
    assert head_of(card)["configs"][0]["data_files"] == "questions.jsonl"


# -- the leaderboard ---------------------------------------------------------------------------


def test_a_finished_run_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = make_run(tmp_path / "run", finished=False)
    page = tmp_path / "board.md"
    words = ["submit", str(directory.path), "--name", "mine", "-o", str(page)]
    assert main(words) == 2
    assert "finish it with --resume" in capsys.readouterr().err
    directory.write_summary({**SUMMARY, "git_commit": "0123+changes"})
    assert main(words) == 2
    assert "commit them and play it again" in capsys.readouterr().err

    directory.write_summary(SUMMARY)
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
    changes |= {"learning.importance_cap": None, "game.filters": [*FILTERS]}
    config = make_config(load_preset(preset), changes)
    line = command_of(config)
    assert "\n" not in line
    _, _, _, named, *words = shlex.split(line)
    given = dict(word.split("=", 1) for word in words if word != "--set")
    read = {name: yaml.safe_load(value) for name, value in given.items()}
    assert make_config(load_preset(named), read) == config
