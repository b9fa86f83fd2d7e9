"""Two processes that share a policy make the same updates as one that holds all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from learning import distance, share_apart, some_rows
from two_ranks import LEARNING, columns, scorer

from ssp_agents.models import load_model
from ssp_agents.rows import Row
from ssp_agents.sharding import load_shares
from ssp_agents.update import Update, adam
from ssp_env.errors import RunError

pytestmark = pytest.mark.slow

Run = dict[str, Any]


def batches(model_dir: Path) -> list[list[Row]]:
    """The rows of two updates; solver's and proposer's, of unequal lengths."""
    return [some_rows(model_dir, 6, noise=0.3, seed=seed) for seed in (1, 2)]


def one_process(
    model_dir: Path, checkpoint: Path | None = None, dtype: torch.dtype | None = None
) -> Run:
    """Both updates over all rows, or the second one from a checkpoint on."""
    policy, reference = scorer(model_dir), scorer(model_dir).requires_grad_(False)
    optimizer = adam(policy.parameters(), LEARNING)
    update = Update(policy, optimizer, LEARNING, reference=reference, autocast=dtype)
    parts = list(enumerate(batches(model_dir)))
    if checkpoint:
        torch.nn.init.zeros_(policy.lm.get_output_embeddings().weight)
        load_shares(policy, optimizer, checkpoint)
        parts = parts[1:]

    norms = [update(columns(rows), step)["grad_norm"] for step, rows in parts]
    return {"weights": policy.state_dict(), "norms": norms}


@pytest.fixture(scope="module")
def folder(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left."""
    out = tmp_path_factory.mktemp("ranks")
    torch.save(batches(model_dir), out / "rows.pt")
    script = Path(__file__).with_name("two_ranks.py")
    paths = os.pathsep.join([str(script.parent), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    environment["GLOO_SOCKET_IFNAME"] = "lo"
    command = [sys.executable, str(script), str(model_dir), str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return out


@pytest.fixture(scope="module")
def alone(model_dir: Path) -> Run:
    return one_process(model_dir)


@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_two_processes_make_the_updates_of_one(name: str, folder: Path, alone: Run) -> None:
    both = torch.load(folder / f"{name}-None.pt")
    assert both["norms"] == pytest.approx(alone["norms"], rel=1e-5)
    # Adam's steps are as large for tiny gradients as for others, so rounding moves some weights.
    assert share_apart(both["weights"], alone["weights"]) < 1e-3
    assert distance(both["weights"], alone["weights"]) <= 2 * 2 * LEARNING.lr


@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_two_processes_make_the_updates_of_one_in_bfloat16(
    name: str, folder: Path, alone: Run, model_dir: Path
) -> None:
    """Rounding depends on the shapes of passes, and Adam makes as much of it as of a gradient."""
    start = load_model(model_dir).state_dict()
    half, both = (
        one_process(model_dir, dtype=torch.bfloat16),
        torch.load(folder / f"{name}-torch.bfloat16.pt"),
    )
    # One process in bfloat16 is up to 2% from itself in float32.
    assert both["norms"] == pytest.approx(half["norms"], rel=0.03)
    assert both["norms"] != pytest.approx(alone["norms"], rel=1e-5), "these are in float32"

    def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
        names = [name.removeprefix("lm.") for name in one]
        found = [one[n] - other[m] for n, m in zip(one, names, strict=True)]
        return float(torch.cat([x.abs().flatten() for x in found]).mean())

    moved = apart(half["weights"], start)
    named = {name.removeprefix("lm."): tensor for name, tensor in half["weights"].items()}
    assert 0 < apart(both["weights"], named) < 0.1 * moved


def test_one_process_goes_on_from_what_two_have_saved(
    folder: Path, alone: Run, model_dir: Path, tmp_path: Path
) -> None:
    checkpoint = folder / "checkpoint"
    assert {file.suffix for file in checkpoint.iterdir()} == {".safetensors"}
    resumed = one_process(model_dir, checkpoint)
    both = torch.load(folder / "fsdp2-None.pt")
    assert resumed["norms"] == pytest.approx(both["norms"][1:], rel=1e-5)
    assert share_apart(resumed["weights"], both["weights"]) < 1e-3

    policy = scorer(model_dir)
    with pytest.raises(RunError, match="no shares"):
        load_shares(policy, adam(policy.parameters(), LEARNING), tmp_path)


def test_only_the_first_process_ever_holds_the_whole_policy(folder: Path, model_dir: Path) -> None:
    whole = sum(weight.nbytes for weight in load_model(model_dir).parameters())
    first, second = (torch.load(folder / f"bytes{rank}.pt") for rank in range(2))
    assert first[0] == whole
    assert second[0] == 0, "loaded without numbers"
    assert max(second) < whole
    assert first[-1] + second[-1] == whole
    for rank in range(2):
        assert torch.load(folder / f"distances{rank}.pt") == {"tied": 0.0, "adapted": 0.0}
