"""The cards that ``ssp export`` writes beside a model and a data set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ssp_experiments.commands.cards import data_card, model_card
from ssp_experiments.config import load_preset, make_config
from ssp_experiments.run.rundir import RunDirectory

SUMMARY = {
    "seed": 3,
    "git_commit": "abc",
    "machine": "a machine",
    "fingerprint": {"judge": "ExactMatchJudge", "hash": "016a2cbd257c", "corpus": {"digest": "d1"}},
}
ENTRY = {
    "question": "who ?",
    "accepted": True,
    "solve_rate": 0.5,
    "truly_correct": True,
    "right_answers": ["a"],
}


def run_of(folder: Path, **changes: Any) -> RunDirectory:
    """A run of 10 steps that is over, as far as cards read it."""
    config = make_config(load_preset("tiny"), {"learning.lr": 1e-4, **changes})
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    lines = [
        {"step": 0, "accuracy": {"1": 0.5, "2": 0.25}, "interval": {"1": [0.4, 0.6]}},
        {"step": 10, "accuracy": {"1": 0.75, "2": 0.5}, "interval": {"1": [0.7, 0.8]}},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "summary.json").write_text(json.dumps(SUMMARY))
    return RunDirectory(folder)


def head_of(card: str) -> dict[str, Any]:
    return dict(yaml.safe_load(card.split("---\n")[1]))


def test_a_model_card_has_figures_settings_fingerprint_and_licence(tmp_path: Path) -> None:
    card = model_card(run_of(tmp_path / "mine"), 10, "bfloat16")
    assert head_of(card)["license"] == "apache-2.0"
    assert "# mine, step 10" in card
    assert "bfloat16" in card
    assert "| 1 hop | 0.500 [0.40, 0.60] | 0.750 [0.70, 0.80] |" in card
    assert "| 2 hops | 0.250 | 0.500 |" in card
    assert "| fingerprint: hash | `016a2cbd257c` |" in card
    assert "| git_commit | `abc` |" in card
    assert "learning.lr: 0.0001" in card


def test_a_checkpoint_that_was_not_evaluated_borrows_no_figure(tmp_path: Path) -> None:
    card = model_card(run_of(tmp_path / "mine"), 5, "float32")
    assert "| questions | before training |\n" in card
    assert "0.750" not in card


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
