"""RLModule: a causal LM that scores the tokens a policy wrote; its weights as arrays, rows as
RLlib's batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from torch import Tensor

from agents.models import adapt, as_tensor, load_model
from agents.rows import Row, columns_of
from agents.scoring import token_scores
from agents.sharding import load_first

MODULE_ID = "llm"
"""The one module; roles are a column. A module missing on one learner would hang all of them."""
LM = "lm."
"""Beginning of the names of the causal LM's weights; other weights are not played with."""
ENTROPY = "entropy"
"""Second column of what ``forward_train`` returns; a module of your own may leave it out."""


class LLMModule(TorchRLModule):
    """Wraps the model of ``model_config["model"]``.

    Optional are its ``attention``, the ``sharding`` of learners, and a ``lora_rank`` above 0 with
    the ``seed`` of its adapters.
    """

    def setup(self) -> None:
        """Loads the model; the learner moves it to its device."""
        load = load_first if self.model_config.get("sharding") == "fsdp2" else load_model
        attention = self.model_config.get("attention", "eager")
        self.lm = load(self.model_config["model"], attention=attention)
        if rank := self.model_config.get("lora_rank", 0):
            adapt(self.lm, rank, self.model_config.get("seed", 0))

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Logits (rows, vocabulary) after each row's last token, as RLlib's action inputs."""
        last = batch["lengths"] - 1
        hidden = self.lm.base_model(input_ids=batch["ids"], use_cache=False).last_hidden_state
        rows = torch.arange(len(last), device=last.device)

        logits = self.lm.get_output_embeddings()(hidden[rows, last])
        return {Columns.ACTION_DIST_INPUTS: logits[:, : self.vocab_size]}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Log-probabilities (tokens,) of the policy's own tokens, all rows concatenated, and the
        entropies of the distributions that they are from."""
        ids, mask, temperature = batch["ids"], batch["loss_mask"], batch["temperature"]
        scores = token_scores(self.lm, ids, mask, temperature, self.vocab_size)
        return {Columns.ACTION_LOGP: scores.logprobs, ENTROPY: scores.entropies}

    @property
    def vocab_size(self) -> int:
        """Tokens of the tokenizer; the model may have some more logits."""
        return int(self.action_space.n)


def module_spaces(vocab_size: int) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Observations are token sequences, actions single tokens."""
    return gym.spaces.Sequence(gym.spaces.Discrete(vocab_size)), gym.spaces.Discrete(vocab_size)


def to_batch(rows: Sequence[Row]) -> MultiAgentBatch:
    """Columns of rows as RLlib wants them."""
    return MultiAgentBatch({MODULE_ID: SampleBatch(columns_of(rows))}, env_steps=len(rows))


# -- weights on their way ----------------------------------------------------------------------


def pack(name: str, tensor: Tensor, half: bool) -> np.ndarray:
    """An array that Ray's object store holds without a copy; numpy has no bfloat16."""
    if half and name.startswith(LM) and tensor.is_floating_point():
        tensor = tensor.to(torch.bfloat16).view(torch.int16)
    packed: np.ndarray = tensor.cpu().numpy()
    return packed


def unpack(value: Any) -> Tensor:
    """The tensor of what :func:`pack` made, or of any array or tensor."""
    tensor = as_tensor(value)
    return tensor.view(torch.bfloat16) if tensor.dtype == torch.int16 else tensor
