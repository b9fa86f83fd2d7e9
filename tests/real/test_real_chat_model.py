"""A real chat model, Qwen2.5-Coder-0.5B-Instruct, plays zero-shot by its own chat template: `make
real`.

Skipped unless the environment variable ``SSP_REAL_QWEN`` names its GGUF file, or its directory."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from benchmarks.real_gates import GAME, spread
from ssp_agents.engines.base import Engine
from ssp_agents.rollout import EVALUATION, answer, play
from ssp_env.game.outcome import Ending
from ssp_env.game.prompts import SHIPPED, Prompts
from ssp_env.game.record import GameRecord
from ssp_env.game.rules import Rules
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import Document
from ssp_env.worlds import open_world
from ssp_experiments.config import RunConfig
from ssp_experiments.evaluation import engine_of

FILE = os.environ.get("SSP_REAL_QWEN", "")
pytestmark = pytest.mark.skipif(not FILE, reason="make real names the model")

PAGE = Document("1", "Paris", "Paris lies on the Seine.")


@pytest.fixture(scope="module")
def folder() -> Path:
    return RunConfig(model=FILE).model_dir


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer.load(folder)


def attempts(
    folder: Path, tokenizer: HuggingFaceTokenizer, prompts: str, count: int
) -> list[GameRecord]:
    """Attempts at questions of all benchmarks, greedily."""
    game = {**GAME, "prompts": prompts, "max_response_tokens": 600}
    engine = {"dtype": "bfloat16"}
    config = RunConfig(model=str(folder), world="wiki-mini", game=game, engine=engine)
    world = open_world("wiki-mini")
    rules = Rules.build(world, tokenizer, config.game)
    opened: Engine = engine_of(config, rules)
    asked = list(enumerate(spread(world.questions(0, -(-count // 7)))[:count]))
    once = replace(rules, config=rules.config.replace(attempts=1))
    return answer(once, asked, partial(play, engine=opened, temperature=0.0), (EVALUATION, 0))


@pytest.mark.parametrize("name", [name for name in SHIPPED if name != "mini"])
def test_results_stand_where_its_template_puts_them(
    name: str, tokenizer: HuggingFaceTokenizer
) -> None:
    prompts = Prompts.open(name, tokenizer)
    text = tokenizer.decode(prompts.information([PAGE], 99, "Where is Paris?"))
    if name == "search-r1":
        assert "<|im_start|>" not in text
        return
    found = text.removeprefix("<|im_end|>\n<|im_start|>user\n")
    assert found.endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert found != text
    chat = [("user", "Where?"), ("assistant", "<search> Paris </search>")]
    chat.append(("tool", PAGE.text) if name == "tools" else ("user", found.split("<|im_end|>")[0]))
    messages = [{"role": role, "content": content} for role, content in chat]
    rendered = tokenizer.inner.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    shown = text if name != "tools" else text.replace(f"[{PAGE.title}] ", "")
    assert rendered.endswith(f"<search> Paris </search>{shown}")


def test_it_plays_zero_shot_by_worked_examples(
    folder: Path, tokenizer: HuggingFaceTokenizer
) -> None:
    played = [game.attempts[0] for game in attempts(folder, tokenizer, "few-shot", 14)]
    ended = [attempt.ending == Ending.ACTION for attempt in played]
    assert sum(ended) >= 13
    assert sum(bool(attempt.searches) for attempt in played) >= 13
    assert any(attempt.right for attempt in played)


def test_its_tool_calls_are_read(folder: Path, tokenizer: HuggingFaceTokenizer) -> None:
    played = [game.attempts[0] for game in attempts(folder, tokenizer, "tools", 7)]
    assert sum(bool(a.searches) or a.result is not None for a in played) >= 5
