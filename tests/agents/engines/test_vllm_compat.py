"""Canaries for the parts of vLLM that :mod:`ssp_agents.engines.vllm_compat` and the engine touch.

They import vLLM and start nothing, so they also run where its kernels cannot. Each one names what
an upgrade took away, and what that is needed for. The errors of a start are tested without vLLM.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, get_args

import pytest
import torch
from transformers import Qwen2Config

from ssp_agents.engines import vllm_compat as compat
from ssp_agents.engines.vllm_engine import arguments
from ssp_env.errors import MissingExtra, ModelError

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
START: dict[str, Any] = {"dtype": torch.float32, "memory": 0.4, "longest": 99}
START |= {"sleeps": False, "tensor_parallel": 1}


def found(place: str, *names: str) -> Any:
    """What vLLM has in a module, below names; the test fails with what is lacking."""
    import vllm

    part: Any = import_module(place)
    for name in names:
        if not hasattr(part, name):
            where = f"{place}: {'.'.join(names)}"
            pytest.fail(f"vLLM {vllm.__version__} took away {name} of {where}")
        part = getattr(part, name)
    return part


def takes(call: Any, *parameters: str) -> None:
    """Fails unless a call has these parameters."""
    lacking = set(parameters) - set(inspect.signature(call).parameters)
    assert not lacking, f"vLLM's {call.__qualname__} does not take {sorted(lacking)} any more"


def says(part: Any, *texts: str) -> None:
    """Fails unless the source of a part has these texts."""
    source = inspect.getsource(part)
    for text in texts:
        assert text in source, f"vLLM's {part.__name__} has no {text!r} any more"


@needs_vllm
@pytest.mark.parametrize("on_gpu", [False, True])
def test_arguments_of_the_start(model_dir: Path, on_gpu: bool) -> None:
    fields = {field.name for field in dataclasses.fields(found("vllm", "EngineArgs"))}
    adapters = {"enable_lora", "max_lora_rank", "max_loras", "max_cpu_loras"}
    lacking = ({*arguments(model_dir, on_gpu=on_gpu, **START)} | adapters) - fields
    assert not lacking, f"vLLM is not started with {sorted(lacking)} any more"
    says(found("vllm", "LLM", "__init__"), "self.llm_engine")


@needs_vllm
def test_calls_of_the_engine() -> None:
    engine = found("vllm.v1.engine.llm_engine", "LLMEngine")
    for name, parameters in {
        "add_request": ("request_id", "prompt", "params", "lora_request"),
        "step": (),
        "abort_request": ("request_ids",),
        "collective_rpc": ("method", "kwargs"),
        "apply_model": ("func",),
        "reset_prefix_cache": (),
        "sleep": ("level",),
        "wake_up": ("tags",),
        "add_lora": ("lora_request",),
    }.items():
        takes(found("vllm.v1.engine.llm_engine", "LLMEngine", name), *parameters)
    says(engine.__init__, "model_config")
    found("vllm.config", "ModelConfig")
    says(found("vllm.config.model", "ModelConfig"), "self.hf_text_config =")


@needs_vllm
def test_parameters_of_a_request() -> None:
    takes(
        found("vllm", "SamplingParams"),
        *("temperature", "seed", "max_tokens", "stop_token_ids", "ignore_eos"),
        *("logprobs", "detokenize", "output_kind"),
    )
    found("vllm.sampling_params", "RequestOutputKind", "DELTA")
    takes(found("vllm.lora.request", "LoRARequest"), "load_inplace")


@needs_vllm
def test_adapters_need_the_model_s_class_and_the_ranks() -> None:
    found("vllm", "EngineArgs", "create_model_config")
    registry = type(found("vllm", "ModelRegistry"))
    takes(registry.resolve_model_cls, "architectures", "model_config")
    found("vllm.model_executor.models.interfaces", "supports_lora")
    assert get_args(found("vllm.config.lora", "MaxLoRARanks")) == compat._RANKS


@needs_vllm
def test_all_model_runners_take_their_logits_from_one_method_of_the_model() -> None:
    """Else logits beyond the tokenizer could be sampled."""
    pytest.importorskip("triton", reason="vLLM's runners for GPUs import triton")
    for place in ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.model_runner"):
        says(found(place, "GPUModelRunner"), "self.model.compute_logits(")
    fields = {f.name: f for f in dataclasses.fields(found("vllm", "EngineArgs"))}
    if "enable_batch_sharded_sampling" in fields:  # since 0.32; it would go past that method
        assert not fields["enable_batch_sharded_sampling"].default


@needs_vllm
def test_weights_are_reloaded_from_tensors() -> None:
    says(found("vllm.v1.worker.gpu_worker", "Worker", "reload_weights"), "model_runner", "kwargs")
    runner = found("vllm.v1.worker.gpu_model_runner", "GPUModelRunner", "reload_weights")
    takes(runner, "weights_iterator")
    place = "vllm.model_executor.layers.vocab_parallel_embedding"
    found(place, "UnquantizedEmbeddingMethod", "process_weights_after_loading")
    found("vllm.v1.worker.worker_base", "WorkerBase", "apply_model")


@needs_vllm
def test_versions_of_weights_are_noted_since_0_32() -> None:
    import vllm

    if tuple(map(int, vllm.__version__.split(".")[:2])) < (0, 32):
        pytest.skip("vLLM notes them from 0.32 on")
    found("vllm.v1.engine.llm_engine", "LLMEngine", "set_weight_version")
    fields = {f.name for f in dataclasses.fields(found("vllm.outputs", "CompletionOutput"))}
    assert "weight_versions" in fields, "vLLM's outputs do not name their weights any more"


@needs_vllm
def test_what_is_mended_for_the_cpu() -> None:
    if find_spec("vllm.triton_utils.dispatcher"):
        says(found("vllm.triton_utils.dispatcher"), "vars(")
    assert isinstance(torch._dynamo.config.disable, bool)
    rotary = found("vllm.model_executor.layers.rotary_embedding.base", "RotaryEmbedding")
    takes(inspect.unwrap(rotary.forward_cpu), "positions", "query", "key")


@needs_vllm
def test_what_vllm_says_of_models_that_it_does_not_know() -> None:
    unknown, silent = compat._UNKNOWN
    says(import_module("vllm.model_executor.models.registry"), unknown)
    says(import_module("vllm.config.model"), silent)


# -- without vLLM ------------------------------------------------------------------------------


def test_without_vllm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingExtra, match=r"engine.kind=vllm .*ssp-env\[gpu\]"):
        compat.start("nowhere", {}, on_gpu=True)


def test_a_vllm_that_does_not_fit_pytorch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise ImportError("libcudart.so.13: cannot open shared object file")

    monkeypatch.setitem(sys.modules, "vllm", Broken("vllm"))
    with pytest.raises(ModelError, match=r"beside PyTorch .*libcudart.*engine\.kind=transformers"):
        compat.start("nowhere", {}, on_gpu=True)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            RuntimeError("CUDA error: no kernel image is available for execution on the device"),
            r"vLLM 0\.9 has no code for this GPU \(.*\): .*engine\.kind=transformers",
        ),
        (
            ValueError("Model architectures ['NewForCausalLM'] are not supported for now. Sup"),
            r"vLLM 0\.9 has no code for the model in .* \(NewForCausalLM\): set engine\.kind",
        ),
        (
            ValueError("This model does not support `--runner generate`."),
            r"vLLM 0\.9 has no code for the model in .* \(NewForCausalLM\): set engine\.kind",
        ),
        (AssertionError("no\nroom"), r"vLLM cannot serve the model in .*: AssertionError: no room"),
    ],
)
def test_why_vllm_does_not_start_is_one_sentence(
    error: Exception, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where vLLM raises something else because of it."""

    def start(**_: Any) -> None:
        try:
            raise error
        except Exception as first:
            if isinstance(first, AssertionError):
                raise
            raise RuntimeError("Engine core initialization failed") from first

    Qwen2Config(architectures=["NewForCausalLM"]).save_pretrained(tmp_path)
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=start, __version__="0.9"))
    with pytest.raises(ModelError, match=sentence) as raised:
        compat.start(tmp_path, {}, on_gpu=True)
    assert "\n" not in str(raised.value)
