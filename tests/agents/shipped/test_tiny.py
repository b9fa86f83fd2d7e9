"""The tiny policy: its tokenizer, its size, its demonstrations, and the first steps of its
bootstrap."""

from __future__ import annotations

from itertools import combinations, islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from ssp_agents.shipped.tiny import bootstrap as bootstrap_module
from ssp_agents.shipped.tiny.bootstrap import bootstrap, save_policy
from ssp_agents.shipped.tiny.traces import Trace, TraceWriter
from ssp_env.game.batch import GameBatch
from ssp_env.game.config import MINI_GAME
from ssp_env.game.outcome import Ending
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import GroundTruth, Question
from ssp_env.worlds.mini import MiniWorld


def acted_out(played: GameBatch, trace: Trace) -> Trajectory:
    """Feeds the demonstration's turns to a game that asks for them."""
    (trajectory,) = played.pending()
    start = trace.mask.index(1)
    assert trajectory.ids == trace.ids[:start], "it begins with the game's own prompt"
    edges = [i for i, (a, b) in enumerate(pairwise([0, *trace.mask, 0])) if a != b]
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        assert played.pending() == [trajectory]
        assert trajectory.feed(trace.ids[begin:end]), "a turn of it is a turn of the game"
        played.advance()
    assert trajectory.ending is Ending.ACTION
    return trajectory


def test_the_game_accepts_what_is_demonstrated(tokenizer: HuggingFaceTokenizer) -> None:
    """Solvers are right, by as many searches as there are hops; proposals are verified and true."""
    writer = TraceWriter(MINI_GAME, tokenizer, np.random.default_rng(3), faults=False)
    # The first number that is drawn is the first world's seed.
    world = MiniWorld(seed=int(np.random.default_rng(3).integers(1 << 31)))
    rules = Rules.build(world, tokenizer, MINI_GAME.replace(attempts=1))
    names = set(world.train_graph.entities)
    hops: dict[str, set[int]] = {"proposer": set(), "solver": set()}
    for trace in islice(writer.stream(), 120):
        prompt = tokenizer.decode(trace.ids[: trace.mask.index(1)]).split()
        proposes = trace.ids[-1] == tokenizer.encode("</question>")[0]
        if proposes:
            (answer,) = names.intersection(prompt)
            truth = GroundTruth("a", answer)
            played = GameBatch(rules, lambda rng, count, truth=truth: [truth] * count, 1, [0])
            acted_out(played, trace)
            (game,) = played.games
            assert game.reason is None, f"{game.question} for {answer} fell: {game.reason}"
            analysis = world.analyse(game.question or "")
            assert analysis is not None
            assert analysis.answers == {answer}
        else:
            spans = combinations(range(len(prompt) + 1), 2)
            texts = (" ".join(prompt[i:j]) for i, j in spans)
            text = next(text for text in texts if world.analyse(text) is not None)
            analysis = world.analyse(text)
            assert analysis is not None
            (answer,) = analysis.answers
            played = GameBatch.of_questions(rules, [Question("q", text, (answer,), "1")], [0])
            trajectory = acted_out(played, trace)
            assert trajectory.result == answer
            assert played.games[0].solve_rate == 1.0
            assert len(trajectory.searches) == analysis.hops
        hops["proposer" if proposes else "solver"].add(analysis.hops)
    assert all(found >= {1, 2} for found in hops.values())


def test_the_bootstrap_learns_and_the_same_seed_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap_module, "TOKENS_PER_STEP", 1000)
    monkeypatch.setattr(bootstrap_module, "SIMPLE_SHARE", 1.0)
    monkeypatch.setattr(bootstrap_module, "POOL", 30)
    losses: list[float] = []
    for name in ("one", "other"):
        model = bootstrap(MINI_GAME, seed=4, steps=6, report=lambda _, loss: losses.append(loss))
        save_policy(model, tmp_path / name)
    one, other = ((tmp_path / name / "model.safetensors") for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()
    assert losses[:6] == losses[6:]
    assert np.mean(losses[4:6]) < 0.9 * np.mean(losses[:2])
