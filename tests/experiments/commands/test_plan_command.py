"""``ssp plan``: the table, JSON, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen2Config

from experiments.commands import PLAN
from ssp_env.commands import cli


class Point:
    """The command's entry point, installed or not."""

    name = "plan"

    def load(self) -> Any:
        return PLAN


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "entry_points", lambda group: [Point()])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A config alone: no weights, no tokenizer."""
    Qwen2Config(
        hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=1000,
    ).save_pretrained(tmp_path)  # fmt: skip
    return tmp_path


def test_a_plan_of_a_preset(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["plan", "--preset", "paper-7b", "--model", str(directory)]
    assert cli.main(given) == 0
    shown = capsys.readouterr().out
    assert "learner: 8 GPUs, each" in shown
    assert "KV cache" in shown

    assert cli.main([*given, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    learner, engine = plan["devices"]
    assert learner["all"] == sum(learner["holds"].values())
    assert learner["holds"]["reference"] == learner["holds"]["weights"]
    assert (engine["name"], engine["count"]) == ("engine", 8)
    assert plan["longest_row"] == 4096 + 8192

    assert cli.main([*given, "--gpus", "8"]) == 2
    assert "set compute.env_runners=4, compute.learners=4" in capsys.readouterr().err
    assert cli.main([*given, "--memory", "0.1"]) == 2
    assert "of the 102.4 MiB of its GPU" in capsys.readouterr().err
