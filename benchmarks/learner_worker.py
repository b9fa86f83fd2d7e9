"""One side of ``learner_speed``: ``python learner_worker.py WAY ROWS MODEL``, a turn per line read.

``learner`` is RLlib's learner of whichever checkout is on the path, so it asks of that one no more
than an early one has; ``update`` and ``bare`` are of today. A turn is ten updates. Prints the
CPU-seconds of each turn, and the losses of its updates.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any

import torch

UPDATES = 10
"""Updates of a turn: the gradient norms of both roles, measured every tenth, are in it once."""

LEARNING = {"batch_size": 32, "minibatches": 1, "lr": 3e-4, "warmup_steps": 1, "beta2": 0.95}
LEARNING |= {"proposer_weight": 0.03, "kl_coeff": 0.01, "drop_uniform_groups": True}

Work = Callable[[int], float]
"""The update of a step; returns its loss."""


def learner(batches: list[list[Any]], model: str) -> Work:
    """RLlib's learner, as ``ssp train`` has it in the main process."""
    from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec

    from agents.rllib.algorithm import SSPConfig
    from agents.rllib.module import MODULE_ID, to_batch
    from agents.rows import Row

    config = SSPConfig().environment(env_config={"world": "mini"})
    config.training(model_dir=model, **LEARNING, **_if_known({"importance_cap": None}))
    spec = MultiRLModuleSpec(rl_module_specs={MODULE_ID: config.get_default_rl_module_spec()})
    built = config.get_default_learner_class()(config=config, module_spec=spec)
    built.build()
    if find_spec("agents.rllib.collector"):
        # As in a run, since this was written.
        import_module("agents.rllib.collector").spare_libraries()
    rows = [[Row(*row) for row in batch] for batch in batches]

    def work(step: int) -> float:
        batch = to_batch(rows[step % len(rows)])
        result = built.update(batch=batch, timesteps={"training_step": step})
        return float(result[MODULE_ID]["loss"])

    return work


def update(batches: list[list[Any]], model: str) -> Work:
    """``agents/update.py``, without RLlib."""
    from agents.columns import columns_of
    from agents.config import LearningConfig
    from agents.rows import Row
    from agents.update import Update

    learning = LearningConfig(**LEARNING, importance_cap=None)
    policy, reference, optimizer = _parts(model, entropies=True)
    step_of = Update(policy, optimizer, learning, reference=reference)
    rows = [[Row(*row) for row in batch] for batch in batches]

    def work(step: int) -> float:
        columns = columns_of(rows[step % len(rows)])
        return step_of({n: torch.as_tensor(c) for n, c in columns.items()}, step)["loss"]

    return work


def bare(batches: list[list[Any]], model: str) -> Work:
    """A loop as one writes it for these rows alone, over micro-batches that were made before.

    As the update, it reads equal rows once."""
    from agents.columns import columns_of, microbatches, one_of_each
    from agents.config import LearningConfig
    from agents.rows import ROLE_IDS, Row

    policy, reference, optimizer = _parts(model, entropies=False)
    most = LearningConfig(**LEARNING).microbatch_tokens
    prepared: list[list[Any]] = []
    for batch in batches:
        columns = columns_of([Row(*row) for row in batch])
        tensors = {name: torch.as_tensor(column) for name, column in columns.items()}
        prepared.append([])
        for part in microbatches(tensors, most):
            seen = {
                name: column[part["role"] == ROLE_IDS["solver"]] for name, column in part.items()
            }
            prepared[-1].append((part, one_of_each(part), seen, one_of_each(seen)))

    def logprobs(lm: Any, read: tuple[dict[str, Any], torch.Tensor | None]) -> torch.Tensor:
        ids, own = read[0]["ids"], read[0]["loss_mask"][:, 1:] > 0
        hidden = lm.base_model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        every = torch.log_softmax(lm.lm_head(hidden[own]), dim=-1)
        found = every.gather(1, ids[:, 1:][own][:, None]).squeeze(1)
        return found if read[1] is None else found[read[1]]

    def loss_of(part: dict[str, Any], read: Any, seen: dict[str, Any], seen_read: Any) -> Any:
        own = part["loss_mask"][:, 1:] > 0
        solver, counts = part["role"] == ROLE_IDS["solver"], own.sum(dim=1)
        by_grpo, advantages, weights = (
            column.repeat_interleave(counts)
            for column in (solver, part["advantages"], part["weights"])
        )
        new = logprobs(policy.lm, read)
        ratio = (new - part["behaviour_logprobs"][:, 1:][own]).exp()
        clipped = ratio.clamp(0.8, 1.28)
        grpo = -torch.minimum(ratio * advantages, clipped * advantages)
        losses = torch.where(by_grpo, grpo, -new * advantages)
        if len(seen["ids"]):
            with torch.no_grad():
                old = logprobs(reference.lm, seen_read)
            difference = old - new[by_grpo]
            kl = difference.exp() - difference - 1
            losses = losses + 0.01 * torch.zeros_like(new).masked_scatter(by_grpo, kl)
        return (weights * losses).sum()

    def work(step: int) -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        for part in prepared[step % len(prepared)]:
            term = loss_of(*part)
            term.backward()
            loss += float(term.detach())
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        return loss

    return work


def _parts(model: str, entropies: bool) -> tuple[Any, Any, torch.optim.Optimizer]:
    """Policy, reference and optimizer."""
    from agents.models import load_model
    from agents.scoring import TokenScorer
    from ssp_env.tokenizers import HuggingFaceTokenizer

    size = HuggingFaceTokenizer.load(model).vocab_size
    policy = TokenScorer(load_model(model), 1.0, size, entropies=entropies)
    reference = TokenScorer(load_model(model), 1.0, size, entropies=False)
    betas = (0.9, LEARNING["beta2"])
    adam = torch.optim.Adam(policy.parameters(), lr=LEARNING["lr"], betas=betas, fused=True)
    return policy, reference.requires_grad_(False), adam


def _if_known(values: dict[str, Any]) -> dict[str, Any]:
    from agents.config import LearningConfig

    return {name: value for name, value in values.items() if hasattr(LearningConfig, name)}


WAYS: dict[str, Callable[[list[list[Any]], str], Work]] = {
    "learner": learner,
    "update": update,
    "bare": bare,
}


def main() -> int:
    """Works once for every line."""
    torch.set_num_threads(1)
    way, file, model = sys.argv[1:]
    work = WAYS[way](pickle.loads(Path(file).read_bytes()), model)
    import agents

    print(json.dumps({"code": agents.__file__}), flush=True)
    for _ in sys.stdin:
        began = process_time()
        losses = [work(step) for step in range(UPDATES)]
        print(json.dumps({"seconds": process_time() - began, "losses": losses}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
