"""Engines from settings, and a pair of them for two policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from ssp_agents.config import EngineConfig, vllm_share
from ssp_agents.engines.base import Engine, Generation, Request, StopRule
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.models import load_model, round_parameters
from ssp_env.errors import ConfigError
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.tokenizers.base import Tokenizer


def open_engine(
    config: EngineConfig,
    model_dir: str | Path,
    tokenizer: Tokenizer,
    stop: StopRule,
    *,
    device: torch.device | str = "cpu",
    longest: int | None = None,
    shares: bool = False,
    model: Any = None,
    tensor_parallel: int = 1,
    lora_rank: int = 0,
) -> Engine:
    """Loads a causal LM into an engine.

    ``longest`` is the longest trajectory's number of tokens; ``shares`` is true where a learner has
    to get by on the same GPU; ``tensor_parallel`` GPUs hold a model of vLLM's, which plays adapters
    of ``lora_rank``, if above 0. ``model``, if given, takes the place of the directory's; its
    parameters are rounded to the engine's dtype.
    """
    on_gpu = torch.device(device).type == "cuda"
    dtype = torch.bfloat16 if config.in_half(on_gpu) else torch.float32
    if config.kind == "vllm":
        from ssp_agents.engines.vllm_engine import open_vllm

        return open_vllm(
            model_dir,
            tokenizer,
            stop,
            on_gpu=on_gpu,
            dtype=dtype,
            memory=vllm_share(config, shares),
            longest=longest,
            sleeps=shares and on_gpu,
            tensor_parallel=tensor_parallel,
            lora_rank=lora_rank,
        )

    if model is None:
        model = load_model(model_dir, attention=config.attention)
    round_parameters(model, dtype)  # before it goes to a GPU, which may have no room for more
    return TransformersEngine(model.to(device), tokenizer, stop)


class Partnered:
    """An engine that sends requests to two others by role: the policy that learns, and a frozen
    partner. Weights, their version and their updates are those of the policy that learns."""

    def __init__(self, policy: Engine, partner: Engine, plays: Callable[[str], bool]) -> None:
        """``plays`` is true for roles that the policy plays, such as
        :meth:`~ssp_agents.config.LearningConfig.plays`."""
        self._both, self._plays = (policy, partner), plays
        self.update_weights = policy.update_weights

    @property
    def weights_version(self) -> int:
        return self._both[0].weights_version

    @property
    def running(self) -> int:
        return sum(engine.running for engine in self._both)

    def submit(self, requests: Sequence[Request]) -> None:
        for engine, is_policy in zip(self._both, (True, False), strict=True):
            engine.submit([r for r in requests if self._plays(r.role) == is_policy])

    def step(self) -> list[tuple[int, Generation]]:
        """One step of each that has something to do; if one fails, all that runs is void."""
        busy = [engine for engine in self._both if engine.running]
        return [finished for engine in busy for finished in engine.step()]

    def release(self, keys: Iterable[int]) -> None:
        keys = [*keys]
        for engine in self._both:
            engine.release(keys)

    def sleep(self) -> None:
        for engine in self._both:
            engine.sleep()

    def wake(self) -> None:
        for engine in self._both:
            engine.wake()


def check_same_tokens(partner: str | Path, model_dir: str | Path) -> None:
    """Makes sure that one policy can read what the other one writes."""
    theirs, ours = HuggingFaceTokenizer.load(partner), HuggingFaceTokenizer.load(model_dir)
    if theirs.pieces != ours.pieces:
        fix = f"its tokenizer is not that of {model_dir}: both roles write in one trajectory's ids"
        raise ConfigError("learning.partner", str(partner), fix)
