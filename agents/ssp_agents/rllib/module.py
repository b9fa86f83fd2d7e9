"""RLModule: a causal LM that scores the tokens a policy wrote; its weights as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray import cloudpickle
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule, MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import Tensor

from ssp_agents.architecture import check_scoring
from ssp_agents.causal_lm import head_logits, states
from ssp_agents.models import (
    LM,
    adapt,
    as_tensor,
    base_of,
    load_model,
    load_state,
    sharing_bases,
)
from ssp_agents.precision import autocasting, widened
from ssp_agents.scoring import token_scores
from ssp_agents.sharding import load_first, read_weights, weights_folder

MODULE_ID = "llm"
"""Name of the policy that plays both roles, and of its module."""
ENTROPY = "entropy"
"""Second column of what ``forward_train`` returns; a module of your own may leave it out."""

LEARNER_FOLDER = "learner"
"""Folder of the algorithm's checkpoint that holds weights and moments: safetensors, no pickle."""
MODULES_FOLDER = "learner_group/learner/rl_module"
"""Folder of it with one for each module, that ``RLModule.from_checkpoint`` is given, as in any of
RLlib's."""


class LLMModule(TorchRLModule):
    """Wraps the model of ``model_config["model"]``; optional are the ``sharding`` of learners, and
    a ``lora_rank`` above 0 with the ``seed`` of its adapters."""

    passes_in: torch.dtype | None = None
    """What a learner's passes are computed in, where that is not float32."""
    shares_prefix: bool = False
    """Whether a learner's passes read a common prefix of their rows once."""

    def setup(self) -> None:
        """Loads the model; the learner moves it to its device."""
        load = load_first if self.model_config.get("sharding") == "fsdp2" else load_model
        self.lm = base_of(load, self.model_config["model"])
        if not next(self.lm.parameters()).is_meta:  # another learner has the weights
            check_scoring(self.lm, self.vocab_size)
        if rank := self.model_config.get("lora_rank", 0):
            adapt(self.lm, rank, self.model_config.get("seed", 0))

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Logits (rows, vocabulary) after each row's last token, as RLlib's action inputs, in the
        dtype of a learner's passes."""
        last = batch["lengths"] - 1
        with autocasting(last.device, self.passes_in):
            hidden = states(self.lm, batch["ids"])
            # The state at each row's last token: (rows, length, width) -> (rows, width).
            rows = torch.arange(len(last), device=last.device)

            logits = head_logits(self.lm, hidden[rows, last])
        return {Columns.ACTION_DIST_INPUTS: logits[:, : self.vocab_size]}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Log-probabilities (tokens,) of the policy's own tokens, all rows concatenated, and the
        entropies of the distributions that they are from."""
        ids, mask, temperature = batch["ids"], batch["loss_mask"], batch["temperature"]
        size, share = self.vocab_size, self.shares_prefix
        scores = token_scores(self.lm, ids, mask, temperature, size, share_prefix=share)
        return {Columns.ACTION_LOGP: scores.logprobs, ENTROPY: scores.entropies}

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Arrays by name, as RLlib's, of modules that hold bfloat16 as well."""
        return {name: widened(tensor).cpu().numpy() for name, tensor in self.state_dict().items()}

    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """As RLlib's; in a checkpoint of the algorithm, from the learners' weights."""
        folder = Path(path).absolute()
        if folder.match(f"{MODULES_FOLDER}/*"):
            # A module's folder, MODULES_FOLDER/NAME, lies four levels below the checkpoint.
            learners = folder.parents[3] / LEARNER_FOLDER
            load_state(self, read_weights(weights_folder(learners, folder.name)))
        else:
            super().restore_from_path(path, *args, **kwargs)

    @property
    def vocab_size(self) -> int:
        """Tokens of the tokenizer; the model may have some more logits."""
        return int(self.action_space.n)


class LLMModules(MultiRLModule):
    """Modules of several policies. With adapters on the same model, they have its frozen parameters
    in common."""

    def setup(self) -> None:
        adapted = all(spec.model_config.get("lora_rank") for spec in self.rl_module_specs.values())
        with sharing_bases() if adapted else nullcontext():
            super().setup()


def multi_spec(specs: Mapping[str, RLModuleSpec]) -> MultiRLModuleSpec:
    """The spec of all modules, from those of each policy."""
    return MultiRLModuleSpec(multi_rl_module_class=LLMModules, rl_module_specs=dict(specs))


def describe(spec: RLModuleSpec, folder: Path) -> None:
    """Writes what a module is made of, where ``RLModule.from_checkpoint`` looks for it."""
    # Absolute, because a checkpoint may be opened from another working directory.
    model = str(Path(spec.model_config["model"]).absolute())
    arguments = {
        "observation_space": spec.observation_space,
        "action_space": spec.action_space,
        "model_config": {**spec.model_config, "model": model},
    }
    folder.mkdir(parents=True, exist_ok=True)
    made = {"class": spec.module_class, "ctor_args_and_kwargs": ((), arguments)}
    (folder / LLMModule.CLASS_AND_CTOR_ARGS_FILE_NAME).write_bytes(cloudpickle.dumps(made))


def module_spaces(vocab_size: int) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Observations are token sequences, actions single tokens."""
    return gym.spaces.Sequence(gym.spaces.Discrete(vocab_size)), gym.spaces.Discrete(vocab_size)


# -- weights on their way ----------------------------------------------------------------------


def pack(name: str, tensor: Tensor, half: bool) -> np.ndarray:
    """An array that Ray's object store holds without a copy; numpy has no bfloat16."""
    if half and name.startswith(LM) and tensor.is_floating_point():
        # The same bits as int16, from which ``unpack`` makes bfloat16 again.
        tensor = tensor.to(torch.bfloat16).view(torch.int16)
    packed: np.ndarray = tensor.cpu().numpy()
    return packed


def unpack(value: Any) -> Tensor:
    """The tensor of what :func:`pack` made, or of any array or tensor."""
    tensor = as_tensor(value)
    return tensor.view(torch.bfloat16) if tensor.dtype == torch.int16 else tensor
