"""Engines from settings, and a pair of them for two policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from agents.config import EngineConfig
from agents.engines.base import Engine, Generation, Request, StopRule
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model, round_parameters
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
) -> Engine:
    """Loads a causal LM into an engine.

    Args:
        config: kind of engine.
        model_dir: directory of the LM.
        tokenizer: gives the bytes behind ids.
        stop: ends turns.
        device: computes in bfloat16 if it is a GPU, in float32 on the CPU.
        longest: tokens of the longest trajectory.
        shares: true where a learner has to get by on the same GPU.
        model: what the engine of `transformers` samples from, in place of the directory's model.
    """
    if config.kind == "vllm":
        # It reads the environment when it is imported.
        from agents.engines.vllm_engine import VLLMEngine

        return VLLMEngine(
            model_dir,
            tokenizer,
            stop,
            device=device,
            memory=config.memory,
            longest=longest,
            sleeps=shares,
        )

    if model is None:
        model = load_model(model_dir, device)
        if torch.device(device).type == "cuda":
            round_parameters(model, torch.bfloat16)
    return TransformersEngine(model, tokenizer, stop)


class Partnered:
    """An engine that sends requests to two others by role: the policy that learns, and a frozen
    partner. Weights, their version and their updates are those of the policy that learns."""

    def __init__(self, policy: Engine, partner: Engine, plays: Callable[[str], bool]) -> None:
        """``plays`` is true for roles that the policy plays, such as
        :meth:`~agents.config.LearningConfig.plays`."""
        self._policy, self._partner, self._plays = policy, partner, plays

    @property
    def weights_version(self) -> int:
        return self._policy.weights_version

    @property
    def running(self) -> int:
        return self._policy.running + self._partner.running

    def submit(self, requests: Sequence[Request]) -> None:
        self._policy.submit([request for request in requests if self._plays(request.role)])
        self._partner.submit([request for request in requests if not self._plays(request.role)])

    def step(self) -> list[tuple[int, Generation]]:
        """One step of each that has something to do; if one fails, all that runs is void."""
        busy = [engine for engine in (self._policy, self._partner) if engine.running]
        return [finished for engine in busy for finished in engine.step()]

    def release(self, keys: Iterable[int]) -> None:
        keys = [*keys]
        self._policy.release(keys)
        self._partner.release(keys)

    def update_weights(self, state: Mapping[str, Any], version: int) -> None:
        """Gives the policy that learns new weights; the partner keeps its own."""
        self._policy.update_weights(state, version)

    def weights(self) -> dict[str, Any]:
        return self._policy.weights()

    def sleep(self) -> None:
        self._policy.sleep()
        self._partner.sleep()

    def wake(self) -> None:
        self._policy.wake()
        self._partner.wake()


def check_same_tokens(partner: str | Path, model_dir: str | Path) -> None:
    """Makes sure that one policy can read what the other one writes."""
    theirs, ours = HuggingFaceTokenizer.load(partner), HuggingFaceTokenizer.load(model_dir)
    if theirs.pieces != ours.pieces:
        fix = f"its tokenizer is not that of {model_dir}: both roles write in one trajectory's ids"
        raise ConfigError("learning.partner", str(partner), fix)
