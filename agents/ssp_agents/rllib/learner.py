"""Learner: RLlib's frame around one update of ``ssp_agents.update``; calls to all learners."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayActorError, RayError
from ray.rllib.core import COMPONENT_OPTIMIZER, COMPONENT_RL_MODULE
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from torch import Tensor

from ssp_agents.columns import Columns, columns_of
from ssp_agents.config import LearningConfig
from ssp_agents.losses import find_algorithm
from ssp_agents.models import (
    autocast_dtype,
    load_model,
    plain_weights,
    save_policy,
    state_of,
    without_adapters,
)
from ssp_agents.rllib.module import ENTROPY, LM, MODULE_ID, pack
from ssp_agents.rows import Row
from ssp_agents.scoring import Scores, TokenScorer, checkpoint_layers
from ssp_agents.sharding import (
    agreed_maximum,
    full_tensor,
    load_first,
    load_shares,
    save_shares,
    shard,
)
from ssp_agents.update import Scorer, Update, adam
from ssp_env.errors import ConfigError, LearnerDied, RunError

Weights = dict[str, Any]
"""Tensors or arrays, named as the module names them."""
DIED = "learner", "a learner died; go on from the last checkpoint"


class SSPLearner(TorchLearner):
    """One update over a batch whose rows carry role, advantage and weight.

    The frozen reference lives here; it is neither synchronised nor checkpointed. Of a policy with
    adapters, only these are.
    """

    @property
    def is_sharded(self) -> bool:
        return bool(self.config.is_sharded)

    @property
    def _is_first(self) -> bool:
        """True for the learner that speaks for all."""
        group = torch.distributed
        return not group.is_initialized() or group.get_rank() == 0

    def build(self) -> None:
        """Also loads the reference, and prepares the update."""
        self.learning: LearningConfig = self.config.learning()
        super().build()
        learning, module = self.learning, self.module[MODULE_ID]
        device = torch.device(self._device)
        algorithms = [find_algorithm(learning, role) for role in learning.learning_roles]
        self._reference: Scorer | None = None
        if learning.kl_coeff > 0 and any(algorithm.kl for algorithm in algorithms):
            # With adapters, no second copy of the policy is needed.
            adapted = learning.lora_rank > 0
            self._reference = self._score_unadapted if adapted else self._load_reference()
        if learning.gradient_checkpointing:
            try:
                checkpoint_layers(module.unwrapped())
            except ValueError as error:
                fix = f"{error}; set it to false, or checkpoint in the module's own forward pass"
                raise ConfigError("learning.gradient_checkpointing", True, fix) from None

        # Of a subclass with a loss of its own, that loss is minimised.
        stock = type(self).compute_loss_for_module is SSPLearner.compute_loss_for_module
        self.update_step = Update(
            self._score,
            self.get_optimizer(MODULE_ID),
            learning,
            reference=self._reference,
            teacher=self._score_alone,
            autocast=autocast_dtype(device),
            learners=max(1, self.config.num_learners),
            no_sync=getattr(module, "no_sync", None),
            agree=(lambda passes: agreed_maximum(passes, device)) if self.is_sharded else None,
            loss=None if stock else self._loss_of_hook,
        )
        if self.config.num_learners:  # this process is its own
            freeze_collected()

    def _load_reference(self) -> TokenScorer:
        device = torch.device(self._device)
        directory, attention = self.config.model_dir, "sdpa" if device.type == "cuda" else "eager"
        lm = load_first(directory, attention) if self.is_sharded else load_model(directory, device)
        vocab_size = int(self.module[MODULE_ID].action_space.n)
        reference = TokenScorer(
            lm.requires_grad_(False), self.learning.temperature, vocab_size, entropies=False
        )
        if self.is_sharded:
            shard(reference, device, autocast_dtype(device))
        return reference

    # -- RLlib's hooks -------------------------------------------------------------------------

    def _map_module_to_device(self, module: Any) -> None:
        """A policy that is shared goes there layer by layer, as shares."""
        if not self.is_sharded:
            super()._map_module_to_device(module)
            return

        device = torch.device(self._device)
        compute = autocast_dtype(device)
        shard(module[MODULE_ID], device, compute, forward="forward_train")

    def _make_modules_ddp_if_necessary(self) -> None:
        """A policy that is shared is not wrapped."""
        if not self.is_sharded:
            super()._make_modules_ddp_if_necessary()

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam; the update sets its learning rate."""
        learning: LearningConfig = config.learning()
        params = [p for p in self.get_parameters(self._module[module_id]) if p.requires_grad]
        self.register_optimizer(
            module_id=module_id,
            optimizer=adam(params, learning),
            params=params,
            lr_or_lr_schedule=learning.lr,
        )

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Leaves the learning rate alone: RLlib's schedules know nothing of steps."""

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Keeps the number of the training step, of which the learning rate is a function."""
        self._training_step = int(timesteps["training_step"])

    def _uncompiled_update(
        self, batch: dict[str, Columns], **kwargs: Any
    ) -> tuple[Any, dict[str, Tensor], dict[str, Any]]:
        """Learns from a batch. RLlib's ``Learner.update`` calls this, its only hook that leaves the
        order of passes to us, after the connectors."""
        figures = self.update_step(batch[MODULE_ID], self._training_step)
        self.metrics.log_dict(figures, key=MODULE_ID, window=1)

        return {}, {MODULE_ID: torch.tensor(figures["loss"])}, {}

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Columns, fwd_out: dict[str, Any]
    ) -> Tensor:
        """The loss of one micro-batch from the module's log-probabilities, to be overridden:
        ``fwd_out["action_logp"]`` has those of all tokens that the policy wrote, (tokens,), row by
        row. Losses of micro-batches add up."""
        part, logprobs, loss = fwd_out["objective"]
        # What an override has changed is computed anew.
        if batch is not part or fwd_out["action_logp"] is not logprobs:
            loss, _ = self.update_step.objective(batch, fwd_out["action_logp"])
        stock: Tensor = loss
        return stock

    def _loss_of_hook(self, part: Columns, scores: Scores, loss: Tensor) -> Tensor:
        fwd_out = {
            "action_logp": scores.logprobs,
            ENTROPY: scores.entropies,
            "objective": (part, scores.logprobs, loss),
        }
        config = self.config.get_config_for_module(MODULE_ID)
        return self.compute_loss_for_module(
            module_id=MODULE_ID, config=config, batch=part, fwd_out=fwd_out
        )

    # -- scores --------------------------------------------------------------------------------

    def _score(self, part: Columns) -> Scores:
        """The policy's log-probabilities, through the module, which may be the user's own."""
        temperature = self.learning.temperature
        out = self.module[MODULE_ID].forward_train({**part, "temperature": temperature})
        return Scores(out["action_logp"], out.get(ENTROPY))

    def _score_alone(self, part: Columns) -> Scores:
        """The same, not through DDP, which would wait for the other learners."""
        module = self.module[MODULE_ID].unwrapped()
        out = module.forward_train({**part, "temperature": self.learning.temperature})
        return Scores(out["action_logp"])

    def _score_unadapted(self, part: Columns) -> Scores:
        """Those of the policy without its adapters."""
        with without_adapters(self.module[MODULE_ID].unwrapped()):
            return self._score_alone(part)

    def score(self, rows: Sequence[Row]) -> np.ndarray:
        """The policy's log-probabilities of what it wrote: float32 (tokens,), row by row.

        Computed as in an update, one row at a time, without gradients.
        """
        device = torch.device(self._device)
        dtype = autocast_dtype(device)
        found = []
        with torch.no_grad(), torch.autocast(device.type, dtype, enabled=dtype is not None):
            for row in rows:
                # Padding and neighbours would change last digits, and a difference is looked for.
                columns = columns_of([row])
                part = {n: torch.as_tensor(column).to(device) for n, column in columns.items()}
                found.append(self._score(part).logprobs.float().cpu().numpy())

        return np.concatenate(found)

    # -- weights that leave a learner ----------------------------------------------------------

    def publish(self, half: bool) -> list[Weights | ray.ObjectRef]:
        """The present weights; ``half`` rounds what plays to bfloat16, as engines do anyway.

        All learners have to be asked. One in the main process gives its own tensors, the first
        remote one a reference to arrays in Ray's object store, and the others nothing.
        """
        state = state_of(self.module[MODULE_ID].unwrapped())
        # The engine of this process reads them where they lie.
        if self.config.num_learners == 0:
            return [state]

        # One weight at a time is whole on those that only help to gather it.
        arrays = {}
        for name, tensor in state.items():
            gathered = full_tensor(tensor)
            if self._is_first:
                arrays[name] = pack(name, gathered, half)
        if self.config.gpus == "shared":
            torch.cuda.empty_cache()  # the engine is another process
        return [ray.put(arrays)] if self._is_first else []

    def save_policy(self, directory: str) -> list[Any]:
        """Writes the policy as a model directory, with adapters merged, in the dtype that passes
        are computed in; all learners have to be asked."""
        weights = {}
        for name, tensor in state_of(self.module[MODULE_ID].unwrapped()).items():
            gathered = full_tensor(tensor)
            if self._is_first and name.startswith(LM):
                weights[name.removeprefix(LM)] = gathered.cpu()
        if self._is_first:
            source = self.config.model_dir
            dtype = autocast_dtype(torch.device(self._device))
            save_policy(plain_weights(weights, source), source, directory, dtype)
        return []

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """RLlib's state; without weights and moments where this learner has only a share."""
        if not self.is_sharded:
            state: dict[str, Any] = super().get_state(*args, **kwargs)
            return state

        left_out = [COMPONENT_RL_MODULE, COMPONENT_OPTIMIZER]
        state = super().get_state(not_components=left_out)
        # RLlib asks one learner for all weights, to hand them to env runners; they get them later.
        return {**state, COMPONENT_RL_MODULE: {}}

    def save(self, directory: str) -> list[Any]:
        """Writes weights and moments; all learners are asked, with the same directory."""
        if not Path(directory).is_dir():
            where = f"a learner on {socket.gethostname()} does not see {directory}"
            raise RunError(f"{where}: learners on several machines need a common file system")

        if self.is_sharded or self._is_first:
            self._store(save_shares, directory)
        return []

    def load(self, directory: str) -> list[Any]:
        """Takes weights and moments that any number of learners have saved."""
        self._store(load_shares, directory)
        return []

    def _store(self, save_or_load: Callable[..., None], directory: str) -> None:
        module = self.module[MODULE_ID].unwrapped()
        optimizer = self.get_optimizer(MODULE_ID)
        save_or_load(module, optimizer, directory, alone=not self.is_sharded)


