"""Mistakes at the interfaces: each is refused by a sentence that names what to change."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripted import jsonl

import ssp_env
from ssp_env import TextRole, TurnVectorEnv, World
from ssp_env.errors import ConfigError, SSPError
from ssp_env.game.rules import Rules
from ssp_env.judge.judges import F1Judge
from ssp_env.search.index import build_index
from ssp_env.types import Document, GroundTruth
from ssp_env.worlds.mini import SmallWorld

SMALL = SmallWorld()
RULES = ssp_env.raw_env(world=SMALL).rules
TOKENIZER, GAME = RULES.tokenizer, RULES.config


NIGHTHAWKS = ssp_env.Question("1", "Who directed Nighthawks?", ("Bruce Malmuth",), "own")


def about(**options: Any) -> object:
    return ssp_env.TextGame(world=SMALL).reset(options=options)


def step(interface: Any, action: Any) -> object:
    interface.reset(seed=0)
    return interface.step(action)


MISTAKES: Mapping[str, tuple[Callable[[], object], str]] = {
    "text as tokens": (
        lambda: step(TurnVectorEnv(1), ["<search> x </search>"]),
        "encode text first",
    ),
    "too many turns": (lambda: step(TurnVectorEnv(1), [[1], [2]]), "1 turns are open"),
    "a token beyond": (lambda: step(ssp_env.env(), 10**6), "action space 0 .."),
    "tokens as text": (lambda: step(TextRole(), [1]), "one string"),
    "an option": (lambda: about(answr="x"), "give an answer"),
    "a strange answer": (lambda: about(answer="Zebra"), "the tokenizer has no tokens"),
    "a strange question": (lambda: about(question=NIGHTHAWKS), "no tokens for 1 of 1, such as"),
    "strange prompts": (lambda: ssp_env.env(game={"prompts": "plain"}), "its proposer.txt"),
    "a class": (lambda: ssp_env.env(judge=F1Judge), r"judge .*an instance of the class: F1Judge"),
    "a judge's name": (lambda: ssp_env.env(judge="f1"), r"open_judge.* \(lenient, exact, f1\)"),  # type: ignore[arg-type]
    "a part": (lambda: Rules.build(SMALL, TOKENIZER, GAME, solver_rewrad=1), "'solver_reward'"),  # type: ignore[call-arg]
    "rules and more": (lambda: ssp_env.env(rules=RULES, game={}), "the rules are ready already"),
    "masks of bytes": (lambda: ssp_env.env(world="small", tokenizer="bytes"), "legal_moves"),
    "a filter": (lambda: ssp_env.env(filters={"mine": "spoiler"}), "filters.mine .*a function"),
    "a number as id": (lambda: GroundTruth(3, "x"), r"GroundTruth.id = \(3,\): give strings"),  # type: ignore[arg-type]
    "an agent": (lambda: ssp_env.raw_env().observe("teacher"), "known: proposer, solver"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_at_an_interface_is_told(name: str) -> None:
    make, sentence = MISTAKES[name]
    with pytest.raises(SSPError, match=sentence):
        make()


def sure(tasks: Any) -> Any:
    return [True for _ in tasks]


def finds(found: Any) -> Any:
    """A retriever that gives the same for every query."""
    return SimpleNamespace(search=lambda queries, k: [found for _ in queries])


PARTS: Mapping[str, tuple[dict[str, Any], str]] = {
    "True": ({"judge": SimpleNamespace(judge=sure)}, "judge .*one Verdict.*not True"),
    "too many": ({"retriever": finds([SMALL.corpus[0]] * 9)}, "returned 9 Documents, k was 2"),
    "no list": (
        {"retriever": finds(SMALL.corpus[0])},
        "a list of 1 lists, one for each query, with at most 2 Documents",
    ),
    "no text": ({"retriever": finds([Document("1", "A", None)])}, "are strings"),  # type: ignore[arg-type]
    "no score": ({"retriever": finds([Document("1", "A", "a", math.nan)])}, "a finite number"),
    "no bool": ({"filters": {"mine": lambda proposal: None}}, "filter mine has to return a bool"),
    "no number": ({"solver_reward": lambda *given: float("nan")}, "a finite number is wanted"),
    "documents": ({"noise": lambda *given: given[-1][:1]}, "a tuple of NoiseDocuments"),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_returns_something_else_is_named(name: str) -> None:
    """In a game as proposer, up to its verdicts and rewards."""
    parts, sentence = PARTS[name]
    role: Any = TextRole("proposer", **parts)
    role.reset(seed=0)

    def play() -> None:
        while not role.game.proposer.done:
            role.step(ssp_env.scripted_player(role.rules).write(role.game.proposer))

    with pytest.raises(SSPError, match=sentence):
        play()


def test_an_index_of_other_passages_is_refused(tmp_path: Path, cities: World) -> None:
    worlds = [ssp_env.open_world("mini", seed=seed, entities=50) for seed in (0, 1)]
    corpus = jsonl(tmp_path / "c.jsonl", worlds[0].corpus)
    index = str(build_index(corpus, tmp_path / "index").parent)

    ssp_env.env(world=worlds[0], search=index)
    with pytest.raises(ConfigError, match=r"other passages \(c.jsonl\) than the world 'mini'"):
        ssp_env.env(world=worlds[1], search=index)
    with pytest.raises(ConfigError, match=r"other passages \(c.jsonl\)"):
        ssp_env.env(world=cities, search=index)

    # Real text may be searched in a larger corpus that has its pages.
    larger = jsonl(tmp_path / "larger.jsonl", [*cities.corpus, *worlds[0].corpus[:5]])
    ssp_env.env(world=cities, search=str(build_index(larger, tmp_path / "larger").parent))
