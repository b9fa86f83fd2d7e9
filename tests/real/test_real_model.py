"""A real language model, SmolLM2-135M-Instruct, in all that only such a one tests: `make real`.

Skipped unless the environment variable ``SSP_REAL_MODEL`` names its GGUF file. What it writes goes
to the file that ``SSP_REAL_OUTPUTS`` names: so ``tests/ssp_env/smollm2.json`` was made.
"""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from ssp_agents.config import EngineConfig
from ssp_agents.engines.base import Engine, Request, StopRule, generate
from ssp_agents.engines.opening import open_engine
from ssp_agents.models import load_model
from ssp_agents.scoring import token_scores
from ssp_env.cli import main
from ssp_env.game.config import GameConfig
from ssp_env.game.prompts import SHIPPED, Prompts, tags_of
from ssp_env.game.protocol import ScannerTags, TurnScanner, actions_of, check_tokenizer
from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.judge.lenient import LenientJudge
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import GroundTruth, Role
from ssp_env.worlds import open_world
from ssp_experiments.config import RunConfig

FILE = os.environ.get("SSP_REAL_MODEL", "")
pytestmark = pytest.mark.skipif(not FILE, reason="make real names the model")

CAPITAL = "What is the capital of France?"
TEXT_SETS = [name for name in SHIPPED if name != "mini"]
KINDS = ["transformers", *(["vllm"] if find_spec("vllm") else [])]
SMALL = {
    "game.prompts": "compact",
    "game.max_searches": 2,
    "game.asked_searches": "[1,2]",
    "game.top_k": 2,
    "game.max_document_tokens": 64,
    "game.max_response_tokens": 48,
    "game.max_prompt_tokens": 1024,
    "game.closed_book": "false",
    "game.noise_documents": 1,
    "per_group": 1,
}
"""Settings of games that a CPU plays in seconds."""


@pytest.fixture(scope="module")
def folder() -> Path:
    return RunConfig(model=FILE).model_dir


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer.load(folder)


@pytest.fixture(scope="module")
def learner(folder: Path) -> Any:
    return load_model(folder)


def engine(folder: Path, tokenizer: HuggingFaceTokenizer, **settings: Any) -> Engine:
    stop = StopRule.of(GameConfig(prompts="compact"), tokenizer)
    return open_engine(EngineConfig(**settings), folder, tokenizer, stop, longest=4096)


def asked(tokenizer: HuggingFaceTokenizer, text: str) -> list[int]:
    before, after = tokenizer.chat_frame()
    return tokenizer.encode(f"{before}{text}{after}")


