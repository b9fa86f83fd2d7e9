"""A run whose rules change as it goes on: its games, their files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import arguments, games

from ssp_env.cli import main
from ssp_env.replay import read_games, replay
from ssp_env.types import Role
from ssp_experiments.config import load_preset, make_config
from ssp_experiments.run.training import idle_steps

SCHEDULES = (
    "--set",
    "learning.schedules.attempts=[[2, 3]]",
    "--set",
    "learning.schedules={noise_documents: [[1, 0], [3, 2]]}",
)
"""A setting of a schedule leaves the others alone."""
BUDGETS = ("--set", "game.attempts=4", "--set", "game.noise_documents=2")


@pytest.mark.usefixtures("cluster")
def test_games_are_played_by_the_rules_of_their_step(policy: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [*arguments(policy, run), *BUDGETS, *SCHEDULES]
    assert main([*words, "--steps", "2", "--set", "checkpoint_every=2"]) == 0
    assert main(["train", "--resume", "--out", str(run), "--steps", "3"]) == 0
    played = {step: [*read_games(run / "games" / f"step_{step:06d}.jsonl")] for step in range(1, 4)}
    for step, (attempts, noise) in {1: (4, 0), 2: (3, 0), 3: (3, 2)}.items():
        configs = {(s.rules.config.attempts, s.rules.config.noise_documents) for s in played[step]}
        assert configs == {(attempts, noise)}
        solved = [s.record for s in played[step] if s.record.solve_rate is not None]
        roles = [[t.role for t in record.trajectories] for record in solved]
        assert {each.count(Role.SOLVER) for each in roles} == {attempts}
        assert not any(replay(saved).differences for saved in played[step][:3])

    whole = tmp_path / "whole"
    assert main([*words[:4], str(whole), *words[5:], "--steps", "3"]) == 0
    assert games(whole) == games(run), "as if it had not been stopped"


def test_what_comes_after_the_last_step_is_told() -> None:
    late = {"learning.schedules": {"attempts": [[1, 3], [81, 4]]}}
    late |= {"game.verifier": "frozen", "learning.verifier_refresh": 80}
    config = make_config(load_preset("tiny"), late)
    points, refresh = idle_steps(config)
    assert points.startswith("learning.schedules.attempts has no effect from step 81 on")
    assert refresh.startswith("learning.verifier_refresh = 80 has no effect: the last step is 80")
    assert not [*idle_steps(config.replace(steps=81))]


@pytest.mark.parametrize(
    ("schedules", "says"),
    [
        (
            "{attempts: [[3, 1]]}",
            "learning.schedules.attempts = 1: from step 3 on: grpo compares attempts",
        ),
        (
            "{max_prompt_tokens: [[2, 3]]}",
            "learning.schedules.max_prompt_tokens = 3: from step 2 on: the ",
        ),
        ("{attemps: [[1, 2]]}", "learning.schedules.attemps"),
    ],
)
def test_a_schedule_is_refused_before_any_work(
    policy: Path, tmp_path: Path, schedules: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main([*arguments(policy, run), "--set", f"learning.schedules={schedules}"]) == 2
    assert says in capsys.readouterr().err
    assert not run.exists()
