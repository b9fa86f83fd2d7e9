"""What ``ssp plan`` counts for a learner or an engine on a CPU against the memory that it takes.

Each case is a process of its own. It first does the same with a very small policy, so that
libraries are loaded and kernels chosen. A learner then makes a policy, its reference and its
optimizer, and updates it twice, the second time with the optimizer's moments there and with the
gradient norm of each role measured. An engine plays all trajectories of a round to their longest,
in turns of unequal lengths with documents between them. What counts is by how much the process then
grows, at most, with the C library's allocator as it is and with one setting of it that gives memory
back.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from agents.columns import columns_of
from agents.config import LearningConfig
from agents.engines.base import Request, StopRule
from agents.engines.transformers_engine import TransformersEngine
from agents.planning.plan import Job, Layout, Planner
from agents.rows import Row
from agents.scoring import TokenScorer, checkpoint_layers
from agents.update import Update, adam
from benchmarks.origin import origin
from ssp_env.game.config import GameConfig
from ssp_env.tokenizers.bytes import ByteTokenizer

ATTEMPTS = 4
TURN = 32
"""Tokens of a turn, about, and of what is found after it."""
STEPS = (0, 10)
"""Numbers of the updates; both measure the gradient norm of each role."""


@dataclass(frozen=True)
class Case:
    """A policy of Qwen2.5's kind and the rows that it learns from."""

    hidden: int
    inner: int
    layers: int
    vocabulary: int
    prompt: int
    response: int
    per_pass: int
    """Rows of a micro-batch; an update has two."""
    checkpointing: bool = False
    plays: int = 0
    """Trajectories that an engine plays side by side; 0: a learner learns."""

    @property
    def config(self) -> Qwen2Config:
        """The `transformers` config."""
        return Qwen2Config(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=self.inner,
            num_hidden_layers=self.layers,
            num_attention_heads=self.hidden // 64,
            num_key_value_heads=self.hidden // 128,
            tie_word_embeddings=True,
        )

    @property
    def learning(self) -> LearningConfig:
        """As a run would have it."""
        return LearningConfig(
            microbatch_tokens=self.per_pass * (self.prompt + self.response),
            gradient_checkpointing=self.checkpointing,
            precision="float32",
        )

    @property
    def job(self) -> Job:
        """What is planned: a learner and an engine in processes of their own, on a CPU."""
        game = GameConfig(
            attempts=ATTEMPTS,
            max_prompt_tokens=self.prompt,
            max_response_tokens=self.response,
            top_k=1,
            max_document_tokens=TURN,
            verifier="none",
        )
        questions = max(1, self.plays // ATTEMPTS)
        learning = replace(self.learning, batch_size=questions, minibatches=1)
        layout = Layout(learners=1, env_runners=1)
        return Job(game, learning, layout, autocast=None, attention="eager")


SMALL = Case(256, 1024, 8, 32_000, 128, 384, 4)
CASES = {
    "48M, 4 rows of 256": Case(512, 2048, 8, 32_000, 128, 128, 4),
    "15M, 2 rows of 1024, checkpointed": replace(
        SMALL, prompt=512, response=512, per_pass=2, checkpointing=True
    ),
    "15M, engine, 16 trajectories of 512": replace(SMALL, plays=16),
}
ALLOCATORS: dict[str, dict[str, str]] = {
    "as it is": {},
    "giving back at once": {"MALLOC_MMAP_THRESHOLD_": "65536"},
}
"""The C library keeps what was freed for later, in pieces that are not always of use. Told to map
larger pieces by themselves, it gives them back: what then is resident is what tensors hold."""
WARM = Case(128, 256, 2, 512, 32, 32, 2)


def main() -> int:
    """Runs each case and writes what came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--case", choices=CASES, help="measures this one alone, in this process")
    settings = parser.parse_args()
    torch.set_num_threads(1)
    if settings.case:
        print(json.dumps(measured(CASES[settings.case])))
        return 0

    found = {}
    for name in settings.cases:
        planner = Planner(CASES[name].config)
        device = planner.plan(CASES[name].job).devices[1 if CASES[name].plays else 0]
        grown = {how: in_a_process(name, change) for how, change in ALLOCATORS.items()}
        found[name] = {
            "parameters": planner.size.parameters,
            "planned_bytes": device.total,
            "planned_parts": device.parts,
            "resident": grown,
            "planned_over_peak": {n: device.total / g["peak_bytes"] for n, g in grown.items()},
        }
        print(name, json.dumps(found[name], indent=2), flush=True)

    result = {
        **origin("plan_memory"),
        "threads": 1,
        "seed": 0,
        "cases": found,
    }
    if settings.out:
        settings.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0


def in_a_process(name: str, environment: dict[str, str]) -> dict[str, int]:
    """What a case takes, with these settings of the allocator."""
    command = [sys.executable, "-m", "benchmarks.plan_memory", "--case", name]
    run = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    grown: dict[str, int] = json.loads(run.stdout.splitlines()[-1])
    return grown


def measured(case: Case) -> dict[str, int]:
    """Bytes by which this process grows, in the end and at most."""
    work = play if case.plays else learn
    work(replace(WARM, plays=min(case.plays, ATTEMPTS)))
    trim()
    # The kernel forgets the peak so far.
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    kept = work(case)
    peak, after = resident("VmHWM"), resident("VmRSS")
    del kept
    return {"peak_bytes": peak - before, "kept_bytes": after - before, "before_bytes": before}


def learn(case: Case) -> tuple[Any, ...]:
    """Makes everything and updates; returns what a learner keeps between updates."""
    torch.manual_seed(0)
    policy, reference = (
        TokenScorer(model(case), 1.0, case.vocabulary, entropies=entropies)
        for entropies in (True, False)
    )
    reference.requires_grad_(False)
    if case.checkpointing:
        checkpoint_layers(policy)
    optimizer = adam(policy.parameters(), case.learning)
    update = Update(policy, optimizer, case.learning, reference=reference)
    columns = {name: torch.as_tensor(column) for name, column in random_columns(case).items()}
    for step in STEPS:
        update(columns, step)
    return policy, reference, optimizer


def play(case: Case) -> tuple[Any, ...]:
    """Plays all trajectories to their longest; returns the engine."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    engine = TransformersEngine(model(case, "sdpa"), ByteTokenizer(), StopRule(frozenset(), ()))
    longest = case.prompt + case.response

    def request(key: int, ids: list[int]) -> Request:
        room = min(int(rng.integers(TURN // 2, 2 * TURN)), longest - len(ids))
        return Request(key, ids, room, 1.0, key * longest + len(ids))

    asked = {n: request(n, rng.integers(0, 256, case.prompt).tolist()) for n in range(case.plays)}
    engine.submit([*asked.values()])
    due: list[Request] = []
    while engine.running or due:
        for key, generation in engine.step():
            ids = [*asked[key].ids, *generation.ids]
            ids += rng.integers(0, 256, min(TURN, max(0, longest - 1 - len(ids)))).tolist()
            if len(ids) < longest:
                asked[key] = request(key, ids)
                due.append(asked[key])
            else:
                engine.release([key])

        # As a rollout does with services of its own process.
        if len(due) >= engine.running / 2:
            engine.submit(due)
            due = []
    return (engine,)


def model(case: Case, attention: str = "eager") -> Any:
    """Random weights."""
    return AutoModelForCausalLM.from_config(
        case.config, attn_implementation=attention, dtype=torch.float32
    ).eval()


def random_columns(case: Case) -> dict[str, np.ndarray]:
    """Rows of both roles, all of one length: two micro-batches."""
    rng = np.random.default_rng(0)
    length, count = case.prompt + case.response, 2 * case.per_pass
    mask = np.zeros(length, dtype=np.uint8)
    mask[case.prompt :] = 1
    logprobs = np.log(1 / case.vocabulary) * mask.astype(np.float32)
    return columns_of(
        [
            Row(
                rng.integers(0, case.vocabulary, length).astype(np.int32),
                mask,
                logprobs,
                ("proposer", "solver")[game % 2],
                game,
                float(rng.normal()),
                1 / (count * case.response),
            )
            for game in range(count)
        ]
    )


def trim() -> None:
    """Gives what the allocator keeps for later back to the system."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)


def resident(field: str) -> int:
    """A figure of this process's memory, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


if __name__ == "__main__":
    sys.exit(main())
