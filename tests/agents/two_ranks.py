"""Two processes that learn together, over gloo: ``python two_ranks.py MODEL_DIR FOLDER``.

Leaves the weights after two updates in ``FOLDER/ddp.pt`` and ``FOLDER/fsdp2.pt``, with the norms of
both gradients, and a sharded checkpoint from between the two updates in ``FOLDER/checkpoint``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from learning import some_rows
from torch.nn.parallel import DistributedDataParallel

from agents.config import LearningConfig
from agents.models import load_model
from agents.rows import Row, columns_of
from agents.scoring import TokenScorer, checkpoint_layers
from agents.sharding import MOMENTS, agreed_maximum, save_shares, shard, whole
from agents.update import Update, adam

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


def columns(rows: list[Row]) -> dict[str, torch.Tensor]:
    """Rows as tensors."""
    return {name: torch.as_tensor(column) for name, column in columns_of(rows).items()}


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
            norms.append(update(columns(mine), step)["grad_norm"])
            if name == "fsdp2" and step == 0:
                save_shares(policy, optimizer, folder / "checkpoint", alone=False)

        held = {key: whole(t.detach()).clone() for key, t in policy.state_dict().items()}
        moments = moments_of(policy, optimizer)
        if rank == 0:
            torch.save({"weights": held, "norms": norms, "moments": moments}, folder / f"{name}.pt")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    model, out = Path(sys.argv[1]), Path(sys.argv[2])
    mp.start_processes(main, (model, out, batches(model)), nprocs=2, start_method="fork")
