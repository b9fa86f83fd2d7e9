"""The tiny policy: its tokenizer, its size, its demonstrations, and the first steps of its
bootstrap."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from agents.models import load_model
from agents.tiny import bootstrap as bootstrap_module
from agents.tiny import traces
from agents.tiny.bootstrap import bootstrap, save_policy
from agents.tiny.model import tiny_model, tiny_tokenizer
from agents.tiny.traces import Trace, TraceWriter
from ssp_env.game.config import MINI_GAME
from ssp_env.game.outcome import Ending
from ssp_env.game.protocol import Tags
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.tokenizers import HuggingFaceTokenizer, WordTokenizer
from ssp_env.types import GroundTruth, Question
from ssp_env.worlds.mini import MiniWorld
from ssp_env.worlds.mini_language import vocabulary


@pytest.fixture(scope="module")
def words() -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(tiny_tokenizer())


# -- tokenizer and model -----------------------------------------------------------------------


def test_the_ids_are_those_of_the_word_tokenizer(words: HuggingFaceTokenizer) -> None:
    own = WordTokenizer(vocabulary(), Tags().all())
    assert (words.vocab_size, words.pad_id, words.eos_id) == (
        own.vocab_size,
        own.pad_id,
        own.eos_id,
    )
    text = "what is the mentor of <search> Nobody </search> <zearch> ?"
    assert words.encode(text) == own.encode(text)
    assert words.encode_data(text) == own.encode_data(text)


def test_the_model_has_under_a_million_parameters_and_a_stock_architecture(
    words: HuggingFaceTokenizer, tmp_path: Path
) -> None:
    model = tiny_model(words.vocab_size, torch.Generator().manual_seed(0))
    assert sum(parameter.numel() for parameter in model.parameters()) < 1_000_000
    save_policy(model, tmp_path)
    assert type(AutoModelForCausalLM.from_pretrained(tmp_path)).__name__ == "Lfm2ForCausalLM"
    ids = torch.arange(30)[None]
    with torch.inference_mode():
        assert torch.equal(load_model(tmp_path)(ids).logits, model.eval()(ids).logits)
    assert HuggingFaceTokenizer.load(tmp_path).pieces == words.pieces
    assert {oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()} == {"0o644"}


# -- demonstrations ----------------------------------------------------------------------------


@dataclass
class Drawn:
    """Demonstrations and the world that they are from."""

    world: MiniWorld
    traces: list[Trace]


def drawn(words: HuggingFaceTokenizer, count: int) -> Drawn:
    """Demonstrations without faults, all from one world."""
    worlds: list[MiniWorld] = []

    class Seen(MiniWorld):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            worlds.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "MiniWorld", Seen)
        writer = TraceWriter(MINI_GAME, words, np.random.default_rng(3), faults=False)
        found = list(islice(writer.stream(), count))
    (world,) = worlds
    return Drawn(world, found)


def turns(trace: Trace) -> list[list[int]]:
    """What the player wrote, turn by turn."""
    edges = [i for i, (a, b) in enumerate(pairwise([0, *trace.mask, 0])) if a != b]
    return [trace.ids[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def prompt(trace: Trace) -> list[int]:
    return trace.ids[: trace.mask.index(1)]


def acted_out(played: Round, trace: Trace) -> Trajectory:
    """Feeds the demonstration's turns to a game that asks for them."""
    (trajectory,) = played.pending()
    assert trajectory.ids == prompt(trace), "the demonstration begins with the game's own prompt"
    for turn in turns(trace):
        assert played.pending() == [trajectory]
        assert trajectory.feed(turn), "a turn of the demonstration is a turn of the game"
        played.advance()
    assert trajectory.done
    return trajectory


@pytest.fixture(scope="module")
def faultless(words: HuggingFaceTokenizer) -> Drawn:
    return drawn(words, 120)


def test_the_game_accepts_the_demonstrated_solver(
    faultless: Drawn, words: HuggingFaceTokenizer
) -> None:
    rules = Rules.build(faultless.world, words, MINI_GAME)
    hops: Counter[int] = Counter()
    for trace in faultless.traces:
        if words.encode("</answer>")[0] != trace.ids[-1]:
            continue
        text = next(
            t
            for t in question_texts(prompt(trace), words)
            if faultless.world.analyse(t) is not None
        )
        analysis = faultless.world.analyse(text)
        assert analysis is not None
        (answer,) = analysis.answers
        played = Round.of_questions(one_attempt(rules), [Question("q", text, (answer,), "1")], [0])
        trajectory = acted_out(played, trace)
        assert trajectory.ending is Ending.ACTION
        assert trajectory.result == answer
        assert played.games[0].solve_rate == 1.0
        assert len(trajectory.searches) == analysis.hops
        hops[analysis.hops] += 1
    assert set(hops) >= {1, 2}


def test_the_game_accepts_and_verifies_the_demonstrated_proposer(
    faultless: Drawn, words: HuggingFaceTokenizer
) -> None:
    rules = Rules.build(faultless.world, words, MINI_GAME)
    names = set(faultless.world.train_graph.entities)
    hops: Counter[int] = Counter()
    for trace in faultless.traces:
        if words.encode("</question>")[0] != trace.ids[-1]:
            continue
        (answer,) = names.intersection(words.decode(prompt(trace)).split())
        truth = GroundTruth("a", answer)
        played = Round(rules, lambda rng, count, truth=truth: [truth] * count, 1, [0])
        trajectory = acted_out(played, trace)
        (game,) = played.games
        assert trajectory.ending is Ending.ACTION
        assert game.question is not None
        assert game.reason is None, f"{game.question} for {answer} fell: {game.reason}"
        assert game.verification is not None
        assert game.verification.correct
        analysis = faultless.world.analyse(game.question)
        assert analysis is not None
        assert analysis.answers == {answer}
        hops[analysis.hops] += 1
    assert set(hops) >= {1, 2}


def one_attempt(rules: Rules) -> Rules:
    return replace(rules, config=rules.config.replace(attempts=1))


def question_texts(ids: list[int], words: HuggingFaceTokenizer) -> list[str]:
    """Every run of words of a prompt that could be its question."""
    text = words.decode(ids).split()
    return [" ".join(text[i:j]) for i in range(len(text)) for j in range(len(text), i, -1)]


# -- bootstrap ---------------------------------------------------------------------------------


def digest(directory: Path) -> str:
    return hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()


def test_the_bootstrap_learns_and_the_same_seed_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap_module, "TOKENS_PER_STEP", 1000)
    monkeypatch.setattr(bootstrap_module, "SIMPLE_SHARE", 1.0)
    losses: list[list[float]] = [[], []]
    for run, name in enumerate(("one", "other")):

        def report(step: int, loss: float, run: int = run) -> None:
            losses[run].append(loss)

        model = bootstrap(MINI_GAME, seed=4, steps=12, report=report)
        save_policy(model, tmp_path / name)
    assert digest(tmp_path / "one") == digest(tmp_path / "other")
    assert losses[0] == losses[1]
    assert len(losses[0]) == 12
    assert np.mean(losses[0][-3:]) < 0.8 * np.mean(losses[0][:3])
    assert not model.training
