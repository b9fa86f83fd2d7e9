"""The sides of ``real_speed``: the engine, another checkout's, and a loop over the model alone,
all of them with one model in one process."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from ssp_agents.engines.base import Engine
from ssp_env.tokenizers.base import Tokenizer

PROMPTS = 4
OPERATIONS = (
    "aten::linear",
    "aten::scaled_dot_product_attention",
    "aten::scatter_",
    "aten::index_put_",
    "aten::cat",
    "aten::cumsum",
    "aten::log_softmax",
    "aten::logsumexp",
    "aten::multinomial",
)


def engine_of(checkout: Path) -> ModuleType:
    """The module of the transformers engine of another checkout, beside this one's: its cache and
    requests are its own, all else is this checkout's."""
    module = ModuleType("")
    for name in ("base", "ragged_cache", "transformers_engine"):
        path = checkout / "agents" / "ssp_agents" / "engines" / f"{name}.py"
        source = path.read_text(encoding="utf-8").replace("ssp_agents.engines", "engines_before")
        module = ModuleType(f"engines_before.{name}")
        sys.modules[module.__name__] = module
        exec(compile(source, path, "exec"), module.__dict__)
    return module


@dataclass
class Shape:
    """What is measured."""

    device: str
    rows: list[int]
    length: int
    prompt: int
    steps: int
    seed: int


