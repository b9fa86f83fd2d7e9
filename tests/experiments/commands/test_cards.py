"""The cards of a model and a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from small_runs import make_run

from ssp_experiments.commands.cards import data_card, model_card
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


def test_a_proposers_card_does_not_boast_of_the_solver(tmp_path: Path) -> None:
    changes = {"learning.policies": "separate", "learning.proposer_model": "/home/me/asker"}
    run = run_of(tmp_path / "two", **changes)
    proposer, solver = (model_card(run, 1, "float32", role) for role in ("proposer", "solver"))
    assert "# two, step 1, proposer" in proposer
    assert "from `asker`: it asks search questions, against a solver" in proposer
    assert "Not measured: evaluations of the run asked the solver's policy." in proposer
    assert "| 1 hop |" not in proposer
    assert [head_of(card)["license"] for card in (proposer, solver)] == ["other", "apache-2.0"]
    assert "# two, step 1, solver" in solver
    assert "it answers search questions, against a proposer with a policy of its own" in solver
    assert "| 1 hop | 0.200 [0.10, 0.30] | 0.100 [0.00, 0.20] |" in solver


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
