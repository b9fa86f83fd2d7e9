"""``ssp imitate``: supervised steps that make a model play, and leave a policy to go on with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import metrics, sets
from safetensors.torch import load_file
from tests.ssp_env.worlds.few import few_passages

from ssp_agents.columns import columns_of
from ssp_agents.models import shipped_directory
from ssp_agents.rows import Row
from ssp_env.cli import main
from ssp_env.tokenizers import HuggingFaceTokenizer

few_passages = few_passages

SMALL = sets("learning.batch_size=16", "game.max_response_tokens=128", "per_group=3")
EVERY = sets("checkpoint_every=5")
WIKI = ["--preset", "wiki-small", *sets("game.max_response_tokens=256")]


def imitate(policy: Path, out: Path, *more: str) -> Path:
    """Runs the command; returns the policy that it left."""
    words = ["imitate", "--model", str(policy), "--out", str(out), "--measured", "2", *SMALL]
    assert main([*words, *more]) == 0
    return max(out.glob("checkpoints/step_*/policy"))


def test_a_script_is_learnt_from(
    untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taught = imitate(untrained, tmp_path / "run", "--steps", "12", "--lr", "4e-3", *EVERY)
    shown = capsys.readouterr()
    before, after = shown.out.splitlines()
    assert re.fullmatch(r"before: \d+ of 2 proposals and \d+ of 2 attempts in the format", before)
    assert after.startswith("after: ")
    assert f"ssp train --model {taught}" in shown.err

    losses = [line["imitation_loss"] for line in metrics(tmp_path / "run")]
    assert len(losses) == 12
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert kept == ["step_000010", "step_000012"]
    assert losses[-1] < 0.8 * losses[0]
    base, own = (load_file(path / "model.safetensors") for path in (untrained, taught))
    assert base.keys() == own.keys()
    assert not all(torch.equal(base[name], own[name]) for name in base)


def test_in_wikipedias_sentences_it_learns_from_demonstrations_of_both_roles(
    few_passages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Row] = []

    def columns(rows: Sequence[Row]) -> dict[str, np.ndarray]:
        seen.extend(rows)
        return columns_of(rows)

    monkeypatch.setattr("ssp_experiments.commands.imitate.columns_of", columns)
    taught = imitate(shipped_directory("wiki-sentences"), tmp_path / "run", "--steps", "1", *WIKI)
    assert {row.role for row in seen} == {"proposer", "solver"}
    decode = HuggingFaceTokenizer.load(taught).decode
    own = [decode(row.ids[row.mask == 1].tolist()) for row in seen]
    assert all("<think>" in text for text in own), "what is found is quoted"


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
