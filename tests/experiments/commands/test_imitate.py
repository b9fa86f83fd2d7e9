"""``ssp imitate``: supervised steps that make a model play, and leave a policy to go on with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from runs import sets
from safetensors.torch import load_file

from ssp_env.cli import main

SMALL = sets("learning.batch_size=16", "game.max_response_tokens=128", "per_group=3")


def imitate(policy: Path, out: Path, *more: str) -> Path:
    """Runs the command; returns the policy that it left."""
    words = ["imitate", "--model", str(policy), "--out", str(out), "--measured", "2", *SMALL]
    assert main([*words, *more]) == 0
    (taught,) = out.glob("checkpoints/step_*/policy")
    return taught


def test_a_script_is_learnt_from(
    untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taught = imitate(untrained, tmp_path / "run", "--steps", "12", "--lr", "4e-3")
    shown = capsys.readouterr()
    before, after = shown.out.splitlines()
    assert re.fullmatch(r"before: \d+ of 2 proposals and \d+ of 2 attempts in the format", before)
    assert after.startswith("after: ")
    assert f"ssp train --model {taught}" in shown.err

    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["imitation_loss"] for line in lines]
    assert len(losses) == 12
    assert losses[-1] < 0.8 * losses[0]
    kept, own = (load_file(path / "model.safetensors") for path in (untrained, taught))
    assert kept.keys() == own.keys()
    assert not all(torch.equal(kept[name], own[name]) for name in kept)


def test_adapters_learn_from_recorded_games_of_the_same_tokens(
    untrained: Path, stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    games = str(tmp_path / "games.jsonl")
    assert main(["eval", "--per-group", "2", "--out", games]) == 0
    capsys.readouterr()
    wiki = ["--world", "wiki-mini", *sets("game.prompts=compact", "game.max_prompt_tokens=999")]
    other = ["imitate", "--model", str(stranger), "--out", str(tmp_path / "no"), "--games", games]
    assert main([*other, *wiki, "--measured", "1"]) == 2
    assert "the game was played with another one" in capsys.readouterr().err

    adapted = ["--games", games, "--steps", "1", *sets("learning.lora_rank=2")]
    taught = imitate(untrained, tmp_path / "run", *adapted)
    names = [load_file(p / "model.safetensors").keys() for p in (untrained, taught)]
    assert names[0] == names[1], "merged"
