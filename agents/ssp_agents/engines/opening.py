"""Engines from settings, and several of them for as many policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ssp_agents.config import EngineConfig, vllm_share
from ssp_agents.engines.base import Engine, Generation, Request, StopRule
from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_agents.models import load_model, round_parameters
from ssp_env.errors import ConfigError, UsageError, nearest
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
    policy_of: Callable[[str], str] | None = None,
) -> Engine:
    """Loads a causal LM into an engine.

    ``longest`` is the longest trajectory's number of tokens; ``shares`` is true where a learner has
    to get by on the same GPU; ``tensor_parallel`` GPUs hold a model of vLLM's, which plays adapters
    of ``lora_rank``, if above 0, and with ``policy_of`` those of each role's policy. ``model``, if
    given, takes the place of the directory's; its parameters are rounded to the engine's dtype.
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
            policy_of=policy_of,
        )

    if model is None:
        model = load_model(model_dir)
    round_parameters(model, dtype)  # before it goes to a GPU, which may have no room for more
    return TransformersEngine(model.to(device), tokenizer, stop)


class ByRole:
    """An engine that sends each request to the engine of the policy that plays its role. The
    weights of a policy that does not learn keep the version 0."""

    def __init__(self, engines: Mapping[str, Engine], policy_of: Callable[[str], str]) -> None:
        """``policy_of`` returns the name of the engine that plays a role."""
        self.engines, self._policy_of = engines, policy_of

    @property
    def weights_version(self) -> int:
        return max(engine.weights_version for engine in self.engines.values())

    @property
    def running(self) -> int:
        return sum(engine.running for engine in self.engines.values())

    def submit(self, requests: Sequence[Request]) -> None:
        for name, engine in self.engines.items():
            engine.submit([r for r in requests if self._policy_of(r.role) == name])

    def update_weights(self, state: Mapping[str, Any], version: int) -> None:
        """``state`` has the weights of each policy by its name."""
        for name, weights in state.items():
            if name not in self.engines:
                raise UsageError(f"no policy is called {name!r}; {nearest(name, self.engines)}")
            self.engines[name].update_weights(weights, version)

    def step(self) -> list[tuple[int, Generation]]:
        """One step of each that has something to do; if one fails, all that runs is void."""
        busy = [engine for engine in self.engines.values() if engine.running]
        return [finished for engine in busy for finished in engine.step()]

    def release(self, keys: Iterable[int]) -> None:
        keys = [*keys]
        for engine in self.engines.values():
            engine.release(keys)

    def sleep(self) -> None:
        for engine in self.engines.values():
            engine.sleep()

    def wake(self) -> None:
        for engine in self.engines.values():
            engine.wake()


def check_same_tokens(field: str, other: str | Path, model_dir: str | Path) -> None:
    """Makes sure that one policy can read what the other one, which a setting names, writes."""
    theirs, ours = HuggingFaceTokenizer.load(other), HuggingFaceTokenizer.load(model_dir)
    if theirs.pieces != ours.pieces:
        fix = f"its tokenizer is not that of {model_dir}: both roles write in one trajectory's ids"
        raise ConfigError(field, str(other), fix)
