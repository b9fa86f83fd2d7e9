"""Sampling by vLLM in this process: continuous batching, paged attention, a prefix cache.

vLLM is asked for tokens alone. Where a turn ends is decided here, as for every engine, from the
bytes behind the ids: vLLM's own stop strings need its tokenizer, and do not see what began before
the turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from ssp_agents.checksums import check_weights
from ssp_agents.engines import vllm_compat as compat
from ssp_agents.engines.base import Generation, Request, StopRule, Turn
from ssp_agents.models import (
    as_tensor,
    is_adapter,
    load_model,
    merged,
    save_adapters,
    state_of,
)
from ssp_env.errors import ModelError, ServiceError, UsageError
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Role

# 256 MiB of keys and values, where vLLM runs on a CPU.
_CPU_CACHE_BYTES = 2**28
# Layer types of attention, as configs of `transformers` name them.
_ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
_ADAPTER = "policy"


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
        adapts: bool = False,
        policy_of: Callable[[str], str] | None = None,
    ) -> None:
        """``llm`` is vLLM's engine, see :func:`open_vllm`; with ``sleeps``, :meth:`sleep` gives its
        memory back, for a learner beside it; with ``adapts``, vLLM plays adapters beside the
        model, and with ``policy_of`` several of them: it names the one of each role."""
        self._llm, self._dtype, self._sleeps, self._adapts = llm, dtype, sleeps, adapts
        self._tokenizer, self._stop, self._model_dir = tokenizer, stop, model_dir
        self._base: dict[str, Tensor] | None = None
        self._policy_of = policy_of
        self._adapters: dict[str, TemporaryDirectory[str]] = {}
        """Adapters that are played, as vLLM reads them, by their policy."""
        self._asleep: set[str] = set()
        self.weights_version = 0
        self._turns: dict[str, Turn] = {}
        self._names: dict[int, str] = {}
        self._asked = 0
        self._failure: str | None = None
        """Failure of vLLM's that no step has raised yet."""
        self._lacks_weights: str | None = None
        """Why it does not have the weights of this version."""

        compat.set_version(llm, 0)
        self._tied = compat.ties(llm)
        # Logits that belong to no token of the tokenizer must never be sampled.
        surplus = compat.logits(llm) - tokenizer.vocab_size
        if surplus < 0:
            raise ModelError(
                f"the tokenizer of {model_dir} has {tokenizer.vocab_size} tokens and its model "
                f"{-surplus} logits fewer: take the tokenizer that the model was trained with"
            )
        if surplus:
            compat.forbid_surplus(llm, tokenizer.vocab_size)

    @property
    def running(self) -> int:
        return len(self._turns)

    def submit(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if request.key in self._names:
                raise UsageError("two requests that run at once have the same key")

            self._asked += 1
            # A key comes again with the next turn, and vLLM may still report on the last one.
            name = f"{request.key}-{self._asked}"
            turn = Turn(request, self._stop, self._tokenizer)
            parameters = self._parameters(request)
            with self._calling():
                prompt = {"prompt_token_ids": turn.prompt}
                self._llm.add_request(
                    name, prompt, parameters, lora_request=self._adapter(request.role)
                )
            self._turns[name], self._names[request.key] = turn, name

    def step(self) -> list[tuple[int, Generation]]:
        outputs = []
        if not (self._failure or self._lacks_weights):
            with self._calling():
                outputs = self._llm.step()
        if failure := self._failure or self._lacks_weights:
            raise self._outage(failure)

        # Turns that are over, and those of them that vLLM would go on with.
        finished, beyond = [], []
        for output in outputs:
            turn = self._turns.get(output.request_id)
            if turn is None:
                continue

            (part,) = output.outputs
            self._check_versions(part)
            self._record(turn, part.token_ids, part.logprobs)
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
        """Takes new weights. Adapters alone are played beside the model, where vLLM can, else they
        are merged into the weights of the model directory."""
        if self._turns:
            raise UsageError(f"{len(self._turns)} requests still run with the old weights")
        policies = {
            name: self._tensors_of(weights)
            for name, weights in (state if self._policy_of else {_ADAPTER: state}).items()
        }

        # What failed before says nothing of these weights: the next step tells it.
        before, self._failure = self._failure, None
        with self._calling():
            # The memory of weights alone: that of the cache is taken back by ``wake``.
            self._wake("weights")
            for name, tensors in policies.items():
                if self._adapts:
                    self._load_adapters(name, tensors)
                else:
                    self._load_weights(tensors)
            if not self._llm.reset_prefix_cache():
                raise ServiceError("engine", "it keeps what it computed with the old weights")
            compat.set_version(self._llm, version)

        # Weights that failed to load are lacking until there are new ones, not for one step alone.
        self._lacks_weights, self._failure = self._failure, before
        self.weights_version = version

    def _tensors_of(self, weights: Mapping[str, Any]) -> dict[str, Tensor]:
        # RLlib's first state also has what is frozen beneath adapters.
        adapted = any(map(is_adapter, weights))
        if self._adapts and not adapted:
            raise UsageError("an engine that plays adapters takes no weights of a whole model")
        return {n: as_tensor(v) for n, v in weights.items() if is_adapter(n) or not adapted}

    def _load_weights(self, state: Mapping[str, Tensor]) -> None:
        if any(map(is_adapter, state)):
            if self._base is None:
                # In the CPU's memory, and of its own: vLLM packs its weights, and forgets them
                # asleep.
                base = state_of(load_model(self._model_dir))
                self._base = {name: tensor.to(self._dtype) for name, tensor in base.items()}
            state = merged(self._base, {name: tensor.cpu() for name, tensor in state.items()})

        # The output layer of a tied model is its embedding.
        tied = {"lm_head.weight"} if self._tied else set()
        weights = [(name, tensor) for name, tensor in state.items() if name not in tied]
        compat.reload_weights(self._llm, weights)

    def _load_adapters(self, policy: str, state: Mapping[str, Tensor]) -> None:
        folder = TemporaryDirectory(prefix="ssp-adapters-")
        save_adapters(state, folder.name)
        # The folder of the adapters before these goes with the object that stood here.
        self._adapters[policy] = folder
        if not self._llm.add_lora(self._lora_request(policy, load_inplace=True)):
            raise ServiceError("engine", "it did not take the adapters")

    def _adapter(self, role: str) -> Any:
        """vLLM's name for the adapters that play a role, as part of a request; ``None`` while there
        are none."""
        policy = self._policy_of(role) if self._policy_of else _ADAPTER
        return self._lora_request(policy) if policy in self._adapters else None

    def _lora_request(self, policy: str, **more: Any) -> Any:
        from vllm.lora.request import LoRARequest

        # vLLM counts adapters from 1. A policy that is loaded again keeps its number.
        number = [*self._adapters].index(policy) + 1
        return LoRARequest(policy, number, self._adapters[policy].name, **more)

    def _check_versions(self, part: Any) -> None:
        """Raises an outage where vLLM, which says so of whole turns, sampled with other weights."""
        strange = compat.versions(part) - {str(self.weights_version)}
        if strange:
            what = f"vLLM sampled with weights of version {', '.join(sorted(strange))}"
            raise self._outage(f"{what}, and version {self.weights_version} was due")

    def sleep(self) -> None:
        """Gives the GPU's memory back, weights included: new ones are to follow. Beneath adapters,
        the model's own wait in the CPU's memory."""
        if self._sleeps and not self._asleep:
            with self._calling():
                self._llm.sleep(level=1 if self._adapts else 2)
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
            logprobs=0,  # of the sampled token alone
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )

    def _record(self, turn: Turn, tokens: Sequence[int], logprobs: Sequence[Any]) -> None:
        for token, entry in zip(tokens, logprobs, strict=True):
            if turn.stopped:
                return  # vLLM was a token ahead
            if token >= self._tokenizer.vocab_size:
                raise self._outage(f"vLLM sampled token {token}, which the tokenizer has not")
            value = entry[token].logprob
            if math.isnan(value):
                version = f"version {self.weights_version}"
                raise self._outage(f"the weights ({version}) give logits that are no numbers")
            turn.take(token, value)