class Side:
    """What all sides measure, on prompts of random tokens."""

    def __init__(self, shape: Shape, tokenizer: Tokenizer) -> None:
        self.shape, self.tokenizer = shape, tokenizer
        self.rng = np.random.default_rng(shape.seed)
        self.now = time.process_time if shape.device == "cpu" else time.perf_counter

    def text(self, size: int) -> list[int]:
        highest = min(4000, self.tokenizer.vocab_size)
        return self.rng.integers(highest // 4, highest, size).tolist()

    def begin(self, prompt: list[int], rows: int, room: int) -> None:
        """Reads a prompt, and writes a token behind it in each of so many rows."""
        raise NotImplementedError

    def keep(self, rows: int) -> None:
        """Goes on with so many of the rows alone."""
        raise NotImplementedError

    def step(self) -> None:
        """Writes a token in each row."""
        raise NotImplementedError

    def read(self, prompts: list[list[int]]) -> None:
        """Reads prompts, and writes a token behind each."""
        raise NotImplementedError

    def decode(self) -> dict[str, float]:
        """Milliseconds of a step of so many rows, from many to few."""
        found, steps = {}, self.shape.steps
        sizes = sorted(self.shape.rows, reverse=True)
        self.begin(self.text(self.shape.length), sizes[0], 2 + (steps + 1) * len(sizes))
        for rows in sizes:
            self.keep(rows)
            self.step()
            began = self.now()
            for _ in range(steps):
                self.step()
            found[f"{rows} rows"] = round(1000 * (self.now() - began) / steps, 1)
        self.keep(0)
        return found

    def prefill(self) -> dict[str, float]:
        """Tokens read per second: prompts of one length."""
        prompts = [self.text(self.shape.prompt) for _ in range(PROMPTS)]
        return {"tokens per second": self._rate(prompts)}

    def ragged(self) -> dict[str, float]:
        """Tokens read per second, padding left out: most prompts have a quarter to a half of the
        longest ones' tokens."""
        long = 2 * self.shape.prompt
        sizes = [*self.rng.integers(long // 4, long // 2, 3 * PROMPTS), *[long] * (PROMPTS // 2)]
        return {"tokens per second": self._rate([self.text(size) for size in sizes])}

    def _rate(self, prompts: list[list[int]]) -> float:
        began = self.now()
        self.read(prompts)
        spent = self.now() - began
        self.keep(0)
        return round(sum(map(len, prompts)) / spent, 1)

    def profile(self) -> dict[str, float]:
        """Shares of a step's time in some operations, with all that they call."""
        from torch.profiler import ProfilerActivity, profile

        rows = max(self.shape.rows)
        self.begin(self.text(self.shape.length), rows, 9)
        self.step()
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            self.step()
        self.keep(0)
        events = {event.key: event for event in seen.key_averages()}
        whole = sum(event.self_cpu_time_total for event in events.values())
        shares = {
            name.removeprefix("aten::"): round(events[name].cpu_time_total / whole, 3)
            for name in OPERATIONS
            if name in events
        }
        return {**shares, "milliseconds": round(whole / 1000, 1)}


class EngineSide(Side):
    """An engine, by what every engine promises."""

    def __init__(
        self, shape: Shape, tokenizer: Tokenizer, engine: Engine, request: Callable[..., Any]
    ) -> None:
        super().__init__(shape, tokenizer)
        self.engine, self.request, self.rows = engine, request, 0

    def begin(self, prompt: list[int], rows: int, room: int) -> None:
        self.engine.submit([self.request(k, prompt, room, 1.0, k) for k in range(rows)])
        self.rows = rows
        self.engine.step()

    def keep(self, rows: int) -> None:
        self.engine.release(range(rows, self.rows))
        self.rows = rows
        if not rows:
            # The next side needs the memory.
            self.engine.sleep()
            self.engine.wake()

    def step(self) -> None:
        self.engine.step()

    def read(self, prompts: list[list[int]]) -> None:
        self.engine.submit([self.request(k, ids, 2, 1.0, k) for k, ids in enumerate(prompts)])
        self.rows = len(prompts)
        self.engine.step()

    def attempts(self, model: Any) -> dict[str, float]:
        """Tokens read, padding included, per token needed, by eight attempts at one question in
        three turns. Two of them come later; half take the likeliest tokens and find the same."""
        read: list[int] = []

        def count(_: object, __: object, kwargs: dict[str, Any]) -> None:
            # One token a row is what a step writes.
            read.append(kwargs["input_ids"].numel() * (kwargs["input_ids"].shape[1] > 1))

        hook = model.base_model.register_forward_pre_hook(count, with_kwargs=True)
        question, documents = self.text(300), [self.text(150), self.text(150)]
        rows: dict[int, list[int]] = dict.fromkeys(range(8), question)
        asked: set[tuple[int, ...]] = set()
        sampled: set[tuple[int, ...]] = set()
        for turn in range(3):
            requests = [
                self.request(key, ids, 8, float(key % 2), 10 * turn + key)
                for key, ids in rows.items()
            ]
            self.engine.submit(requests[:6])
            found = dict(self.engine.step())
            found |= dict(self.engine.step())
            self.engine.submit(requests[6:])
            while self.engine.running:
                found |= dict(self.engine.step())
            for key, ids in rows.items():
                written = [*ids, *found[key].ids]
                asked |= {tuple(ids[:end]) for end in range(1, len(ids) + 1)}
                sampled |= {tuple(written[:end]) for end in range(len(ids) + 1, len(written))}
                rows[key] = [*written, *documents[turn % 2]]
        hook.remove()
        self.rows = len(rows)
        self.keep(0)
        needed = len(asked - sampled)
        return {"read": sum(read), "needed": needed, "ratio": round(sum(read) / needed, 3)}

    def groupings(self, model: Any) -> dict[str, float]:
        """Twenty requests with seeds, all at once and then in groups: the share of rows that get
        other tokens, and of tokens that are the first other one of their row."""
        rows, room = 20, 20
        prompts = [self.text(int(self.rng.integers(20, 120))) for _ in range(rows)]
        asked = [self.request(key, ids, room, 1.0, key) for key, ids in enumerate(prompts)]
        written: dict[int, list[list[int]]] = {}
        for size in (20, 10, 5):
            found: dict[int, Any] = {}
            for first in range(0, rows, size):
                self.engine.submit(asked[first : first + size])
                while self.engine.running:
                    found |= dict(self.engine.step())
            self.rows = rows
            self.keep(0)
            written[size] = [found[key].ids for key in range(rows)]

        shares = {}
        for size in (10, 5):
            # Tokens up to the first other one, which is among them; all where none is.
            pairs = list(zip(written[20], written[size], strict=True))
            same = [next((i for i in range(room) if a[i] != b[i]), room) for a, b in pairs]
            parted = sum(i < room for i in same)
            shares[f"rows that part, in groups of {size}"] = parted / rows
            compared = sum(min(i + 1, room) for i in same)
            shares[f"tokens that part, in groups of {size}"] = round(parted / compared, 4)
        return shares


class BareSide(Side):
    """The model alone, with the cache of transformers."""

    def __init__(self, shape: Shape, tokenizer: Tokenizer, model: Any) -> None:
        super().__init__(shape, tokenizer)
        self.model = model
        self.seen: Any = None
        self.logits = torch.zeros(0)

    def _take(self, ids: torch.Tensor, **how: Any) -> None:
        seen = self.model(input_ids=ids, use_cache=True, logits_to_keep=1, **how)
        self.seen, self.logits = seen.past_key_values, seen.logits[:, -1]

    def _written(self) -> torch.Tensor:
        logprobs = self.logits.float().log_softmax(-1)
        tokens = torch.multinomial(logprobs.exp(), 1)
        logprobs.gather(1, tokens).tolist()
        return tokens

    @torch.inference_mode()
    def begin(self, prompt: list[int], rows: int, room: int) -> None:
        self._take(torch.tensor([prompt], device=self.model.device))
        self.seen.reorder_cache(torch.zeros(rows, dtype=torch.long, device=self.model.device))
        self.logits = self.logits.expand(rows, -1)

    @torch.inference_mode()
    def keep(self, rows: int) -> None:
        if not rows:
            self.seen, self.logits = None, torch.zeros(0)
        elif rows < len(self.logits):
            self.seen.reorder_cache(torch.arange(rows, device=self.model.device))
            self.logits = self.logits[:rows]

    @torch.inference_mode()
    def step(self) -> None:
        self._take(self._written(), past_key_values=self.seen)

    @torch.inference_mode()
    def read(self, prompts: list[list[int]]) -> None:
        # Padded on the left, as `generate` wants it.
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        places = (mask.cumsum(1) - 1).clamp(min=0)
        padded = {"attention_mask": mask, "position_ids": places} if not mask.all() else {}
        device = self.model.device
        self._take(ids.to(device), **{name: value.to(device) for name, value in padded.items()})
        self._written()
