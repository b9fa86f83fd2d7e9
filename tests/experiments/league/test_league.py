"""A league: who plays, that all play the same games, ratings, and what is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from runs import SETTINGS

from experiments.config import load_preset, make_config
from experiments.league.games import Games, Player, Proposal, find_players
from experiments.league.results import League, rate, ratings
from experiments.run.rundir import RunDirectory
from ssp_env.cli import main
from ssp_env.errors import ConfigError, RunError
from ssp_env.types import Question


def run_directory(folder: Path, *steps: int, model: str = "") -> RunDirectory:
    """A run with checkpoints; nobody loads them."""
    run = RunDirectory(folder)
    folder.mkdir()
    run.write_config(make_config({**load_preset("tiny"), "model": model}))
    run.append_metrics({"step": 0})
    for step in steps:
        run.save_checkpoint(step, lambda made: (made / "policy").mkdir())
    return run


def names(players: list[Player]) -> list[str]:
    return [player.name for player in players]


def test_a_run_stands_for_its_base_and_all_its_checkpoints(tmp_path: Path, policy: Path) -> None:
    one = str(run_directory(tmp_path / "one", 20, 100).path)
    found = find_players([one])
    assert names(found) == ["base", "step 20", "step 100"]
    assert [player.step for player in found] == [0, 20, 100]
    assert found[1].model == f"{one}/checkpoints/step_000020/policy"

    other = str(run_directory(tmp_path / "other", 20).path)
    assert names(find_players([one, other])) == [
        *("base", "one step 20", "one step 100", "other step 20"),
    ], "both began with the same policy"
    third = str(run_directory(tmp_path / "third", 5, model="elsewhere").path)
    assert names(find_players([one, third]))[-2:] == ["third base", "third step 5"]
    assert names(find_players([f"mine={policy}", one]))[:2] == ["mine", "base"]
    assert names(find_players([one, str(policy), f"{policy}"])) == [*names(found), policy.name]


def test_players_that_cannot_play_are_refused(tmp_path: Path, policy: Path) -> None:
    empty = run_directory(tmp_path / "empty")
    with pytest.raises(RunError, match="empty has no checkpoint"):
        find_players([str(empty.path)])
    with pytest.raises(ConfigError, match=r"config\.json is missing"):
        find_players(["nowhere"])
    with pytest.raises(ConfigError, match="two players have this name"):
        find_players([f"a={policy}", f"a={_copy(policy, tmp_path)}"])
    with pytest.raises(ConfigError, match="or two policies"):
        find_players([str(policy)])


def _copy(policy: Path, folder: Path) -> Path:
    made = folder / "copy"
    made.mkdir()
    (made / "config.json").write_text((policy / "config.json").read_text())
    return made


# -- ratings -----------------------------------------------------------------------------------


def test_ratings_are_those_that_made_the_games() -> None:
    proposers, solvers = np.array([800.0, 1100.0]), np.array([900.0, 1000.0, 1100.0])
    won = 1.0 / (1.0 + 10 ** ((solvers[None] - proposers[:, None]) / 400))
    assert np.allclose(rate(won, 10**7), [*proposers, *solvers], atol=0.01)

    # Who never wins still has a rating, and one that many games have shown has a lower one.
    low, lower = (rate(np.array([[0.0, 0.0], [0.5, 0.5]]), games)[0] for games in (10, 1000))
    assert -np.inf < lower < low < 1000


def test_intervals_narrow_with_answers() -> None:
    rng = np.random.default_rng(0)
    chance = np.array([[0.2, 0.8], [0.1, 0.5]])
    widths = []
    for answers in (20, 320):
        solved = (rng.random((2, 2, answers)) < chance[:, :, None]).astype(float)
        proposers, solvers = ratings(solved, 1, seed=0)
        assert all(one.low < one.mean < one.high for one in [*proposers, *solvers])
        widths.append(solvers[1].high - solvers[1].low)
    assert widths[1] < 0.5 * widths[0]
    assert solvers[1].low > solvers[0].high, "the second one solves more"
    assert proposers[1].mean > proposers[0].mean, "whose questions are solved less"


def test_figures_of_a_league() -> None:
    solved = np.array([[[np.nan, 0.5], [np.nan, 1.0]], [[np.nan, np.nan]] * 2])
    asked = Question("1", "who?", ("x",), "league")
    proposals = [
        [Proposal(None, "unverified"), Proposal(asked, hops=2)],
        [Proposal(None, "format")] * 2,
    ]
    games = Games(proposals, solved, np.where(np.isnan(solved), 0.0, 1.0 - solved))
    league = League.of([Player("a", "x"), Player("b", "y", 5)], games, 4, seed=0)
    assert league.solve_rate.loc["a"].tolist() == [0.5, 1.0]
    assert league.paid.to_numpy().tolist() == [[0.25, 0.0], [0.0, 0.0]]
    rates = league.tables()[1].cells
    assert [*rates.itertuples(name=None)] == [("a", "0.500", "1.000"), ("b", "-", "-")]
    data = league.as_data()
    assert data["solve_rate"] == [[0.5, 1.0], [None, None]]
    assert data["players"][1]["invalid"] == {"format": 2}
    assert [player["valid_share"] for player in data["players"]] == [0.5, 0.0]
    assert league.proposers[0].mean > league.proposers[1].mean, "who has asked nothing"


# -- the command -------------------------------------------------------------------------------


def test_a_league_of_two_policies(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*words: str) -> int:
        settings = [word for setting in SETTINGS for word in ("--set", setting)]
        named = [f"{name}={path}" for name, path in players]
        return main(["league", *named, "--answers", "6", *settings, *words])

    players = [("playful", policy), ("again", _twin(policy, tmp_path))]
    out = tmp_path / "league"
    assert command("--model", str(policy), "--out", str(out)) == 0
    assert "Elo as solver" in capsys.readouterr().out
    data = json.loads((out / "league.json").read_text())
    assert data["answers"] == 6
    one, other = data["players"]
    assert one["valid_share"] > 0
    assert {**one, "name": ""} == {**other, "name": ""}, (
        "one policy under two names plays the same games"
    )
    (a, b), (c, d) = data["solved_by_answer"]
    assert a == b == c == d
    assert "Share solved of valid questions" in (out / "league.md").read_text()
    assert (out / "figure.png").stat().st_size > 10_000

    assert command("--model", str(policy), "--out", str(out)) == 2
    assert "is not empty" in capsys.readouterr().err
    players[1] = ("other", _with_another_word(policy, tmp_path))
    assert command("--model", str(policy), "--out", str(tmp_path / "other")) == 2
    assert "all players need one tokenizer" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def _with_another_word(policy: Path, folder: Path) -> Path:
    other = shutil.copytree(policy, folder / "words")
    held = json.loads((other / "tokenizer.json").read_text())
    words = held["model"]["vocab"]
    words["unheard-of"] = words.pop(list(words)[-1])
    (other / "tokenizer.json").write_text(json.dumps(held))
    return other


def _twin(policy: Path, folder: Path) -> Path:
    twin = folder / "twin"
    twin.symlink_to(policy)
    return twin