def open_vllm(
    model_dir: str | Path,
    tokenizer: Tokenizer,
    stop: StopRule,
    *,
    on_gpu: bool,
    dtype: torch.dtype,
    memory: float,
    longest: int | None = None,
    sleeps: bool = False,
    tensor_parallel: int = 1,
    lora_rank: int = 0,
    policy_of: Callable[[str], str] | None = None,
) -> VLLMEngine:
    """Starts vLLM in this process with the model of a directory.

    ``memory`` is the share of a GPU's that it may fill; ``longest`` defaults to the model's own
    limit; with ``tensor_parallel`` above 1, as many processes have a GPU each, and all get the
    weights; ``lora_rank`` above 0 is the rank of the adapters that it will be sent; ``policy_of``
    names those of each role, where both roles have their own.

    Raises :class:`~ssp_env.errors.MissingExtra` without vLLM, and
    :class:`~ssp_env.errors.ModelError` where vLLM cannot serve the model or use the GPU.
    """
    check_weights(model_dir)
    given = arguments(
        model_dir,
        on_gpu=on_gpu,
        dtype=dtype,
        memory=memory,
        longest=longest,
        sleeps=sleeps,
        tensor_parallel=tensor_parallel,
    )
    # As many adapters have to be there at once as there are policies.
    count = 1 if policy_of is None else len({policy_of(role) for role in Role})
    adapters = compat.adapter_arguments(model_dir, lora_rank, count, on_gpu=on_gpu)
    if policy_of and not adapters:
        what = f"vLLM plays no adapters of rank {lora_rank} beside the model in {model_dir}"
        raise ModelError(
            f"{what}, and merged it could play one policy alone: set engine.kind=transformers"
        )
    llm = compat.start(model_dir, {**given, **adapters}, on_gpu=on_gpu)
    return VLLMEngine(
        llm,
        model_dir,
        tokenizer,
        stop,
        dtype=dtype,
        sleeps=sleeps,
        adapts=bool(adapters),
        policy_of=policy_of,
    )


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
    """Arguments that vLLM is started with, see :func:`open_vllm`."""
    given: dict[str, Any] = {
        "model": str(model_dir),
        "runner": "generate",
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


def _hybrid(model_dir: str | Path) -> bool:
    """True if a model has other layers than attention: vLLM cuts their prompts to cache them."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model_dir, local_files_only=True).get_text_config()
    return bool(set(getattr(config, "layer_types", None) or ()) - _ATTENTION)
