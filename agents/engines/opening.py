"""From settings to an engine with a model in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from agents.engines.base import Engine, StopRule
from agents.engines.config import EngineConfig
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model
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
    """Loads a model into an engine.

    Args:
        config: which engine.
        model_dir: a causal LM.
        tokenizer: for the bytes behind ids.
        stop: where turns end.
        device: where it computes: in bfloat16 on a GPU, in float32 on the CPU.
        longest: tokens of the longest trajectory.
        shares: whether a learner has to get by on the same GPU.
        model: what the engine of `transformers` samples from, in place of the directory's model.

    Raises:
        MissingExtra: the engine's package is not installed.
        ModelError: no such model, or one that the engine cannot serve.
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
            model = model.to(torch.bfloat16)
    return TransformersEngine(model, tokenizer, stop)
