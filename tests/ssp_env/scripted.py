"""Scripted players for the mini-wiki. They see what a policy sees, and play by really searching and
reading."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ssp_env.game.config import MINI_GAME
from ssp_env.game.game import Game
from ssp_env.game.protocol import Tags
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import BatchStrategy
from ssp_env.game.trajectory import Trajectory
from ssp_env.players.scripted import backwards
from ssp_env.replay import SavedGame, replay, save_game
from ssp_env.replay.files import game_lines, parse_games
from ssp_env.tokenizers import Tokenizer, WordTokenizer
from ssp_env.types import Document, GroundTruth, Role, World
from ssp_env.worlds.mini_language import Hop, parse_question, read_facts, vocabulary, write_question

Script = Callable[[Trajectory], str | list[int]]
"""What to write next in a trajectory: one whole turn, as text or as ids."""

MINI = MINI_GAME
"""Rules that the scripted players know how to play by."""


def word_tokenizer(tags: Tags | None = None) -> WordTokenizer:
    """The mini-wiki's vocabulary."""
    return WordTokenizer(vocabulary(), (tags or Tags()).all())


def prompt_of(trajectory: Trajectory) -> str:
    """A trajectory's prompt, as text."""
    return trajectory.limits.tokenizer.decode(trajectory.ids[: trajectory.prompt_length])


def propose(hops: int = 1) -> Script:
    """A proposer that searches backwards from the answer, up to ``hops`` facts far, and asks for
    the way back."""

    def script(trajectory: Trajectory) -> str:
        _, answer, _ = prompt_of(trajectory).split()
        entity, path, seen = answer, [], {answer}
        for search in trajectory.searches:
            facts = backwards(search.documents, entity, seen)
            if not facts:
                break
            entity, relation = facts[0]
            path.append(Hop(relation))
            seen.add(entity)
        if len(path) == len(trajectory.searches) < hops:
            return f"<think> {entity} </think> <search> {entity} </search>"
        return f"<question> {write_question(entity, path[::-1])} </question>"

    return script


def solve(trajectory: Trajectory) -> str:
    """A solver that looks up one fact after the other."""
    question = prompt_of(trajectory).removeprefix("solve ").removesuffix(" :")
    parsed = parse_question(question)
    assert parsed is not None, question
    entity, hops = parsed
    for hop, search in zip(hops, trajectory.searches, strict=False):
        facts = read_facts(search.documents)
        values = [
            value
            for subject, relation, value in facts
            if (subject, relation) == (entity, hop.relation)
        ]
        if not values:
            return "<answer> nothing </answer>"
        entity = values[0]
    if len(trajectory.searches) < len(hops):
        return f"<search> {entity} </search>"
    return f"<answer> {entity} </answer>"


def read(world: World) -> Script:
    """A verifier that reads its prompt with the world's own reader."""

    def script(trajectory: Trajectory) -> str:
        given = re.search(
            r"solve (.*) :\s*<search>.*</search>\s*<information>(.*)<", prompt_of(trajectory), re.S
        )
        assert given is not None, "verification is the solver's prompt after a search"
        question, documents = given[1], given[2]
        answers = world.read(question, [Document("read", "", documents)]) or frozenset()
        return f"<answer> {min(answers) if len(answers) == 1 else 'nothing'} </answer>"

    return script


def by_role(proposer: Script, solver: Script = solve, verifier: Script | None = None) -> Script:
    """One script for each role."""
    scripts: Mapping[Role, Script | None] = {
        Role.PROPOSER: proposer,
        Role.SOLVER: solver,
        Role.VERIFIER: verifier,
    }

    def script(trajectory: Trajectory) -> str | list[int]:
        chosen = scripts[trajectory.role]
        assert chosen is not None, f"nobody plays the {trajectory.role}"
        return chosen(trajectory)

    return script


def say(*turns: str | list[int]) -> Script:
    """These turns, one after the other, whatever a search finds."""
    return lambda trajectory: turns[min(len(trajectory.searches), len(turns) - 1)]


def turn(trajectory: Trajectory, script: Script) -> list[int]:
    """The ids of a script's next turn."""
    written = script(trajectory)
    return (
        trajectory.limits.tokenizer.encode(written) if isinstance(written, str) else list(written)
    )


def play(played: Round, script: Script) -> Round:
    """Plays a round to its end; every scripted turn has to end its turn."""
    while pending := played.pending():
        for trajectory in pending:
            ids = turn(trajectory, script)
            assert trajectory.feed(ids, [-0.5] * len(ids)), "a scripted turn that does not end"
        played.advance()
    return played


def records(played: Round) -> list[GameRecord]:
    """The records of all games."""
    return [record_game(game, played.rules) for game in played.games]


def draw_from(
    truths: Sequence[GroundTruth],
) -> Callable[[np.random.Generator, int], list[GroundTruth]]:
    """Draws answers without replacement while there are enough."""

    def draw(rng: np.random.Generator, count: int) -> list[GroundTruth]:
        return [truths[i] for i in rng.choice(len(truths), count, replace=count > len(truths))]

    return draw


def rules_of(world: World, tokenizer: Tokenizer, **changes: Any) -> Rules:
    """The mini rules with changes: fields of the config, or parts (``own_`` before a name that is
    also a field)."""
    names = {name: name for name in ("retriever", "judge", "noise", "solver_reward")}
    names |= {f"own_{name}": name for name in ("verifier", "filters", "proposer_reward")}
    parts = {names[name]: changes.pop(name) for name in list(changes) if name in names}
    return Rules.build(world, tokenizer, MINI.replace(**changes), **parts)


def begin(
    rules: Rules,
    slots: int = 4,
    seed: Sequence[int] = (1, 2),
    strategy: BatchStrategy | None = None,
) -> Round:
    """A round over the world's answers."""
    return Round(rules, draw_from(rules.world.answers), slots, seed, strategy)


def spell(tokenizer: Tokenizer, ids: Sequence[int]) -> bytes:
    """The bytes that ids stand for."""
    return b"".join(tokenizer.pieces[i] for i in ids)


def written(saved: SavedGame) -> SavedGame:
    """A saved game as it comes back from a file."""
    lines = [line.encode() for line in game_lines([saved])]
    (back,) = parse_games(lines, "games.jsonl")
    return back


def again(game: Game, rules: Rules) -> SavedGame:
    """Saves a game, reads it, replays it and checks that nothing at all is different."""
    saved = written(save_game(game, rules))
    assert replay(saved, world=rules.world).differences == ()
    replayed = replay(saved)
    unread = replace(saved.record, hops=None, truly_correct=None, right_answers=None)
    # repr, since == does not compare the scores of documents.
    assert repr(record_game(replayed.game, replayed.rules)) == repr(unread)
    return saved
