"""Whatever vLLM keeps private, or has moved between its releases 0.26 and 0.33.

Each function touches one such part, and ``tests/agents/engines/test_vllm_compat.py`` has a canary
for it, which names what an upgrade took away. What vLLM documents and has not moved is called in
:mod:`ssp_agents.engines.vllm_engine`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ssp_env.errors import MissingExtra, ModelError

ENVIRONMENT = {
    # In one process, weights are handed over as tensors.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""Environment of vLLM, unless it says something else there."""
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks of adapters that vLLM has kernels for; others are played in the next larger one."""
_UNKNOWN = ("are not supported for now", "support `--runner generate`")
"""What vLLM says of a model that it has no code for, and of one that writes no text."""
_NO_KERNEL = ("no kernel image", "invalid device function", "no kernel found")
"""What CUDA says where a binary has no code for the GPU."""


# -- starting ----------------------------------------------------------------------------------


def start(model_dir: str | Path, arguments: Mapping[str, Any], *, on_gpu: bool) -> Any:
    """Starts vLLM in this process, and returns the engine inside its ``LLM``, which is stepped.

    Raises:
        MissingExtra: if vLLM is not installed.
        ModelError: if it cannot be imported, does not know the model or does not fit the GPU.
    """
    llm_class = _imported(on_gpu)
    try:
        return llm_class(**arguments).llm_engine
    except Exception as error:  # of any type: CUDA's, one of memory, a failed assertion
        raise ModelError(_refusal(error, model_dir)) from error


def adapter_arguments(
    model_dir: str | Path, rank: int, count: int = 1, *, on_gpu: bool
) -> dict[str, Any]:
    """Arguments for playing adapters of this rank, of so many policies, beside the model. Nothing
    with a rank of 0, or where vLLM cannot: its code for the model has to support them, and they
    must not be wider than its kernels."""
    if not rank:
        return {}
    _imported(on_gpu)
    from vllm import EngineArgs, ModelRegistry
    from vllm.model_executor.models.interfaces import supports_lora

    width = next((width for width in _RANKS if width >= rank), None)
    try:
        given: Any = {"model": str(model_dir), "skip_tokenizer_init": True, "runner": "generate"}
        config = EngineArgs(**given).create_model_config()
        model, _ = ModelRegistry.resolve_model_cls(config.architectures, config)
    except Exception as error:
        raise ModelError(_refusal(error, model_dir)) from error
    if width is None or not supports_lora(model):
        return {}
    return {"enable_lora": True, "max_lora_rank": width, "max_loras": count, "max_cpu_loras": count}


def _imported(on_gpu: bool) -> Any:
    """vLLM's ``LLM``, after what has to come before its first use."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)  # vLLM reads it when it is imported
    try:
        from vllm import LLM
    except ModuleNotFoundError as error:
        if error.name == "vllm":
            raise MissingExtra("engine.kind=vllm", "gpu") from error
        raise ModelError(_unimportable(error)) from error
    except (ImportError, OSError, RuntimeError) as error:
        raise ModelError(_unimportable(error)) from error
    if not on_gpu:
        _prepare_cpu()
    return LLM


def _unimportable(error: Exception) -> str:
    fix = "install the vLLM that was built for it in a new environment, or set"
    said = f"vLLM is installed but cannot be imported beside PyTorch {torch.__version__}"
    first, _, _ = str(error).partition("\n")
    return f"{said} ({first}): {fix} engine.kind=transformers"


def _refusal(error: Exception, model_dir: str | Path) -> str:
    """Why vLLM did not start, in one sentence with what to do, as far as that is known."""
    said = " ".join(str(e) for e in _causes(error))
    if any(sign in said for sign in _NO_KERNEL):
        return (
            f"the installed vLLM {_release()} has no code for this GPU ({_gpu()}): install a vLLM "
            "that was built for it, or set engine.kind=transformers"
        )
    if any(sign in said for sign in _UNKNOWN):
        known = f"vLLM {_release()} has no code for the model in {model_dir}"
        return f"{known} ({_architectures(model_dir)}): set engine.kind=transformers"
    short = " ".join(str(error).split())[:500]
    return f"vLLM cannot serve the model in {model_dir}: {type(error).__name__}: {short}"


def _causes(error: BaseException | None) -> list[BaseException]:
    """An exception and those that led to it."""
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


def _release() -> str:
    import vllm

    return str(getattr(vllm, "__version__", ""))


def _gpu() -> str:
    if not torch.cuda.is_available():
        return "which PyTorch does not see"
    major, minor = torch.cuda.get_device_capability()
    return f"{torch.cuda.get_device_name()}, compute capability {major}.{minor}"


