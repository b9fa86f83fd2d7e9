"""Sampling by vLLM in this process: continuous batching, paged attention, a prefix cache.

vLLM is asked for tokens alone. Where a turn ends is decided here, as for every engine, from the
bytes behind the ids: vLLM's own stop strings need its tokenizer, and do not see what began before
the turn.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ssp_agents.engines.base import Generation, Request, StopRule, Turn
from ssp_agents.models import as_tensor, check_weights, is_adapter, load_model, merged, state_of
from ssp_env.errors import MissingExtra, ModelError, ServiceError, UsageError
from ssp_env.tokenizers.base import Tokenizer

ENVIRONMENT = {
    # In one process, weights are handed over as tensors.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""Environment of vLLM, unless it says something else there."""
_CPU_CACHE_BYTES = 2**28
_MOST_BIASED = 1024
"""Token ids that vLLM's sampler on GPUs takes in a request's list, of any kind."""


class VLLMEngine:
    """vLLM as an :class:`~ssp_agents.engines.base.Engine`, one a process: the first that goes takes
    down what others need.

    A prompt that begins like an earlier one is not computed again, whatever its key. Whatever vLLM
    fails in, the next :meth:`step` tells as an outage. Where it failed to take weights, so do all
    steps until it has new ones: nothing is sampled from others.
    """

    def __init__(
        self,
        llm: Any,
        model_dir: str | Path,
        tokenizer: Tokenizer,
        stop: StopRule,
        *,
        dtype: torch.dtype = torch.float32,
        sleeps: bool = False,
    ) -> None:
        """``llm`` is vLLM's engine, see :func:`start`; with ``sleeps``, :meth:`sleep` gives its
        memory back, for a learner beside it."""
        self._llm, self._dtype, self._sleeps = llm, dtype, sleeps
        self._tokenizer, self._stop, self._model_dir = tokenizer, stop, model_dir
        self._base: dict[str, Tensor] | None = None
        self._asleep: set[str] = set()
        self.weights_version = 0
        self._turns: dict[str, Turn] = {}
        self._names: dict[int, str] = {}
        self._asked = 0
        self._failure: str | None = None
        """Failure of vLLM's that no step has raised yet."""
        self._lacks_weights: str | None = None
        """Why it does not have the weights of this version."""

        self._tell_version(0)
        config = llm.model_config.hf_text_config
        self._tied = bool(getattr(config, "tie_word_embeddings", False))
        self._bias = surplus_bias(config.vocab_size, tokenizer.vocab_size)

    @property
    def running(self) -> int:
        return len(self._turns)

    def submit(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if request.key in self._names:
                raise UsageError("two requests that run at once have the same key")

            self._asked += 1
            name = f"{request.key}-{self._asked}"
            turn = Turn(request, self._stop, self._tokenizer)
            parameters = self._parameters(request)
            with self._calling():
                self._llm.add_request(name, {"prompt_token_ids": turn.prompt}, parameters)
            self._turns[name], self._names[request.key] = turn, name

    def step(self) -> list[tuple[int, Generation]]:
        outputs = []
        if not (self._failure or self._lacks_weights):
            with self._calling():
                outputs = self._llm.step()
        if failure := self._failure or self._lacks_weights:
            raise self._outage(failure)

        finished, beyond = [], []
        for output in outputs:
            turn = self._turns.get(output.request_id)
            if turn is None:
                continue

            (part,) = output.outputs
            self._check_versions(part)
            self._take(turn, part.token_ids, part.logprobs)
            if turn.stopped and not output.finished:
                beyond.append(output.request_id)
            if turn.stopped or output.finished:
                del self._turns[output.request_id], self._names[turn.key]
                finished.append((turn.key, turn.generation))

        self._abort(beyond)
        return finished

    def release(self, keys: Iterable[int]) -> None:
        names = [name for key in keys if (name := self._names.pop(key, None)) is not None]
        for name in names:
            del self._turns[name]
        self._abort(names)

    def update_weights(self, state: Mapping[str, Any], version: int) -> None:
        """Takes new weights; adapters are merged into those of the model directory, so that vLLM
        samples at the speed of a plain model."""
        if self._turns:
            raise UsageError(f"{len(self._turns)} requests still run with the old weights")

        # The output layer of a tied model is its embedding.
        weights = [
            (name, as_tensor(value))
            for name, value in self._plain(state).items()
            if not (self._tied and name == "lm_head.weight")
        ]
        with self._calling():
            self._wake("weights")
            self._llm.collective_rpc(_reload, args=(weights,))
            if not self._llm.reset_prefix_cache():
                raise ServiceError("engine", "it keeps what it computed with the old weights")
            self._tell_version(version)

        self._lacks_weights, self._failure = self._failure, None
        self.weights_version = version

    def _tell_version(self, version: int) -> None:
        # So that it notes which weights its tokens are from; releases before 0.32 cannot.
        if hasattr(self._llm, "set_weight_version"):
            self._llm.set_weight_version(str(version))

    def _check_versions(self, part: Any) -> None:
        """Raises an outage where vLLM, which says so of whole turns, sampled with other weights."""
        spans = getattr(part, "weight_versions", None) or ()
        strange = {span.version for span in spans} - {str(self.weights_version)}
        if strange:
            what = f"vLLM sampled with weights of version {', '.join(sorted(strange))}"
            raise self._outage(f"{what}, and version {self.weights_version} was due")

    def _plain(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Weights as a plain model names them, of a model or of its adapters alone."""
        if not any(is_adapter(name) for name in state):
            return state

        if self._base is None:
            # In the CPU's memory, and of its own: vLLM packs its weights, and forgets them asleep.
            base = state_of(load_model(self._model_dir))
            self._base = {name: tensor.to(self._dtype) for name, tensor in base.items()}
        return merged(self._base, {name: as_tensor(value).cpu() for name, value in state.items()})

    def sleep(self) -> None:
        """Gives the GPU's memory back, weights included: new ones are to follow."""
        if self._sleeps and not self._asleep:
            with self._calling():
                self._llm.sleep(level=2)
                self._asleep = {"weights", "kv_cache"}

    def wake(self) -> None:
        """Takes back the memory for what is computed."""
        if self._lacks_weights:
            return  # the next step says why
        if "weights" in self._asleep:
            raise UsageError("an engine that sleeps gets new weights before it wakes")
        with self._calling():
            self._wake("kv_cache")

    def _wake(self, part: str) -> None:
        if part in self._asleep:
            self._llm.wake_up(tags=[part])
            self._asleep.remove(part)

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Keeps what vLLM fails with for the next step to tell. That may be anything: an error of
        CUDA's, one of memory, a failed assertion, vLLM's own ``EngineDeadError``."""
        try:
            yield
        except Exception as error:
            said = error.what if isinstance(error, ServiceError) else repr(error)
            self._failure = self._failure or f"vLLM failed: {said}"

    def _outage(self, what: str) -> ServiceError:
        """Ends all that runs, and what was kept of this failure."""
        self.release([*self._names])
        self._failure = None
        return ServiceError("engine", what)

    def _abort(self, names: Sequence[str]) -> None:
        if names:
            with self._calling():
                self._llm.abort_request([*names])

    def _parameters(self, request: Request) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=request.temperature,
            seed=request.seed,
            max_tokens=request.max_new_tokens,
            stop_token_ids=sorted(self._stop.token_ids),
            ignore_eos=True,  # the stop rule names the end tokens
            logit_bias=self._bias,
            logprobs=0,  # of the sampled token alone
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            skip_clone=True,  # of the bias, which takes longer than all the rest
        )

    def _take(self, turn: Turn, tokens: Sequence[int], logprobs: Sequence[Any]) -> None:
        for token, entry in zip(tokens, logprobs, strict=True):
            if turn.stopped:
                return  # vLLM was a token ahead
            value = entry[token].logprob
            if math.isnan(value):
                version = f"version {self.weights_version}"
                raise self._outage(f"the weights ({version}) give logits that are no numbers")
            turn.take(token, value)


def arguments(
    model_dir: str | Path,
    *,
    on_gpu: bool,
    dtype: torch.dtype,
    memory: float,
    longest: int | None,
    sleeps: bool,
    tensor_parallel: int,
) -> dict[str, Any]:
    """Arguments that vLLM is started with.

    ``memory`` is the share of a GPU's that it may fill; ``longest`` defaults to the model's own
    limit; with ``tensor_parallel`` above 1, as many processes have a GPU each, and all get the
    weights."""
    given: dict[str, Any] = {
        "model": str(model_dir),
        "skip_tokenizer_init": True,
        "dtype": dtype,
        "tensor_parallel_size": tensor_parallel,
        "max_model_len": longest,
        "generation_config": "vllm",  # else the model's own end tokens would stop turns
        "logprobs_mode": "processed_logprobs",  # of the distribution sampled from
        "enable_prefix_caching": True,
        "enable_sleep_mode": sleeps,
        "seed": 0,
    }
    if on_gpu:
        return {**given, "gpu_memory_utilization": memory}

    # A prompt that is cut would need generators that can go back, which CPU's cannot.
    whole = {"enable_chunked_prefill": False, "enable_prefix_caching": not _hybrid(model_dir)}
    return {**given, **whole, "enforce_eager": True, "kv_cache_memory_bytes": _CPU_CACHE_BYTES}


def surplus_bias(logits: int, tokens: int) -> dict[int, float] | None:
    """Bias that keeps vLLM from sampling logits behind which there is no token, of which models
    often have some hundred; a list of the allowed tokens would be longer than the sampler takes."""
    if not 0 <= logits - tokens <= _MOST_BIASED:
        raise ModelError(
            f"the tokenizer has {tokens} tokens and the model {logits} logits; vLLM needs at least "
            f"as many logits, and at most {_MOST_BIASED} more: resize the model's embeddings"
        )
    return dict.fromkeys(range(tokens, logits), -100.0) or None


def _hybrid(model_dir: str | Path) -> bool:
    """True if a model has other layers than attention: vLLM cuts their prompts to cache them."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model_dir, local_files_only=True)
    return bool(set(getattr(config, "layer_types", None) or ()) - {"full_attention"})


def start(model_dir: str | Path, *, on_gpu: bool, **given: Any) -> Any:
    """vLLM's engine, in this process; see :func:`arguments`."""
    check_weights(model_dir)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        from vllm import LLM
    except ImportError as error:
        raise MissingExtra("engine.kind=vllm", "gpu") from error

    if not on_gpu:
        _prepare_cpu()
    try:
        return LLM(**arguments(model_dir, on_gpu=on_gpu, **given)).llm_engine
    except Exception as error:  # of any type: CUDA's, one of memory, a failed assertion
        raise ModelError(f"vLLM cannot serve the model in {model_dir}: {error!r}") from error


def _reload(worker: Any, weights: Sequence[tuple[str, Tensor]]) -> None:
    """Runs in vLLM's worker: puts new weights in the place of the old ones."""
    worker.model_runner.reload_weights(weights_iterator=iter(weights))

    head = getattr(worker.model_runner.get_model(), "lm_head", None)
    if head is not None and head.weight.device.type == "cpu":
        # The CPU's kernel has a packed copy of a tied output layer, which nothing else renews.
        head.quant_method.process_weights_after_loading(head)


def _prepare_cpu() -> None:
    """Mends what keeps vLLM's CPU build from starting, or from being right, beside our packages."""
    from vllm.triton_utils import dispatcher

    # It looks at the attributes of every object of every module, and llvmlite (which numba brings)
    # has one whose answer to that is no dictionary.
    dispatcher.vars = _attributes
    # Else sampling would wait for a C++ compiler.
    torch._dynamo.config.disable = True
    _flatten_rotary()


def _attributes(value: Any) -> Mapping[str, Any]:
    held = vars(value)
    return held if isinstance(held, Mapping) else {}


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
        flat = None if key is None else key.reshape(tokens, -1)
        turned, turned_key = original(self, positions, query.reshape(tokens, -1), flat)
        return turned.view(query.shape), None if key is None else turned_key.view(key.shape)

    RotaryEmbedding.forward_cpu = forward_cpu
