"""Saved games play again offline as they were; what was altered is told by its place.

Invalid and void games are replayed where they are played: game/test_round.py, test_outages.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted import again, begin, by_role, play, propose, read, rules_of, say, solve, spell

from ssp_env.game.game import Attempt, Game, Origin
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.round import Round
from ssp_env.game.strategies import ReplayBuffer
from ssp_env.game.verification import NoiseDocument
from ssp_env.judge.base import Verdict
from ssp_env.replay import Replay, SavedGame, replay, save_game
from ssp_env.tokenizers import BPETokenizer, ByteTokenizer, WordTokenizer
from ssp_env.worlds.mini import MiniWorld

ROOMY: dict[str, Any] = {
    "max_prompt_tokens": 3000,
    "max_response_tokens": 3000,
    "max_document_tokens": 500,
}


# -- games of every kind -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "verifier", "form"),
    [
        ("words", "world", "solver"),
        ("bytes", "policy", "solver"),
        ("words", "policy", "attempt"),
        ("bpe", "none", "solver"),
    ],
)
def test_games_of_a_batch(
    mini: MiniWorld, words: WordTokenizer, kind: str, verifier: str, form: str
) -> None:
    tokenizer: Any = {"words": words, "bytes": ByteTokenizer(), "bpe": BPETokenizer()}[kind]
    changes = {"verification_prompt": form, "proposals": 2, "asked_searches": (1, 3), **ROOMY}
    rules = rules_of(mini, tokenizer, verifier=verifier, **changes)
    verify = solve if form == "attempt" else read(mini)
    played = play(begin(rules, slots=6), by_role(propose(2), solve, verify))
    assert {game.outcome for game in played.games} == {Outcome.VALID}
    assert any(item.origin.startswith("game ") for game in played.games for item in game.noise)
    for game in played.games:
        record = again(game, rules).record
        shown = {d.id for d in game.evidence} | {n.document.id for n in game.noise}
        assert set(record.materials or ()) == shown


def test_reused_and_given_questions(mini: MiniWorld, words: WordTokenizer) -> None:
    rules, strategy = rules_of(mini, words, attempts=2), ReplayBuffer()
    play(begin(rules, seed=[1], strategy=strategy), by_role(propose()))
    played = play(begin(rules, seed=[2], strategy=strategy), by_role(say([1])))
    reused = [game for game in played.games if game.origin is Origin.REUSED]
    given = play(Round.of_questions(rules, mini.questions(seed=0, per_group=1), [7]), solve).games
    assert len(reused) == 4
    for game in (*reused, *given):
        assert again(game, rules).record.start.question == game.question


def test_own_prompts_and_tags_replay_where_they_do_not_lie(mini: MiniWorld, tmp_path: Path) -> None:
    texts = {
        "proposer": "Ask about {answer}, {searches} searches.",
        "solver": "Solve {question}",
        "verifier": "Read {documents} then {question}",
        "document": "[{title}] {text}",
        "nothing": "none",
        "information": "<observation>{documents}</observation> go on",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text)
    tags = '{"search": "find", "information": "observation", "also": ["evidence"]}'
    (tmp_path / "tags.json").write_text(tags)
    rules = rules_of(mini, ByteTokenizer(), prompts=str(tmp_path), verifier="none", **ROOMY)
    asks = say("<find> mentor </find>", "<question> who is the mentor ? </question>")
    by_turn = by_role(asks, say("<find> rival </find>", "<answer> nobody </answer>"))
    (game,) = play(begin(rules, slots=1), by_turn).games
    for file in tmp_path.iterdir():
        file.unlink()
    tmp_path.rmdir()
    assert game.outcome is Outcome.VALID
    assert b"<observation>[" in spell(rules.tokenizer, game.attempts[0].trajectory.ids)
    again(game, rules)


# -- code of the user's own --------------------------------------------------------------------


def own_noise(
    rng: Any, count: int, own: Any, others: Any, corpus: Any
) -> tuple[NoiseDocument, ...]:
    """Always the same page."""
    return (NoiseDocument(corpus[0], "corpus"),)


def fussy(proposal: Any) -> bool:
    """Fails about every other question."""
    return len(proposal.question) % 2 == 0


def pays_length(game: Game) -> float:
    """Something that no name of the config stands for."""
    return len(game.question or "") / 100


def pays_place(game: Game, attempt: Attempt) -> float:
    """Each attempt something else."""
    return 0.25 * game.number_of(attempt.trajectory)


def test_what_own_code_said_is_played_back(mini: MiniWorld, words: WordTokenizer) -> None:
    rewards = {"own_proposer_reward": pays_length, "solver_reward": pays_place}
    rules = rules_of(
        mini, words, attempts=3, noise=own_noise, own_filters={"fussy": fussy}, **rewards
    )
    games = play(begin(rules, slots=6), by_role(propose())).games
    assert {game.reason for game in games} == {None, "fussy"}
    saved = [again(game, rules) for game in games]
    assert list(replay(saved[0]).as_saved) == ["filter fussy", "proposer_reward", "solver_reward"]

    given: Any = {"proposer_reward": pays_length, "solver_reward": pays_place}
    others: Any = {"proposer_reward": lambda g: 0.5, "solver_reward": lambda g, a: 1.0}
    for game, one in zip(games, saved, strict=True):
        checked = replay(one, **given)
        assert (checked.identical, list(checked.as_saved)) == (True, ["filter fussy"])
        if game.outcome is Outcome.VALID:
            assert (game.proposer_reward, game.solver_reward) == (pays_length(game), 0.25)
            paid = {"game: proposer_reward", "game: solver_reward", "solver 1: reward"}
            assert places(replay(one, **others)) >= paid


# -- alterations -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(mini: MiniWorld, words: WordTokenizer) -> SavedGame:
    rules = rules_of(mini, words, attempts=3)
    (game,) = play(begin(rules, slots=1), by_role(propose())).games
    assert game.solve_rate == 1.0
    return save_game(game, rules)


def places(replayed: Replay) -> set[str]:
    """Where a replay differs."""
    return {difference.split(": saved ")[0] for difference in replayed.differences}


def changed(saved: SavedGame, **fields: Any) -> SavedGame:
    """The game with other values in its record."""
    return replace(saved, record=replace(saved.record, **fields))


def altered(saved: SavedGame, **changes: Any) -> SavedGame:
    """The game with other values in its last attempt."""
    *others, last = saved.record.trajectories
    return changed(saved, trajectories=(*others, replace(last, **changes)))


def rewritten(saved: SavedGame, place: int, **changes: Any) -> SavedGame:
    """The game with other values in one segment of its last attempt."""
    segments = [*saved.record.trajectories[-1].segments]
    segments[place] = replace(segments[place], **changes)
    return altered(saved, segments=tuple(segments))


def other_id(saved: SavedGame, place: int) -> SavedGame:
    """The game with another token in its last attempt."""
    ids = saved.record.trajectories[-1].segments[place].ids or ()
    return rewritten(saved, place, ids=(ids[0], ids[1] + 1, *ids[2:]))


def other_passage(saved: SavedGame) -> SavedGame:
    """The game with another word in what its last attempt found."""
    (search,) = saved.record.trajectories[-1].searches
    first, *others = search.documents
    first = replace(first, text=first.text.replace(first.text.split()[2], "nobody", 1))
    return altered(saved, searches=(replace(search, documents=(first, *others)),))


SOLVER = "solver 3"
PAID = {"game: solve_rate", "game: proposer_reward", "game: solver_reward"}
FORGERIES: list[tuple[Callable[[SavedGame], SavedGame], set[str]]] = [
    (lambda s: other_id(s, 0), {f"{SOLVER}: segments[0].ids[1]"}),
    (lambda s: other_id(s, 2), {f"{SOLVER}: segments[2].ids[1]"}),
    (other_passage, {f"{SOLVER}: segments[2].text", f"{SOLVER}: segments[2].ids[3]"}),
    (lambda s: rewritten(s, 1, text="?"), {f"{SOLVER}: segments[1].text"}),
    (lambda s: altered(s, ending=Ending.FORMAT), {f"{SOLVER}: ending"}),
    (lambda s: altered(s, result="me"), {f"{SOLVER}: result"}),
    (lambda s: altered(s, verdict=Verdict(False)), {f"{SOLVER}: reward", *PAID}),
    (lambda s: changed(s, question="who ?"), {"game: question"}),
    (lambda s: changed(s, evidence=s.record.evidence[:-1]), {"game: evidence[1]"}),
    (lambda s: changed(s, hops=7), {"game: hops"}),
    (lambda s: changed(s, trajectories=s.record.trajectories[:-1]), {SOLVER, *PAID}),
]


@pytest.mark.parametrize(("forge", "expected"), FORGERIES)
def test_a_replay_says_where_a_forged_game_differs(
    mini: MiniWorld,
    saved: SavedGame,
    forge: Callable[[SavedGame], SavedGame],
    expected: set[str],
) -> None:
    assert places(replay(forge(saved), world=mini)) == expected


def test_a_search_that_was_not_recorded(saved: SavedGame) -> None:
    again = replay(altered(saved, searches=()))
    assert any("not recorded: search 1 of solver 3" in d for d in again.differences)
    assert {"solver 3: ending", "solver 3: outage"} <= places(again)
