"""TRL's GRPOTrainer on the solver's role: the environment's public methods are the model's tools.

    python examples/trl_grpo.py

A tiny Qwen3 is made on the spot and warmed up on a few demonstrations, so that some tool calls are
well-formed and some rewards are not zero; put a model of yours in its place. Everything runs
offline, on one CPU thread. After 100 steps of warm-up, four GRPO steps saw mean rewards of .25,
.06, .38 and .06 (20 Nov 2026, one seed: 0); no longer run was tried.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from dataclasses import fields
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen2_5_chat_template, qwen2_5_training_chat_template

import ssp_env

parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
parser.add_argument("--steps", type=int, default=20, help="GRPO steps")
parser.add_argument("--warm-up", type=int, default=150, help="steps on demonstrations")
parser.add_argument("--seed", type=int, default=0)

QUESTIONS = 32
"""Games that the demonstrations and the training set are made of."""


class SearchGame:
    """What TRL sees: ``reset``, ``get_reward``, and a tool for each other public method."""

    def __init__(self) -> None:
        self._role = ssp_env.TextRole("solver", world="small")

    def reset(self, game: int, **row: Any) -> str:
        """Begins a game; what is returned is shown to the model."""
        self._reward: float | None = 0.0
        self._over = False
        return self._role.reset(seed=game)[0]

    def search(self, query: str) -> str:
        """Searches the encyclopedia.

        Args:
            query: The name to look up.

        Returns:
            The page that was found.
        """
        return self._step(f"<search> {query} </search>")

    def answer(self, text: str) -> str:
        """Gives the final answer.

        Args:
            text: The answer.

        Returns:
            Nothing more.
        """
        return self._step(f"<answer> {text} </answer>")

    def get_reward(self) -> float | None:
        """The solver's reward; ``None`` for a void game, which TRL leaves out of the loss."""
        return self._reward

    def _step(self, turn: str) -> str:
        if self._over:
            return "The game is over."

        shown, reward, terminated, void, _ = self._role.step(turn)
        self._reward = None if void else reward
        self._over = terminated or void

        return shown


def demonstrate(game: int) -> list[dict[str, Any]]:
    """A conversation in which the question is looked up and answered."""
    env = SearchGame()
    asked = env.reset(game)
    name, truth = re.findall(r"of (\w+) \?", asked)[-1], env._role.game.truth.answer

    return [
        {"role": "user", "content": asked},
        _call("search", {"query": name}),
        {"role": "tool", "name": "search", "content": env.search(name)},
        _call("answer", {"text": truth}),
        {"role": "tool", "name": "answer", "content": env.answer(truth)},
        {"role": "assistant", "content": "done"},
    ]


def _call(tool: str, arguments: dict[str, str]) -> dict[str, Any]:
    function = {"name": tool, "arguments": arguments}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": function}],
    }


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE of what is going to be said, with Qwen's chat template."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
    special += ["<tool_response>", "</tool_response>"]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=800, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    tokenizer.chat_template = qwen2_5_chat_template

    return tokenizer


def warm_up(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, steps: int) -> None:
    """Imitates the demonstrations: loss on what the assistant says alone."""
    game = SearchGame()
    encoded = [
        tokenizer.apply_chat_template(
            demonstrate(i),
            tools=[game.search, game.answer],
            chat_template=qwen2_5_training_chat_template,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        for i in range(QUESTIONS)
    ]
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)

    for step in range(steps):
        rows = [encoded[int(i)] for i in torch.randint(QUESTIONS, (8,))]
        ids = _padded([row["input_ids"] for row in rows], tokenizer.pad_token_id)
        said = _padded([row["assistant_masks"] for row in rows], 0)
        loss = model(input_ids=ids, labels=ids.masked_fill(said == 0, -100)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 25 == 0:
            print(f"warm-up {step + 1}: loss {loss.item():.3f}", flush=True)


def _padded(rows: list[list[int]], value: int) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row) for row in rows], batch_first=True, padding_value=value
    )


def main() -> None:
    """Warms up, then trains with GRPO."""
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    game = SearchGame()
    spoken = [json.dumps(get_json_schema(tool)) for tool in (game.search, game.answer)] + [
        qwen2_5_chat_template
    ]
    tokenizer = make_tokenizer(spoken + [json.dumps(demonstrate(i)) for i in range(QUESTIONS)])
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=1024,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    warm_up(model, tokenizer, arguments.warm_up)

    # What newer versions of transformers call activation checkpointing; TRL turns it on by default.
    names = {field.name for field in fields(GRPOConfig)}
    new, old = "activation_checkpointing", "gradient_checkpointing"
    off: dict[str, Any] = {new if new in names else old: False}

    with tempfile.TemporaryDirectory() as directory:
        trainer = GRPOTrainer(
            model=model,
            args=GRPOConfig(
                output_dir=directory,
                seed=arguments.seed,
                use_cpu=True,
                bf16=False,
                **off,
                dataloader_pin_memory=False,
                max_steps=arguments.steps,
                per_device_train_batch_size=16,
                num_generations=8,
                max_completion_length=200,  # counts what the tools said as well
                max_tool_calling_iterations=3,
                learning_rate=1e-4,
                logging_steps=1,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_list(
                [{"prompt": [{"role": "user", "content": ""}], "game": i} for i in range(QUESTIONS)]
            ),
            processing_class=tokenizer,
            environment_factory=SearchGame,
        )
        trainer.train()

    for line in trainer.state.log_history:
        if "reward" in line:
            print(f"step {line['step']}: mean reward {float(line['reward']):.3f}")


if __name__ == "__main__":
    main()
