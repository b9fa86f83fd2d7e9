"""The Learner: RLlib's frame around one update of ``agents/update.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from torch import Tensor

from agents.columns import Columns, columns_of
from agents.config import LearningConfig
from agents.models import autocast_dtype, load_model
from agents.rllib.batch import MODULE_ID
from agents.rllib.module import ENTROPY
from agents.rows import Row
from agents.scoring import Scores, checkpoint_layers, token_logprobs
from agents.update import Update, merge_figures
from ssp_env.errors import ConfigError


class SSPLearner(TorchLearner):
    """One update over a batch whose rows carry role, advantage and weight.

    The frozen reference lives here; it is neither synchronised nor checkpointed."""

    def build(self) -> None:
        """Also loads the reference, and prepares the update."""
        super().build()
        self.learning: LearningConfig = self.config.learning()
        learning, module = self.learning, self.module[MODULE_ID]

        self._reference: Any = None
        algorithms = {learning.algorithm(role) for role in learning.learning_roles}
        if learning.kl_coeff > 0 and "grpo" in algorithms:
            self._reference = load_model(self.config.model_dir, self._device).requires_grad_(False)

        if learning.gradient_checkpointing:
            _checkpoint_layers(module.unwrapped())

        self.update_step = Update(
            self._score,
            self.get_optimizer(MODULE_ID),
            learning,
            reference=self._score_reference if self._reference is not None else None,
            autocast=autocast_dtype(learning.precision, torch.device(self._device)),
            learners=max(1, self.config.num_learners),
            no_sync=getattr(module, "no_sync", None),
        )

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Adam; the update sets its learning rate."""
        learning: LearningConfig = config.learning()
        params = self.get_parameters(self._module[module_id])
        optimizer = torch.optim.Adam(params, lr=learning.lr, betas=(0.9, learning.beta2))
        self.register_optimizer(
            module_id=module_id, optimizer=optimizer, params=params, lr_or_lr_schedule=learning.lr
        )

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Leaves the learning rate alone: RLlib's schedules know nothing of steps."""

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Keeps the number of the training step for the update's warm-up."""
        self._training_step = int(timesteps.get("training_step", self.learning.warmup_steps))

    def _uncompiled_update(
        self, batch: dict[str, Columns], **kwargs: Any
    ) -> tuple[Any, dict[str, Tensor], dict[str, Any]]:
        """RLlib's hook for the whole update."""
        figures = self.update_step(batch[MODULE_ID], self._training_step)
        self.metrics.log_dict(figures, key=MODULE_ID, window=1)

        return {}, {MODULE_ID: torch.tensor(figures["loss"])}, {}

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Columns, fwd_out: dict[str, Any]
    ) -> Tensor:
        """RLlib's hook: the loss of one (micro-)batch from the module's log-probabilities."""
        return self.update_step.objective(batch, fwd_out["action_logp"])[0]

    def _score(self, part: Columns) -> Scores:
        """The policy's log-probabilities, through the module, which may be the user's own."""
        temperature = self.learning.temperature
        out = self.module[MODULE_ID].forward_train({**part, "temperature": temperature})
        return Scores(out["action_logp"], out.get(ENTROPY))

    def score(self, rows: Sequence[Row]) -> np.ndarray:
        """The policy's log-probabilities of what it wrote: float32 (tokens,), row by row.

        Computed as in an update, one row at a time, without gradients.
        """
        device = torch.device(self._device)
        dtype = autocast_dtype(self.learning.precision, device)
        found = []
        with torch.no_grad(), torch.autocast(device.type, dtype, enabled=dtype is not None):
            for row in rows:
                columns = columns_of([row])
                part = {n: torch.as_tensor(column).to(device) for n, column in columns.items()}
                found.append(self._score(part).logprobs.float().cpu().numpy())

        return np.concatenate(found)

    def _score_reference(self, part: Columns) -> Scores:
        temperature = self.learning.temperature
        vocab_size = int(self.module[MODULE_ID].action_space.n)
        return Scores(
            token_logprobs(self._reference, part["ids"], part["loss_mask"], temperature, vocab_size)
        )

    @staticmethod
    def merge(results: Sequence[dict[str, Any]]) -> dict[str, float]:
        """Merges the figures of all learners of one update."""
        return merge_figures(results)


def _checkpoint_layers(module: Any) -> None:
    try:
        checkpoint_layers(module)
    except ValueError as error:
        fix = f"{error}; set it to false, or checkpoint in the module's own forward pass"
        raise ConfigError("learning.gradient_checkpointing", True, fix) from None
