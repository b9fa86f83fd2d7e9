"""``ssp bootstrap`` and ``ssp export``: model directories, in full or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ssp_agents.models import adapt, load_model, save_policy, tiny_directory
from ssp_agents.sharding import save_shares
from ssp_env.cli import main
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_experiments.run.checks import check_model

IDS = torch.arange(3, 40)[None]


def bootstrap(out: Path, *more: str) -> None:
    assert main(["bootstrap", "--steps", "2", "--out", str(out), *more]) == 0


def test_bootstrap_makes_a_model_directory(tmp_path: Path) -> None:
    out = tmp_path / "models" / "base"
    bootstrap(out)
    check_model(out)
    load_model(out)
    assert HuggingFaceTokenizer.load(out).encode("<search>")
    origin = json.loads((out / "origin.json").read_text())
    assert (
        origin["command"] == "ssp bootstrap --world mini --seed 0 --steps 2 --width 128 --out DIR"
    )
    assert origin["sha256"] == hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
    assert [child.name for child in out.parent.iterdir()] == ["base"]


def test_interrupted_bootstrap_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminated(*_: object) -> None:
        assert (tmp_path / "models" / ".base.unfinished").exists()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("ssp_agents.tiny.bootstrap.bootstrap", terminated)
    assert main(["bootstrap", "--out", str(tmp_path / "models" / "base")]) == 130
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "stopped; nothing is kept",
        "ssp: interrupted",
    ]
    assert not list(tmp_path.iterdir())


class Module(torch.nn.Module):
    """Names its weights as RLlib's module does."""

    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.lm = lm


def trained(rank: int = 0) -> Any:
    """A model that differs from the one that ships."""
    lm = load_model(tiny_directory())
    if rank:
        adapt(lm, rank, seed=0)
    with torch.no_grad():
        for parameter in lm.parameters():
            if parameter.requires_grad:
                parameter.add_(0.01 * torch.ones_like(parameter))
    return lm


def saved(lm: Any, folder: Path) -> Path:
    """A checkpoint as learners write it."""
    module = Module(lm)
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad])
    save_shares(module, optimizer, folder / "algorithm" / "learner")
    return folder


def logits(directory: Path) -> torch.Tensor:
    """As somebody else's code loads it."""
    AutoTokenizer.from_pretrained(directory)
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(directory).eval()(IDS).logits


def test_a_policy_is_exported_from_what_learners_wrote(tmp_path: Path) -> None:
    lm = trained(rank=2)
    checkpoint = saved(lm, tmp_path / "checkpoint")
    out = tmp_path / "out"
    model = ["--model", str(tiny_directory())]
    assert main(["export", str(checkpoint), "-o", str(out), *model]) == 0
    with torch.no_grad():
        torch.testing.assert_close(logits(out), lm(IDS).logits, atol=1e-4, rtol=1e-4)
    assert not any("lora" in file.read_text() for file in out.glob("*.json"))


def test_the_newest_checkpoint_of_a_run_is_exported_and_rounded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lm = trained()
    for step, weights in ((2, load_model(tiny_directory())), (10, lm)):
        policy = tmp_path / "run" / "checkpoints" / f"step_{step:06d}" / "policy"
        save_policy(dict(weights.state_dict()), tiny_directory(), policy)

    out = ["-o", str(tmp_path / "out"), "--dtype", "bfloat16"]
    assert main(["export", str(tmp_path / "run"), *out]) == 0
    held = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert {tensor.dtype for tensor in held.values()} == {torch.bfloat16}
    assert all(torch.equal(held[n], w.bfloat16()) for n, w in lm.state_dict().items())

    assert main(["export", str(tmp_path / "run"), *out]) == 2
    assert "is not empty" in capsys.readouterr().err