# -- calls to all learners of RLlib's learner group --------------------------------------------


def ask_learners(learner_group: Any, ask: Callable[[Any], list[Any]]) -> list[Any]:
    """Answers of all learners, in one list; an error of one of them is raised."""
    found: list[Any] = []
    results = list(learner_group.foreach_learner(ask))
    if len(results) < len(learner_group):
        raise LearnerDied(*DIED)  # those that are known to be dead are not asked

    for result in results:
        answer = result.get()
        if not result.ok:
            # Ray wraps an error in another one whose message is a traceback.
            raise getattr(answer, "cause", answer)
        found += answer
    return found


@contextmanager
def naming_dead_learners(learner_group: Any, learners: int) -> Iterator[None]:
    """Turns any error that comes of a dead learner into one that says so."""
    try:
        yield
    except Exception as error:
        # Which error it is depends on who noticed: Ray, RLlib, or the other learners.
        for actor in learner_group._worker_manager.actors().values() if learners else ():
            try:
                ray.get(actor.__ray_ready__.remote(), timeout=10.0)
            except RayActorError:
                raise LearnerDied(*DIED) from error
            except RayError:
                continue  # busy, or failing in some other way
        raise


def freeze_collected() -> bool:
    """Keeps Python's garbage collector from what is there by now (``gc.freeze``).

    PyTorch, transformers and RLlib leave half a million objects behind, and the collector would
    go through all of them now and then. That takes as long as a fair part of a tiny step. True if
    nobody else had frozen anything, so that :func:`gc.unfreeze` undoes this.
    """
    alone = gc.get_freeze_count() == 0
    gc.collect()
    gc.freeze()
    return alone
