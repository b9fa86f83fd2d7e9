"""Every example runs: each script in a process of its own, with a budget of a few updates.

That for TRL is run by tests/integrations.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from forked import run_forked

EXAMPLES = Path(__file__).parents[2] / "examples"
LEARNERS = {
    "batch_policy_gradient": ["--batch", "10"],
    "cleanrl_ppo": [],
    "rllib_own_module": [],
    "rllib_ppo": ["--policies", "independent"],
    "sb3_maskable_ppo": [],
    "tianshou_dqn": ["--batch", "200", "--games", "8"],
}
BUDGET = ["--steps", "200", "--batch", "100", "--seed", "3"]


def run(name: str, folder: Path, *arguments: str) -> str:
    """What an example prints."""
    done = run_forked(EXAMPLES / f"{name}.py", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "DEBUG" not in done.stderr
    return done.stdout


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_learners_run_and_write_their_curve(name: str, tmp_path: Path) -> None:
    out = tmp_path / "a" / "new folder" / "curve.jsonl"
    printed = run(name, tmp_path, *BUDGET, *LEARNERS[name], "--out", str(out))
    curve = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(printed.splitlines()) >= len(curve) >= 2
    steps = [point["steps"] for point in curve]
    assert steps == sorted(set(steps))
    assert steps[-1] >= 200
    assert all(0 <= point["return"] <= 1 and point["cpu_seconds"] > 0 for point in curve)


@pytest.mark.parametrize(
    ("name", "arguments", "prints"),
    [
        ("heuristic_player", "--world wiki-mini --games 5", "solved 1.00 of the valid ones"),
        ("self_play", "--steps 1 --questions 1", "accuracy after: "),
    ],
)
def test_the_others_print_how_they_did(
    name: str, arguments: str, prints: str, tmp_path: Path
) -> None:
    assert prints in run(name, tmp_path, *arguments.split())
