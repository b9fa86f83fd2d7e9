"""One side of ``trl_speed``: ``python trl_worker.py trl|ours``, one GRPO step per line read.

Both let the tiny policy answer the same questions of the mini-wiki with the same searches, several
attempts each, at temperature 1, and take one optimizer step with a KL to a frozen reference. Of
TRL, this is ``GRPOTrainer`` with a tool: its own generation, loop of calls, masks, losses and step;
a call is what stands between the policy's search tags. Prints CPU-seconds of each step, and what
was written and read in it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import process_time
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

import numpy as np
import torch

from agents.columns import columns_of
from agents.config import LearningConfig
from agents.credit import Credit
from agents.engines.base import StopRule
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model, tiny_directory
from agents.rollout import play
from agents.rows import rows_of, with_loss_weights
from agents.scoring import TokenScorer
from agents.update import Update
from experiments.config import load_preset, make_config
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import Question
from ssp_env.worlds import open_world

QUESTIONS, ATTEMPTS = 32, 5
"""Of a step."""
LR, BETA, LOW, HIGH = 1e-6, 0.01, 0.2, 0.28
STEPS = 40
"""More than anybody asks for."""


@dataclass
class Played:
    """What a step wrote and read."""

    trajectories: int = 0
    tokens: int = 0
    """All of its trajectories, with prompts and documents."""
    own: int = 0
    """Those that the policy wrote."""
    reward: float = 0.0


class Setting:
    """What both sides share: questions, rules, retriever, tokenizer."""

    def __init__(self) -> None:
        game = make_config(load_preset("tiny")).game
        self.tokenizer = HuggingFaceTokenizer.load(tiny_directory())
        game = replace(game, attempts=ATTEMPTS)
        self.rules = Rules.build(open_world("mini"), self.tokenizer, game)
        self.stop = StopRule.of(game, self.tokenizer)
        every = self.rules.world.questions(0, 64)
        order = np.random.default_rng(0).permutation(len(every))
        self.questions = [every[i] for i in order]

    def of_step(self, step: int) -> list[Question]:
        """The questions of a step; they come round again."""
        first = step * QUESTIONS
        return [self.questions[(first + i) % len(self.questions)] for i in range(QUESTIONS)]


# -- ours --------------------------------------------------------------------------------------


def ours(setting: Setting) -> Iterator[Played]:
    """Rollout and update of this package, in a plain loop."""
    learning = LearningConfig(
        batch_size=QUESTIONS,
        minibatches=1,
        learning_roles=("solver",),
        lr=LR,
        kl_coeff=BETA,
        clip_low=LOW,
        clip_high=HIGH,
        importance_cap=None,
        warmup_steps=0,
        # TRL learns from all of them too.
        drop_uniform_groups=False,
    )
    model, size = load_model(tiny_directory()), setting.tokenizer.vocab_size
    policy = TokenScorer(model, 1.0, size)
    reference = TokenScorer(load_model(tiny_directory()), 1.0, size, entropies=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    update = Update(policy, optimizer, learning, reference=reference.requires_grad_(False))
    engine = TransformersEngine(load_model(tiny_directory()), setting.tokenizer, setting.stop)

    for step in range(STEPS):
        round_ = Round.of_questions(setting.rules, setting.of_step(step), [step])
        play(round_, engine, temperature=1.0)
        rows = Credit(learning)(rows_of(round_.games, learning))
        weighted = with_loss_weights(rows, learning, QUESTIONS, ATTEMPTS)
        columns = columns_of(weighted)
        update({name: torch.as_tensor(column) for name, column in columns.items()}, step)
        engine.update_weights(model.state_dict(), step + 1)
        yield Played(
            len(rows),
            sum(len(row.ids) for row in rows),
            sum(row.tokens for row in rows),
            float(np.mean([row.reward for row in rows])),
        )


# -- TRL ---------------------------------------------------------------------------------------


def trl(setting: Setting) -> Iterator[Played]:
    """``GRPOTrainer``, whose steps are those between two of its callbacks."""
    import threading
    from queue import Queue

    # The trainer calls us; a thread lets it be called instead. Only one of both runs at a time.
    done: Queue[Played] = Queue()
    go: Queue[None] = Queue()
    threading.Thread(target=_train, args=(setting, go, done), daemon=True).start()
    while True:
        go.put(None)
        yield done.get()


def _train(setting: Setting, go: Any, done: Any) -> None:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    played = Played()

    def search(query: str) -> str:
        """Searches the encyclopedia.

        Args:
            query: What to look for.

        Returns:
            What was found.
        """
        found = setting.rules.checked.search([query])[0]
        assert not isinstance(found, Exception)
        shown = setting.rules.prompts.information(found, setting.rules.config.max_document_tokens)
        return setting.tokenizer.decode(shown)

    def reward(
        prompts: Any, completions: Any, completion_ids: Any, answers: Any, **_: Any
    ) -> list[float]:
        lengths = zip(prompts, completion_ids, strict=True)
        played.trajectories = len(completions)
        played.tokens = sum(
            len(setting.tokenizer.encode(p[0]["content"])) + len(ids) for p, ids in lengths
        )
        paid = [
            float(_between(c[-1]["content"], "answer") in right)
            for c, right in zip(completions, answers, strict=True)
        ]
        played.reward = float(np.mean(paid))
        return paid

    class Turns(TrainerCallback):  # type: ignore[misc]
        def on_log(self, *_: Any, logs: Any = None, **__: Any) -> None:
            if "completions/mean_length" in logs:
                mean = float(logs["completions/mean_length"])
                played.own = round(mean * played.trajectories)
                done.put(replace(played))
                go.get()

    rows = [
        {"prompt": [{"role": "user", "content": text}], "answers": list(question.answers)}
        for step in range(STEPS)
        for question, text in zip(
            setting.of_step(step), _prompts(setting, setting.of_step(step)), strict=True
        )
    ]
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=_model(setting),
            reward_funcs=reward,
            args=GRPOConfig(
                output_dir=folder,
                use_cpu=True,
                bf16=False,
                activation_checkpointing=False,
                dataloader_pin_memory=False,
                shuffle_dataset=False,
                max_steps=STEPS,
                per_device_train_batch_size=QUESTIONS * ATTEMPTS,
                num_generations=ATTEMPTS,
                max_completion_length=setting.rules.config.max_response_tokens,
                max_tool_calling_iterations=setting.rules.config.max_searches,
                temperature=1.0,
                top_k=0,
                beta=BETA,
                epsilon=LOW,
                epsilon_high=HIGH,
                loss_type="grpo",
                scale_rewards="none",
                learning_rate=LR,
                lr_scheduler_type="constant",
                logging_steps=1,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_list(rows),
            processing_class=_tokenizer(),
            tools=[search],
            callbacks=[Turns()],
        )
        go.get()
        trainer.train()


def _model(setting: Setting) -> Any:
    """The policy; its turns end where ours do."""
    model = load_model(tiny_directory())
    model.generation_config.eos_token_id = sorted(setting.stop.token_ids)
    return model


def _tokenizer() -> Any:
    """The policy's, taught what a tool call looks like, and to show messages as they are."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_directory(), padding_side="left")
    # Words are set apart by single blanks, so that any split is a split of tokens.
    # TRL insists on a template that can write calls; here, they stand in what the policy wrote.
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] }} "
        "{% if m['tool_calls'] and not m['content'] %}{{ m['tool_calls'] }} {% endif %}"
        "{% endfor %}"
    )
    tokenizer.response_schema = {"type": "object"}

    def parse_response(ids: Sequence[int], **_: Any) -> dict[str, Any]:
        text = tokenizer.decode(ids)
        query = _between(text, "search")
        called = {"type": "function", "function": {"name": "search", "arguments": {"query": query}}}
        message: dict[str, Any] = {"role": "assistant", "content": text}
        return message | ({"tool_calls": [called]} if query else {})

    tokenizer.parse_response = parse_response
    return tokenizer


def _between(text: str, tag: str) -> str:
    """What stands between two tags that end a text; nothing if they do not."""
    _, opened, rest = text.rpartition(f"<{tag}>")
    inside, closed, _ = rest.partition(f"</{tag}>")
    return inside.strip() if opened and closed else ""


def _prompts(setting: Setting, questions: Sequence[Question]) -> list[str]:
    """What the solver is shown."""
    round_ = Round.of_questions(setting.rules, questions, [0])
    shown = [setting.tokenizer.decode(list(t.ids)) for t in round_.pending()]
    return shown[::ATTEMPTS]


def main() -> int:
    """A step for every line."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    setting = Setting()
    steps = {"trl": trl, "ours": ours}[sys.argv[1]](setting)
    print(json.dumps({"side": sys.argv[1]}), flush=True)
    for _ in sys.stdin:
        began = process_time()
        played = next(steps)
        print(json.dumps({"seconds": process_time() - began, **vars(played)}), flush=True)
    # The trainer's thread waits for a step that nobody asks for.
    os._exit(0)


if __name__ == "__main__":
    main()
