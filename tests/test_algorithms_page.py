"""The tables of docs/algorithms.md name settings that there are, with their defaults."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from agents.config import LearningConfig
from agents.health import HealthConfig

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "algorithms.md").read_text(encoding="utf-8")
ELSEWHERE = {
    *("batch_size", "round_size", "minibatches", "learning_roles", "partner"),
    *("lr", "warmup_steps", "decay_steps", "beta2"),
    *("kl_coeff", "temperature", "strategy", "reset_every"),
    *("microbatch_tokens", "gradient_checkpointing", "precision", "lora_rank"),
}
"""Fields of learning that are no matter of the algorithm."""


def test_every_setting_of_the_algorithms_and_of_health_is_listed_with_its_default() -> None:
    listed = {}
    for name, default in re.findall(r"^\| (`[^|]+`) \| (`[^|]+`) \|", PAGE, re.MULTILINE):
        names, values = re.findall(r"`([^`]+)`", name), re.findall(r"`([^`]+)`", default)
        listed |= {n: ast.literal_eval(v) for n, v in zip(names, values, strict=True)}

    learning, health = LearningConfig(), HealthConfig()
    defaults = dict(learning)
    expected = {name: value for name, value in defaults.items() if name not in ELSEWHERE}
    assert listed == expected | dict(health)
