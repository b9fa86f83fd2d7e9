"""Two processes that share a policy make the same updates as one that holds all of it.

This file is also what the two run, over gloo: ``python test_sharding.py MODEL_DIR FOLDER`` leaves
the weights after two updates in ``FOLDER/ddp.pt`` and ``FOLDER/fsdp2.pt``, with the norms of both
gradients, and a sharded checkpoint from between the two updates in ``FOLDER/checkpoint``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from learning import distance, some_rows, tensors
from torch.nn.parallel import DistributedDataParallel

from agents.config import LearningConfig
from agents.models import load_model
from agents.rows import Row
from agents.scoring import TokenScorer, checkpoint_layers
from agents.sharding import MOMENTS, agreed_maximum, load_shares, save_shares, shard, whole
from agents.update import Update, adam
from ssp_env.errors import RunError

Run = dict[str, Any]
LEARNING = LearningConfig(lr=1e-3, warmup_steps=0, kl_coeff=0.1, microbatch_tokens=64)
CPU = torch.device("cpu")


def scorer(model_dir: Path) -> TokenScorer:
    """The policy; the same in every process."""
    lm = load_model(model_dir)
    return TokenScorer(lm, 1.0, lm.config.vocab_size)


def moments_of(
    policy: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, torch.Tensor]:
    """Each of Adam's moments, of all weights in one vector; every process has to ask."""
    held = [optimizer.state[parameter] for parameter in policy.parameters()]
    return {name: torch.cat([whole(state[name]).flatten() for state in held]) for name in MOMENTS}


def batches(model_dir: Path) -> list[list[Row]]:
    """The rows of two updates; solver's and proposer's, of unequal lengths."""
    return [some_rows(model_dir, 6, noise=0.3, seed=seed) for seed in (1, 2)]


def main(rank: int, model_dir: Path, folder: Path, updates: list[list[Row]]) -> None:
    """One of the two processes."""
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=2)
    for name in ("ddp", "fsdp2"):
        policy, reference = scorer(model_dir), scorer(model_dir).requires_grad_(False)
        shared: dict[str, Any] = {}

        if name == "fsdp2":
            if rank:
                # What the second process has loaded does not matter.
                torch.nn.init.zeros_(policy.lm.get_output_embeddings().weight)
            checkpoint_layers(policy)
            shard(policy, CPU)
            shard(reference, CPU)
            trained: torch.nn.Module = policy
            shared["agree"] = lambda passes: agreed_maximum(passes, CPU)
        else:
            trained = DistributedDataParallel(policy)
            shared["no_sync"] = trained.no_sync

        optimizer = adam(policy.parameters(), LEARNING)
        update = Update(trained, optimizer, LEARNING, reference=reference, learners=2, **shared)
        norms = []
        for step, rows in enumerate(updates):
            # Four proposers' and solvers' rows here, two solvers' there: other numbers of passes,
            # and one process whose last passes no reference would read.
            mine = rows[:4] if rank == 0 else rows[4:]
            norms.append(update(tensors(mine), step)["grad_norm"])
            if name == "fsdp2" and step == 0:
                save_shares(policy, optimizer, folder / "checkpoint", alone=False)

        held = {key: whole(t.detach()).clone() for key, t in policy.state_dict().items()}
        moments = moments_of(policy, optimizer)
        if rank == 0:
            torch.save({"weights": held, "norms": norms, "moments": moments}, folder / f"{name}.pt")
        dist.barrier()
    dist.destroy_process_group()


def one_process(model_dir: Path, checkpoint: Path | None = None) -> Run:
    """Both updates over all rows, or the second one from a checkpoint on."""
    policy, reference = scorer(model_dir), scorer(model_dir).requires_grad_(False)
    optimizer = adam(policy.parameters(), LEARNING)
    update = Update(policy, optimizer, LEARNING, reference=reference)
    parts = list(enumerate(batches(model_dir)))
    if checkpoint:
        torch.nn.init.zeros_(policy.lm.get_output_embeddings().weight)
        load_shares(policy, optimizer, checkpoint)
        parts = parts[1:]

    norms = [update(tensors(rows), step)["grad_norm"] for step, rows in parts]
    moments = moments_of(policy, optimizer)
    return {"weights": policy.state_dict(), "norms": norms, "moments": moments}


def share_apart(one: Run, other: Run) -> float:
    """The share of weights that differ by more than rounding."""
    apart = [(one["weights"][key] - weight).abs() for key, weight in other["weights"].items()]
    return float((torch.cat([x.flatten() for x in apart]) > 1e-5).float().mean())


@pytest.fixture(scope="module")
def folder(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left."""
    out = tmp_path_factory.mktemp("ranks")
    script = Path(__file__)
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
    both = torch.load(folder / f"{name}.pt")
    assert both["norms"] == pytest.approx(alone["norms"], rel=1e-5)
    # Adam's steps are as large for tiny gradients as for others, so rounding moves some weights.
    assert share_apart(both, alone) < 1e-3
    assert distance(both["weights"], alone["weights"]) <= 2 * 2 * LEARNING.lr


def test_one_process_goes_on_from_what_two_have_saved(
    folder: Path, alone: Run, model_dir: Path, tmp_path: Path
) -> None:
    checkpoint = folder / "checkpoint"
    assert {file.suffix for file in checkpoint.iterdir()} == {".safetensors"}
    resumed = one_process(model_dir, checkpoint)
    both = torch.load(folder / "fsdp2.pt")
    assert resumed["norms"] == pytest.approx(both["norms"][1:], rel=1e-5)
    assert share_apart(resumed, both) < 1e-3
    for name, moment in both["moments"].items():
        assert float((resumed["moments"][name] - moment).norm() / moment.norm()) < 1e-4

    policy = scorer(model_dir)
    with pytest.raises(RunError, match="no shares"):
        load_shares(policy, adam(policy.parameters(), LEARNING), tmp_path)


if __name__ == "__main__":
    torch.set_num_threads(1)
    model, out = Path(sys.argv[1]), Path(sys.argv[2])
    mp.start_processes(main, (model, out, batches(model)), nprocs=2, start_method="fork")
