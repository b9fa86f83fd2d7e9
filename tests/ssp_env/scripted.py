"""Scripts that play the mini world, batches of them, and games that are saved."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ssp_env.errors import ServiceError
from ssp_env.game.batch import GameBatch, answers_of
from ssp_env.game.config import MINI_GAME
from ssp_env.game.game import Game
from ssp_env.game.protocol import Tags
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import BatchStrategy
from ssp_env.game.trajectory import Trajectory
from ssp_env.players import MiniPlayer
from ssp_env.replay import SavedGame, replay, save_game
from ssp_env.replay.files import game_lines, parse_games
from ssp_env.tokenizers import Tokenizer, WordTokenizer
from ssp_env.types import Document, Role, World
from ssp_env.worlds.mini_language import vocabulary

WRITTEN = [
    text for *_, text in json.loads(Path(__file__).with_name("smollm2.json").read_text("utf-8"))
]
"""What a real model wrote (SmolLM2-135M-Instruct, commit of the file), prompt set and role before
it; made by ``make real`` with the environment variable ``SSP_REAL_OUTPUTS``."""

Script = Callable[[Trajectory], str | list[int]]
"""What to write next in a trajectory: one whole turn, as text or as ids."""


def everything(world: World) -> Any:
    """A retriever that finds the whole corpus, in its order."""
    return SimpleNamespace(search=lambda queries, k: [list(world.corpus)[:k] for _ in queries])


def jsonl(path: Path, documents: Iterable[Document]) -> Path:
    """Writes passages as a corpus, a line each; returns the path."""
    rows = ({"id": d.id, "title": d.title, "text": d.text} for d in documents)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


OPENING = Tags(tools=("open",))
"""The tags of a game in which pages are opened."""


def word_tokenizer(tags: Tags | None = None) -> WordTokenizer:
    """The mini world's vocabulary, with these tags, or the usual ones."""
    return WordTokenizer(vocabulary(), (tags or Tags()).all())


def prompt_of(trajectory: Trajectory) -> str:
    """A trajectory's prompt, as text."""
    return trajectory.limits.tokenizer.decode(trajectory.ids[: trajectory.prompt_length])


def propose(hops: int = 1) -> Script:
    """A proposer that searches backwards from the answer, up to ``hops`` facts far, and asks for
    the way back."""
    return MiniPlayer(Tags(), hops).write


solve: Script = MiniPlayer(Tags()).write
"""A solver that looks up one fact after the other, and a verifier that reads what it is given."""


def by_role(proposer: Script, solver: Script = solve, verifier: Script = solve) -> Script:
    """One script for each role."""
    scripts = {Role.PROPOSER: proposer, Role.SOLVER: solver, Role.VERIFIER: verifier}
    return lambda trajectory: scripts[trajectory.role](trajectory)


def say(*turns: str | list[int]) -> Script:
    """These turns, one after the other, whatever a search finds."""
    return lambda trajectory: turns[min(len(trajectory.searches), len(turns) - 1)]


def turn(trajectory: Trajectory, script: Script) -> list[int]:
    """The ids of a script's next turn."""
    written = script(trajectory)
    return (
        trajectory.limits.tokenizer.encode(written) if isinstance(written, str) else list(written)
    )


def play(played: GameBatch, script: Script) -> GameBatch:
    """Plays a batch of games to its end; every scripted turn has to end its turn."""
    while pending := played.pending():
        for trajectory in pending:
            ids = turn(trajectory, script)
            assert trajectory.feed(ids, [-0.5] * len(ids)), "a scripted turn that does not end"
        played.advance()
    return played


def records(played: GameBatch) -> list[GameRecord]:
    """The records of all games."""
    return [record_game(game, played.rules) for game in played.games]


def rules_of(world: World, tokenizer: Tokenizer, **changes: Any) -> Rules:
    """The mini rules with changes: fields of the config, or parts (``own_`` before a name that is
    also a field)."""
    names = {name: name for name in ("retriever", "judge", "noise", "solver_reward")}
    names |= {f"own_{name}": name for name in ("verifier", "filters", "proposer_reward")}
    parts = {names[name]: changes.pop(name) for name in list(changes) if name in names}
    return Rules.build(world, tokenizer, MINI_GAME.replace(**changes), **parts)


def begin(
    rules: Rules,
    num_games: int = 4,
    seed: Sequence[int] = (1, 2),
    strategy: BatchStrategy | None = None,
) -> GameBatch:
    """A batch of games over the world's answers, drawn without replacement while there are
    enough."""
    return GameBatch(rules, answers_of(rules.world), num_games, seed, strategy)


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


def mixed_games(rules: Rules) -> list[SavedGame]:
    """Two valid games, an invalid and a void one, of three attempts; in the first, one is right and
    one says nothing, in the second, all are right."""
    played = begin(rules, num_games=4)
    first, _, invalid, void = played.games
    assert void.proposer is not None
    played.void([void.proposer], ServiceError("engine", "gone"))

    def solver(trajectory: Trajectory) -> str | list[int]:
        turns: list[str | list[int]] = [solve(trajectory), "<answer> rival </answer>", [1]]
        return turns[max(0, first.number_of(trajectory))]

    play(played, by_role(lambda t: [1] if t is invalid.proposer else propose()(t), solver))
    assert [game.outcome for game in played.games] == ["valid", "valid", "invalid", "void"]
    return [written(save_game(game, rules)) for game in played.games]