def _architectures(model_dir: str | Path) -> str:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model_dir, local_files_only=True)
    return ", ".join(config.architectures or [config.model_type])


# -- the engine --------------------------------------------------------------------------------


def logits(llm: Any) -> int:
    """Logits that the model has."""
    return int(llm.model_config.hf_text_config.vocab_size)


def ties(llm: Any) -> bool:
    """True if the output layer is the embedding."""
    return bool(getattr(llm.model_config.hf_text_config, "tie_word_embeddings", False))


def forbid_surplus(llm: Any, tokens: int) -> None:
    """Makes logits from ``tokens`` on impossible, in all that is sampled from now on.

    A request's list of biased or allowed tokens would do the same, but the sampler on GPUs takes
    1,024 entries and models have up to thousands of such logits. A logits processor of one's own
    keeps 0.26 from its faster model runner, and has another interface from 0.32 on.
    """
    llm.apply_model(functools.partial(_forbid, tokens=tokens))


def _forbid(model: Any, tokens: int) -> None:
    """Runs in vLLM's worker. All its model runners take their logits from ``compute_logits``."""
    model.tokens_of_tokenizer = tokens
    kind = type(model)
    original = kind.compute_logits
    if hasattr(original, "forbids_surplus"):
        return

    @functools.wraps(original)
    def compute_logits(self: Any, *args: Any, **kwargs: Any) -> Tensor | None:
        logits: Tensor | None = original(self, *args, **kwargs)
        if logits is not None:  # processes of a spread model but the first have none
            logits[..., getattr(self, "tokens_of_tokenizer", logits.shape[-1]) :] = -torch.inf
        return logits

    compute_logits.forbids_surplus = True  # type: ignore[attr-defined]
    kind.compute_logits = compute_logits


def reload_weights(llm: Any, weights: Sequence[tuple[str, Tensor]]) -> None:
    """Puts new weights, named as in a checkpoint, in the place of the old ones.

    ``LLM.update_weights`` (in 0.26; from 0.32 on in a mixin) does the same for weights that another
    process sends by NCCL or CUDA's IPC; here they are in this process, or in the object store.
    """
    llm.collective_rpc("reload_weights", kwargs={"weights_iterator": list(weights)})
    llm.apply_model(_repack_head)


def _repack_head(model: Any) -> None:
    """Runs in vLLM's worker. The CPU's kernel has a packed copy of a tied output layer, which
    nothing else renews."""
    head = getattr(model, "lm_head", None)
    if head is not None and head.weight.device.type == "cpu":
        head.quant_method.process_weights_after_loading(head)


def set_version(llm: Any, version: int) -> None:
    """Tells vLLM which weights it has, so that it notes them beside its tokens; releases before
    0.32 cannot."""
    if hasattr(llm, "set_weight_version"):
        llm.set_weight_version(str(version))


def versions(part: Any) -> set[str]:
    """Versions of the weights that a turn's tokens are from, where vLLM says so: of whole turns."""
    return {span.version for span in getattr(part, "weight_versions", None) or ()}


# -- CPU ---------------------------------------------------------------------------------------


def _prepare_cpu() -> None:
    """Mends what keeps vLLM's CPU build from starting, or from being right, beside our packages."""
    try:
        from vllm.triton_utils import dispatcher
    except ImportError:
        pass  # 0.26 has none, and needs no mending
    else:
        # It looks at the attributes of every object of every module, and llvmlite (which numba
        # brings) has one whose answer to that is no dictionary.
        dispatcher.vars = _attributes
    # Else sampling would wait for a C++ compiler.
    torch._dynamo.config.disable = True
    _flatten_rotary()


def _attributes(value: Any) -> Mapping[str, Any]:
    fields = vars(value)
    return fields if isinstance(fields, Mapping) else {}


def _flatten_rotary() -> None:
    """Gives vLLM's rotary kernel for CPUs the layout that is right for all models: (tokens, heads *
    size). It is silently wrong for those that bring (tokens, heads, size), such as Lfm2."""
    from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

    original = RotaryEmbedding.forward_cpu
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def forward_cpu(
        self: Any, positions: Tensor, query: Tensor, key: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        tokens = positions.numel()
        # (tokens, heads, size) -> (tokens, heads * size), and back below.
        flat = None if key is None else key.reshape(tokens, -1)
        turned, turned_key = original(self, positions, query.reshape(tokens, -1), flat)
        return turned.view(query.shape), None if key is None else turned_key.view(key.shape)

    RotaryEmbedding.forward_cpu = forward_cpu
