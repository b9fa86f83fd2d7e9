"""Two processes that learn together, over gloo: ``python two_ranks.py MODEL_DIR FOLDER``.

Learns from the rows of ``FOLDER/rows.pt``. Leaves weights and norms of the gradients of two updates
in ``FOLDER/ddp-None.pt`` and ``FOLDER/fsdp2-None.pt``, those of passes in bfloat16 beside them, a
sharded checkpoint from between two updates in ``FOLDER/checkpoint``, and of each process, what it
held while the policy was dealt out in ``FOLDER/bytes0.pt``, and what :func:`distances` found in
``FOLDER/distances0.pt``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM, Qwen2Config

from ssp_agents.batches import columns_of
from ssp_agents.config import LearningConfig
from ssp_agents.models import adapt, load_model
from ssp_agents.rows import Row
from ssp_agents.scoring import TokenScorer, checkpoint_layers
from ssp_agents.sharding import agreed_maximum, full_tensor, load_first, save_shares, shard
from ssp_agents.update import Update, adam

LEARNING = LearningConfig(lr=1e-3, warmup_steps=0, kl_coeff=0.1, microbatch_tokens=64)
CPU = torch.device("cpu")
DTYPES = (None, torch.bfloat16)


def scorer(model_dir: Path, load: Callable[[Path], Any] = load_model) -> TokenScorer:
    """The policy; the same in every process."""
    lm = load(model_dir)
    return TokenScorer(lm, 1.0, lm.config.vocab_size)


def bytes_of(policy: torch.nn.Module) -> int:
    """Bytes of the weights that this process holds."""
    held = [p.to_local() if isinstance(p, DTensor) else p for p in policy.parameters()]
    return sum(tensor.nbytes for tensor in held if not tensor.is_meta)


def columns(rows: list[Row]) -> dict[str, torch.Tensor]:
    """Rows as tensors."""
    return {name: torch.as_tensor(column) for name, column in columns_of(rows).items()}


def distances(folder: Path) -> dict[str, float]:
    """Distances of what each process has of a policy with tied weights, and of one with adapters,
    from what was saved; every process has to ask."""
    found = {}
    for name, rank in (("tied", 0), ("adapted", 4)):
        policy, saved = load_first(folder), load_model(folder)
        for lm in (policy, saved) if rank else ():
            adapt(lm, rank, seed=1)
        shard(policy, CPU)
        weights = dict(saved.named_parameters())
        apart = [full_tensor(p.detach()) - weights[name] for name, p in policy.named_parameters()]
        apart += [b - dict(saved.named_buffers())[name] for name, b in policy.named_buffers()]
        assert len(apart) == len([*saved.parameters(), *saved.buffers()]), "tied ones once"
        found[name] = max(float(x.abs().max()) for x in apart)
    return found


def main(rank: int, model_dir: Path, folder: Path, updates: list[list[Row]]) -> None:
    """One of the two processes."""
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=2)
    for kind, dtype in product(("ddp", "fsdp2"), DTYPES):
        load = load_first if kind == "fsdp2" else load_model
        policy, reference = (scorer(model_dir, load) for _ in range(2))
        reference.requires_grad_(False)
        shared: dict[str, Any] = {}

        if kind == "fsdp2":
            checkpoint_layers(policy)
            held = [bytes_of(policy)]

            def noted(
                *args: Any, policy: Any = policy, held: list[int] = held, **kwargs: Any
            ) -> Any:
                held.append(bytes_of(policy))
                return fully_shard(*args, **kwargs)

            with patch("ssp_agents.sharding.fully_shard", noted):
                shard(policy, CPU, dtype)
            torch.save([*held, bytes_of(policy)], folder / f"bytes{rank}.pt")
            shard(reference, CPU, dtype)
            trained: torch.nn.Module = policy
            shared["max_over_learners"] = lambda passes: agreed_maximum(passes, CPU)
        else:
            trained = DistributedDataParallel(policy)
            shared["no_sync"] = trained.no_sync

        optimizer = adam(policy.parameters(), LEARNING)
        shared |= {"reference": reference, "learners": 2, "autocast": dtype}
        update = Update(trained, optimizer, LEARNING, **shared)
        norms = []
        for step, rows in enumerate(updates):
            # Four proposers' and solvers' rows here, two solvers' there: other numbers of passes,
            # and one process whose last passes no reference would read.
            mine = rows[:4] if rank == 0 else rows[4:]
            norms.append(update(columns(mine), step)["grad_norm"])
            if kind == "fsdp2" and dtype is None and step == 0:
                save_shares(policy, optimizer, folder / "checkpoint")

        weights = {key: full_tensor(t.detach()).clone() for key, t in policy.state_dict().items()}
        if rank == 0:
            torch.save({"weights": weights, "norms": norms}, folder / f"{kind}-{dtype}.pt")
        dist.barrier()
    torch.save(distances(folder / "tied"), folder / f"distances{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    model, out = Path(sys.argv[1]), Path(sys.argv[2])
    tied = Qwen2Config(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=300, tie_word_embeddings=True,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(tied).save_pretrained(out / "tied")
    updates = torch.load(out / "rows.pt", weights_only=False)
    mp.start_processes(main, (model, out, updates), nprocs=2, start_method="fork")
