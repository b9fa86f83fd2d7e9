"""Every example runs: each script in a process of its own, with a budget of a few updates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LEARNERS = {
    "batch_policy_gradient": ["--batch", "10"],
    "cleanrl_ppo": [],
    "rllib_own_module": [],
    "rllib_ppo": ["--policies", "independent"],
    "sb3_maskable_ppo": [],
    # It tests its players on 50 games before each line.
    "tianshou_dqn": ["--batch", "200"],
}
BUDGET = ["--steps", "200", "--batch", "100", "--seed", "3"]


def run(name: str, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs an example in a process of its own."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    # tianshou would spend 13 seconds on compiling what runs here for less than one.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=580
    )
    assert done.returncode == status, done.stderr[-4000:]
    return done


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_learners_run_and_write_their_curve(name: str, tmp_path: Path) -> None:
    out = tmp_path / "a" / "new folder" / "curve.jsonl"
    printed = run(name, *BUDGET, *LEARNERS[name], "--out", str(out)).stdout
    curve = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(printed.splitlines()) >= len(curve) >= 2
    steps = [point["steps"] for point in curve]
    assert steps == sorted(set(steps))
    assert steps[-1] >= 200
    assert all(0 <= point["return"] <= 1 and point["cpu_seconds"] > 0 for point in curve)


def test_a_curve_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    out = tmp_path / "file" / "curve.jsonl"
    done = run("sb3_maskable_ppo", "--out", str(out), status=2)
    assert f"argument --out: {out} cannot be written" in done.stderr


def test_trl_learns_from_rewards_of_the_game() -> None:
    printed = run("trl_grpo", "--steps", "1", "--warm-up", "2").stdout
    assert "step 1: mean reward " in printed


def test_the_text_agent_of_gem_answers_right() -> None:
    done = run("gem_text_agent", "--steps", "20")
    assert "40 games, 1.00 of them answered right" in done.stdout
    assert "DEBUG" not in done.stderr


def test_the_scripted_players_play_valid_games() -> None:
    printed = run("heuristic_player", "--world", "wiki-mini", "--games", "10").stdout
    assert "outcome: valid" in printed
    assert "solved 1.00 of the valid ones" in printed


def test_the_page_trains_the_tiny_policy() -> None:
    lines = run("self_play", "--steps", "2", "--questions", "5").stdout.splitlines()
    begins = ["accuracy before:", "step 1", "step 2", "accuracy after:"]
    found = [lines[0], *(" ".join(line.split()) for line in lines[1:3]), lines[-1]]
    assert all(line.startswith(begin) for line, begin in zip(found, begins, strict=True))