def options(settings: dict[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


@pytest.mark.parametrize("name", TEXT_SETS)
def test_every_prompt_set_is_framed_as_a_chat(name: str, tokenizer: HuggingFaceTokenizer) -> None:
    prompts = Prompts.open(name, tokenizer)
    check_tokenizer(tokenizer, prompts.tags)
    for ids in (prompts.proposer("Paris", 2), prompts.solver(CAPITAL, 4)):
        text = tokenizer.decode(ids)
        assert text.startswith("<|im_start|>system\n"), text
        assert text.endswith("<|im_end|>\n<|im_start|>assistant\n"), text


@pytest.mark.parametrize("kind", KINDS)
def test_it_answers_ends_its_turn_and_stops_at_tags(
    kind: str, folder: Path, tokenizer: HuggingFaceTokenizer
) -> None:
    opened = engine(folder, tokenizer, kind=kind)
    begun = [*asked(tokenizer, CAPITAL), *tokenizer.encode("<answer> Paris")]
    prompts = [asked(tokenizer, CAPITAL), [*begun, *tokenizer.encode(" </answer")]]
    free, tagged = generate(
        opened, [Request(i, ids, 40, 0.0, seed=i) for i, ids in enumerate(prompts)]
    )
    assert "Paris" in tokenizer.decode(free.ids)
    assert free.ids[-1] == tokenizer.eos_id
    assert tokenizer.decode(tagged.ids).strip() == ">"


def test_seeds_give_the_same_tokens_in_any_batch(
    folder: Path, tokenizer: HuggingFaceTokenizer
) -> None:
    """In float32, in three groupings."""
    opened = open_engine(EngineConfig(), folder, tokenizer, StopRule(frozenset(), ()))
    about = ("France", "the heron", "a bridge in Prague", "Ada Lovelace, briefly", "tin")
    texts = [f"{word} {name}" for word in ("Describe", "Who sold", "Is it", "On") for name in about]
    requests = [
        Request(key, asked(tokenizer, text), 24, 1.0, key) for key, text in enumerate(texts)
    ]
    found = [
        [turn.ids for at in range(0, 20, size) for turn in generate(opened, requests[at:][:size])]
        for size in (20, 7, 1)
    ]
    assert found[0] == found[1] == found[2]


def test_what_it_writes_to_any_prompt_is_read_and_judged(
    folder: Path, tokenizer: HuggingFaceTokenizer
) -> None:
    world, asked = open_world("wiki-mini"), {}
    answers, questions = world.answers[:: len(world.answers) // 20], world.questions(0, 3)
    pages = list(world.corpus)
    for i, name in enumerate(TEXT_SETS):
        prompts = Prompts.open(name, tokenizer)
        asked[name, "proposer"] = prompts.proposer(answers[i].answer, 2)
        asked[name, "solver"] = prompts.solver(questions[i].text, 2)
        asked[name, "verifier"] = prompts.verifier(questions[i].text, pages[9 * i :][:3], 64)
    opened = open_engine(EngineConfig(), folder, tokenizer, StopRule(frozenset(), ()))
    out = os.environ.get("SSP_REAL_OUTPUTS")
    most = 80 if out else 24
    sampled = [Request(i, ids, most, 1.0, seed=i) for i, ids in enumerate(asked.values())]
    # A few at a time: all are padded to the longest.
    turns = [t for i in range(0, len(sampled), 3) for t in generate(opened, sampled[i : i + 3])]
    texts = [tokenizer.decode(turn.ids) for turn in turns]
    for (name, _), text in zip(asked, texts, strict=True):
        for allowed in map(actions_of, Role):
            (scanner := TurnScanner(ScannerTags(tags_of(name), allowed))).feed(text.encode())
            scanner.end()
        tasks = [
            JudgeTask(q.text, text, GroundTruth(q.id, text[:40], q.answers)) for q in questions
        ]
        assert all(isinstance(verdict, Verdict) for verdict in LenientJudge().judge(tasks))
    if out:
        rows = [[*by, text] for by, text in zip(asked, texts, strict=True)]
        Path(out).write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_long_passages_are_scored_as_the_learner_scores_them(
    dtype: str, folder: Path, tokenizer: HuggingFaceTokenizer, learner: Any
) -> None:
    passages = list(open_world("wiki-mini").corpus)[:4]
    prompt = Prompts.open("plain", tokenizer).verifier(CAPITAL, passages, 512)
    opened = engine(folder, tokenizer, dtype=dtype)
    (turn,) = generate(opened, [Request(0, prompt, 24, 1.0, seed=0)])

    ids = torch.tensor([[*prompt, *turn.ids]])
    mask = torch.zeros(ids.shape).index_fill(1, torch.arange(len(prompt), ids.shape[1]), 1.0)
    with torch.no_grad():
        own = token_scores(learner, ids, mask, 1.0, tokenizer.vocab_size).logprobs
    gap = float((own - torch.tensor(turn.logprobs)).abs().mean())
    assert len(prompt) > 400
    assert gap < (1e-3 if dtype == "float32" else 0.15)


def test_it_is_evaluated_taught_trained_with_adapters_and_exported(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world = ["--preset", "wiki", "--model", FILE]
    asked = tmp_path / "questions"
    asked.write_text(json.dumps({"question": CAPITAL, "answers": ["Paris"]}))
    assert main(["eval", *world, "--json", "--questions", str(asked), *options(SMALL)]) == 0
    (evaluated,) = json.loads(capfd.readouterr().out)["evaluations"]
    assert {row["questions"] for row in evaluated["rows"]} == {1}

    out = tmp_path / "run"
    taught = ["--steps", "2", "--measured", "1", "--out", str(tmp_path / "taught")]
    # A script's sentences need room.
    small = options(SMALL | {"learning.batch_size": 2, "game.max_response_tokens": 256})
    assert main(["imitate", *world, *taught, *small]) == 0
    assert "in the format" in capfd.readouterr().out

    learning = {"learning.batch_size": 2, "learning.lora_rank": 8, "learning.lr": 1e-4}
    learning["game.attempts"] = 2
    more = ["--steps", "2", "--out", str(out), "--quiet", *options(SMALL | learning)]
    assert main(["train", *world, *more]) == 0
    assert main(["export", str(out), "-o", str(tmp_path / "exported")]) == 0
    exported = load_model(tmp_path / "exported")
    assert exported.num_parameters() == load_model(folder).num_parameters()
