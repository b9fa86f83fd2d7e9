"""A league: who plays, that all play the same games, ratings, and what is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from runs import SETTINGS, sets

from ssp_env.cli import main
from ssp_experiments.commands.league import find_players
from ssp_experiments.config import load_preset, make_config
from ssp_experiments.league import League, rate
from ssp_experiments.run.rundir import RunDirectory


def run_directory(folder: Path, *steps: int, model: str = "") -> str:
    """A run with checkpoints; nobody loads them."""
    run = RunDirectory(folder)
    folder.mkdir()
    run.write_config(make_config({**load_preset("tiny"), "model": model}))
    for step in steps:
        run.save_checkpoint(step, lambda made: (made / "policy").mkdir())
    return str(folder)


def test_a_run_stands_for_its_base_and_all_its_checkpoints(tmp_path: Path, policy: Path) -> None:
    one, other = run_directory(tmp_path / "one", 20, 100), run_directory(tmp_path / "other", 20)
    found = find_players([one, other, f"mine={policy}", str(policy)])
    assert list(found) == ["one base", "one step 20", "one step 100", "other step 20", "mine"]
    assert found["one base"] == "", "both began with the same policy"
    assert found["one step 20"] == f"{one}/checkpoints/step_000020/policy"
    third = run_directory(tmp_path / "third", 5, model="elsewhere")
    assert find_players([third])["third base"] == "elsewhere"

    # Two policies that began apart have no base that one model directory could hold.
    apart = run_directory(tmp_path / "apart", 5, 6)
    config = make_config(load_preset("tiny"), {"learning.policies": "separate"})
    learning = config.learning.replace(proposer_model="other")
    RunDirectory(apart).write_config(config.replace(learning=learning))
    assert list(find_players([apart])) == ["apart step 5", "apart step 6"]


# -- ratings -----------------------------------------------------------------------------------


def test_ratings_are_those_that_made_the_games() -> None:
    proposers, solvers = np.array([800.0, 1100.0]), np.array([900.0, 1000.0, 1100.0])
    won = 1.0 / (1.0 + 10 ** ((solvers[None] - proposers[:, None]) / 400))
    assert np.allclose(rate(won, 10**7), [*proposers, *solvers], atol=0.01)

    # Who never wins still has a rating, and one that many games have shown has a lower one.
    low, lower = (rate(np.array([[0.0, 0.0], [0.5, 0.5]]), games)[0] for games in (10, 1000))
    assert -np.inf < lower < low < 1000


def test_figures_of_a_league() -> None:
    solved = np.array([[[np.nan, 0.5], [np.nan, 1.0]], [[np.nan, np.nan]] * 2])
    hops = np.array([[np.nan, 2.0], [np.nan, np.nan]])
    paid = np.where(np.isnan(solved), 0.0, 1.0 - solved)
    league = League(["a", "b"], hops, solved, paid, attempts=4, seed=0)
    _, paid_means = league.matrices.values()
    assert paid_means.to_numpy().tolist() == [[0.25, 0.0], [0.0, 0.0]]
    ratings, rates, _ = (table.cells for table in league.tables())
    assert [*rates.itertuples(name=None)] == [("a", "0.500", "1.000"), ("b", "-", "-")]
    assert [*ratings["valid questions"]] == ["0.500", "0.000"]
    assert [*ratings["their hops"]] == ["2.00", "-"]
    assert league.as_data()["solved_by_answer"][0] == [[None, 0.5], [None, 1.0]]
    (mean, low, high, _), weak = league.ratings["proposer"].to_numpy()
    assert mean > weak[0], "who has asked nothing"
    assert low < mean < high


# -- the command -------------------------------------------------------------------------------


def test_a_league_of_two_policies(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = tmp_path / "twin"
    twin.symlink_to(policy)
    stranger = shutil.copytree(policy, tmp_path / "stranger")
    tokenizer = json.loads((stranger / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    words["unheard-of"] = words.pop(list(words)[-1])
    (stranger / "tokenizer.json").write_text(json.dumps(tokenizer))

    def command(other: Path, out: Path) -> int:
        named = [f"playful={policy}", f"other={other}", "--model", str(policy), "--out", str(out)]
        settings = sets(*SETTINGS, "engine.dtype=bfloat16")
        return main(["league", *named, "--answers", "4", *settings])

    out = tmp_path / "league"
    assert command(twin, out) == 0
    assert "Elo as solver" in capsys.readouterr().out
    data = json.loads((out / "league.json").read_text())
    one, other = data["players"]
    assert one["valid_share"] > 0
    assert {**one, "name": ""} == {**other, "name": ""}, "one policy plays the same games"
    (a, b), (c, d) = data["solved_by_answer"]
    assert a == b == c == d
    assert len(a) == 4
    assert "Share solved of valid questions" in (out / "league.md").read_text()
    assert (out / "figure.png").stat().st_size > 10_000

    assert command(stranger, tmp_path / "new") == 2
    assert "all players need one tokenizer" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
