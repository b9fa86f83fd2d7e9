"""``ssp plan``: the table, JSON, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import Qwen2Config

from ssp_env import cli
from ssp_env.errors import ConfigError
from ssp_experiments import planner
from ssp_experiments.config import load_preset, make_config
from ssp_experiments.planner import check_memory


@pytest.fixture
def qwen_7b(tmp_path: Path) -> Path:
    """Qwen2.5-7B's config alone: no weights, no tokenizer."""
    Qwen2Config(
        hidden_size=3584, intermediate_size=18_944, num_hidden_layers=28, num_attention_heads=28,
        num_key_value_heads=4, vocab_size=152_064, tie_word_embeddings=False,
    ).save_pretrained(tmp_path)  # fmt: skip
    return tmp_path


def test_the_paper_fits_as_it_ships(qwen_7b: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*given: str) -> str:
        assert cli.main(["plan", *given, "--model", str(qwen_7b), "--memory", "80"]) == 0
        return capsys.readouterr().out

    on_16 = shown("--preset", "paper-7b", "--gpus", "16")
    assert "s a step on H100s" in on_16
    assert "faster:" not in on_16, "no layout that is known would be by a tenth"
    on_8 = shown("--preset", "paper-7b", "--gpus", "8")
    assert "learner and engine: 8 GPUs, each" in on_8
    assert "on 8 GPUs, not 16: --set compute.env_runners=8" in on_8
    own = shown("--preset", "paper-7b-8", "--gpus", "8")
    assert own.splitlines() == on_8.splitlines()[:-1], "that preset is what is proposed"

    plan = ["plan", "--model", str(qwen_7b), "--preset", "paper-7b"]
    assert cli.main([*plan, "--set", "compute.env_runners=3", "--set", "compute.gpus=shared"]) == 2
    assert "cannot share GPUs one to one" in capsys.readouterr().err
    assert cli.main([*plan, "--set", "compute.sharding=ddp"]) == 2
    said = capsys.readouterr().err
    assert "each learner needs" in said
    assert "This fits: --set compute.env_runners=" in said


def test_a_plan_as_table_and_as_data(qwen_7b: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["plan", "--preset", "paper-7b", "--model", str(qwen_7b)]
    assert cli.main(given) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{qwen_7b}: 7.62B parameters; a pass takes up to 1 row of")
    assert "learner: 12 GPUs, each" in shown
    assert "KV cache" in shown

    assert cli.main([*given, "--json"]) == 0
    shown_plan = json.loads(capsys.readouterr().out)
    assert shown_plan["model"] == str(qwen_7b)
    learner, engine = shown_plan["devices"]
    assert learner["all"] == sum(learner["holds"].values())
    assert learner["holds"]["reference"] == learner["holds"]["weights"]
    assert (engine["name"], engine["count"]) == ("engine", 4)
    assert shown_plan["longest_row"] == 4096 + 8192

    assert cli.main([*given, "--memory", "0.1"]) == 2
    assert "of the 102.4 MiB of its GPU" in capsys.readouterr().err
    assert cli.main([*given, "--set", "compute.env_runners=9"]) == 2
    assert "of 9 env runners, only 8 would play" in capsys.readouterr().err


def test_a_run_is_planned_for_the_gpus_that_it_will_have(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config({**load_preset("tiny"), "compute": {"gpus": "shared"}})
    asked: list[list[int]] = [[80 << 30] * 2, [80 << 30, 1 << 20], [], []]
    monkeypatch.setattr(planner, "gpu_memories", lambda: asked.pop(0))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert check_memory(config) is not None
    with pytest.raises(ConfigError, match=r"of the 1\.0 MiB of its GPU"):
        check_memory(config)  # the smallest one decides
    with pytest.raises(ConfigError, match="1 GPUs are asked for in all, and there are 0"):
        check_memory(config)

    monkeypatch.setenv("RAY_ADDRESS", "a cluster that is too busy to answer")
    assert check_memory(config) is None
    assert "ssp plan --memory GIB" in caplog.text
    assert check_memory(make_config(load_preset("tiny"))) is None, "no GPU, nobody is asked"
