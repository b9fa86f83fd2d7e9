"""Model directories: loads a causal LM and its tokenizer, offline; errors say what is missing."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from ssp_env.errors import ModelError


def tiny_directory() -> Path:
    """The checkpoint that ships with the checkout."""
    return Path(str(resources.files("agents.tiny") / "checkpoint"))


def load_model(
    directory: str | Path, device: torch.device | str = "cpu", attention: str | None = None
) -> Any:
    """A causal LM in float32 and evaluation mode.

    Args:
        directory: config and weights, as `transformers` writes them.
        device: where the model is put.
        attention: implementation by its `transformers` name; when not given, what suits the device:
            eager on CPUs, where its backward pass is faster at small sizes, else the fused one.

    Raises:
        ModelError: no such directory, or not a causal LM that `transformers` can load whole.
    """
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    path = Path(directory)
    if not (path / "config.json").is_file():
        raise ModelError(f"{path} is not a model directory (config.json is missing)")
    if attention is None:
        attention = "eager" if torch.device(device).type == "cpu" else "sdpa"

    logging.disable_progress_bar()
    logging.set_verbosity_error()

    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            path,
            local_files_only=True,
            attn_implementation=attention,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            output_loading_info=True,
        )
    except (
        OSError,
        ValueError,
        KeyError,
        RuntimeError,
        SafetensorError,
        StrictDataclassError,
    ) as error:
        raise ModelError(f"the model in {path} cannot be loaded: {error}") from error

    _check_complete(path, info)

    return model.to(device).eval()


def _check_complete(path: Path, info: dict[str, Any]) -> None:
    """Weights that are missing, or do not fit the config, would be random numbers."""
    lacking = sorted(info["missing_keys"])
    if lacking:
        raise ModelError(
            f"the model in {path} cannot be loaded: its weights lack {', '.join(lacking[:3])}"
        )

    misfits = [
        f"{name} is {list(has)}, not {list(wanted)}"
        for name, has, wanted in sorted(info["mismatched_keys"])
    ]

    if misfits:
        what = "; ".join(misfits[:3])
        raise ModelError(
            f"the model in {path} cannot be loaded: its weights do not fit its config: {what}"
        )


def autocast_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """The dtype to compute in, or ``None`` for float32; ``auto`` asks the machine."""
    if precision == "float32":
        return None
    if precision == "bfloat16":
        return torch.bfloat16
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else None

    return torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else None


def save_policy(
    weights: dict[str, Any],
    source: str | Path,
    directory: str | Path,
    dtype: torch.dtype | None = None,
) -> None:
    """Writes trained weights as a model directory, with the config and tokenizer of their origin.

    Args:
        weights: parameter name -> array, as the model names them.
        source: the directory that the policy was loaded from.
        directory: where to write; created if missing.
        dtype: what weights are rounded to; they are written as they are when not given.
    """
    from safetensors.torch import save_file

    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)

    for file in sorted(Path(source).iterdir()):
        copied = (
            file.suffix in (".json", ".txt", ".model", ".jinja") and ".index" not in file.suffixes
        )
        # origin.json describes the weights that these were trained from, not these.
        if file.is_file() and copied and file.name != "origin.json":
            shutil.copyfile(file, target / file.name)

    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    tensors = {name: torch.as_tensor(value).contiguous().clone() for name, value in weights.items()}
    if dtype is not None:
        tensors = {n: t.to(dtype) if t.is_floating_point() else t for n, t in tensors.items()}
    if config.get("tie_word_embeddings"):
        # The output layer is the embedding; loading ties them again.
        tensors.pop("lm_head.weight", None)

    # Whoever loads it without asking for a dtype gets the one that the config names, and the
    # weights are not rounded.
    config.pop("torch_dtype", None)
    config["dtype"] = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    (target / "config.json").write_text(
        json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8"
    )
    path = target / "model.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)
