"""Saved games play again offline as they were; what was altered is told by its place.

Invalid and void games are replayed where they are played: game/test_round.py, test_outages.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scripted import again, begin, by_role, play, propose, read, rules_of, say, solve, spell

from ssp_env.errors import ConfigError, DataError
from ssp_env.game.game import Attempt, Game, Origin, Start
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.round import Round
from ssp_env.game.strategies import ReplayBuffer
from ssp_env.game.verification import NoiseDocument
from ssp_env.judge.base import Verdict
from ssp_env.judge.exact import ExactMatchJudge
from ssp_env.replay import SavedGame, read_games, replay, rescore, save_game, save_games
from ssp_env.replay.files import game_lines, parse_games
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
        ("bpe", "policy", "solver"),
        ("words", "policy", "attempt"),
        ("bpe", "none", "solver"),
    ],
)
def test_games_of_a_batch(
    mini: MiniWorld, words: WordTokenizer, kind: str, verifier: str, form: str, tmp_path: Path
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
    for name in ("batch.jsonl", "batch.jsonl.gz"):
        save_games(played.games, rules, tmp_path / name)
        saved = [save_game(game, rules) for game in played.games]
        assert list(read_games(tmp_path / name)) == saved


def test_reused_and_given_questions(mini: MiniWorld, words: WordTokenizer) -> None:
    rules, strategy = rules_of(mini, words, attempts=2), ReplayBuffer()
    play(begin(rules, seed=[1], strategy=strategy), by_role(propose()))
    played = play(begin(rules, seed=[2], strategy=strategy), by_role(say([1])))
    reused = [game for game in played.games if game.origin is Origin.REUSED]
    given = play(Round.of_questions(rules, mini.questions(seed=0, per_group=1), [7]), solve).games
    assert len(reused) == 4
    for game in (*reused, *given):
        assert again(game, rules).record.start.question == game.question


def test_a_short_cut_stays_one(mini: MiniWorld, words: WordTokenizer) -> None:
    """Whoever judges it."""
    question, rules = mini.questions(seed=0, per_group=1)[0], rules_of(mini, words, attempts=2)
    given = (question.truth, Origin.COMPOSED)
    start = Start((7,), 0, 0, *given, question=question.text, least_searches=2)
    (game,) = play(Round.of_starts(rules, [start]), solve).games
    assert game.solve_rate == 0.0, "the answer is right, but took one search"
    saved = again(game, rules)
    assert saved.record.start == start
    assert not rescore([saved], ExactMatchJudge())[0].changed


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
    return 0.25 * [one is attempt for one in game.attempts].index(True)


def test_what_own_code_said_is_played_back(mini: MiniWorld, words: WordTokenizer) -> None:
    parts = {
        "own_filters": {"fussy": fussy},
        "own_proposer_reward": pays_length,
        "solver_reward": pays_place,
    }
    rules = rules_of(mini, words, attempts=3, noise=own_noise, **parts)
    games = play(begin(rules, slots=6), by_role(propose())).games
    assert {game.reason for game in games} == {None, "fussy"}
    saved = [again(game, rules) for game in games]
    assert saved[0].rules.parts.filters["fussy"].endswith("test_replay.fussy")
    given: Any = {
        "filters": {"fussy": fussy},
        "proposer_reward": pays_length,
        "solver_reward": pays_place,
    }
    assert all(replay(one, **given).identical for one in saved)
    others: Any = {
        "filters": {"fussy": lambda proposal: False},
        "proposer_reward": lambda game: 0.5,
        "solver_reward": lambda game, attempt: 1.0,
    }
    for one in saved:
        fields = {(d.where, d.field) for d in replay(one, **others).differences}
        if one.record.outcome is Outcome.VALID:
            paid = {("game", "proposer_reward"), ("game", "solver_reward")}
            assert fields == paid | {(f"solver {i}", "reward") for i in (1, 2, 3)}
        else:
            assert ("game", "outcome") in fields
    with pytest.raises(ConfigError, match="the game had no such filter"):
        replay(saved[0], filters={"fuzzy": fussy})


def test_own_prompts_and_tags_replay_where_they_do_not_lie(mini: MiniWorld, tmp_path: Path) -> None:
    texts = {
        "proposer": "Ask about {answer}, {searches} searches.",
        "solver": "Solve {question}",
        "verifier": "Read {documents} then {question}",
        "document": "[{title}] {text}",
        "nothing": "none",
        "information": "<observation>{documents}</observation> go on",
    }
    tags = '{"search": "find", "information": "observation", "also": ["evidence"]}'
    (tmp_path / "tags.json").write_text(tags)
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text)
    rules = rules_of(mini, ByteTokenizer(), prompts=str(tmp_path), verifier="none", **ROOMY)
    turns = (
        "<find> mentor </find>",
        "<question> who is the mentor ? </question>",
        "<answer> nobody </answer>",
    )
    by_turn = by_role(say(*turns), say("<find> rival </find>", "<answer> nobody </answer>"))
    (game,) = play(begin(rules, slots=1), by_turn).games
    for file in tmp_path.iterdir():
        file.unlink()
    tmp_path.rmdir()
    assert game.outcome is Outcome.VALID
    assert b"<observation>[" in spell(rules.tokenizer, game.attempts[0].trajectory.ids)
    again(game, rules)


# -- alterations -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(mini: MiniWorld, words: WordTokenizer) -> SavedGame:
    rules = rules_of(mini, words, attempts=3)
    (game,) = play(begin(rules, slots=1), by_role(propose())).games
    assert game.solve_rate == 1.0
    return save_game(game, rules)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all that is neither an object nor a list, and to empty ones."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, dict | list) and item:
            yield from leaves(item, (*path, key))
        else:
            yield (*path, key)


def another(value: Any, rng: Random) -> Any:
    """Some other value, of the same type or of another one."""
    match value:
        case bool():
            return rng.choice([not value, None])
        case int():
            return rng.choice([value + 1, -value - 1, float(value) + 0.5, str(value)])
        case float():
            return rng.choice([value + 0.25, -value - 1.0, None])
        case str():
            return rng.choice([f"{value} x", value[:-1] + "y", "", 5]) if value else "x"
    return rng.choice([1, "x", True, [0], {"a": 1}])


@settings(max_examples=100)
@given(rng=st.randoms(use_true_random=False))
def test_reading_notices_any_altered_leaf_of_a_line(saved: SavedGame, rng: Random) -> None:
    lines = [json.loads(line) for line in game_lines([saved])]
    row = lines[rng.random() < 0.8]
    *path, last = rng.choice(list(leaves(row)))
    for step in path:
        row = row[step]
    row[last] = another(before := row[last], rng)
    assume(row[last] != before)
    assume(str(row[last]) != str(before))  # settings take "3" for 3
    with pytest.raises(DataError, match=r"games\.jsonl:[12]: "):
        list(parse_games([json.dumps(line).encode() + b"\n" for line in lines], "games.jsonl"))

    # Spaces and escapes are no alteration.
    row[last] = before
    rows = [json.dumps(line, indent=None).encode() + b"\n" for line in lines]
    assert list(parse_games(rows, "games.jsonl")) == [saved]


def changed(saved: SavedGame, **fields: Any) -> SavedGame:
    """The game with other values in its record."""
    return replace(saved, record=replace(saved.record, **fields))


def altered(saved: SavedGame, index: int, **changes: Any) -> SavedGame:
    """The game with other values in one attempt's trajectory."""
    attempt = saved.record.attempts[index]
    plays = [replace(t, **changes) if t is attempt else t for t in saved.record.trajectories]
    return changed(saved, trajectories=tuple(plays))


def rewritten(saved: SavedGame, index: int, segment: int, **changes: Any) -> SavedGame:
    """The game with other values in one segment of an attempt."""
    segments = list(saved.record.attempts[index].segments)
    segments[segment] = replace(segments[segment], **changes)
    return altered(saved, index, segments=tuple(segments))


def other_id(saved: SavedGame, segment: int) -> SavedGame:
    """The game with another token in the second attempt."""
    ids = saved.record.attempts[1].segments[segment].ids or ()
    return rewritten(saved, 1, segment, ids=(ids[0], ids[1] + 1, *ids[2:]))


def other_passage(saved: SavedGame) -> SavedGame:
    """The game with another word in what the third attempt found."""
    (search,) = saved.record.attempts[2].searches
    first = search.documents[0]
    first = replace(first, text=first.text.replace(first.text.split()[2], "nobody", 1))
    documents = (first, *search.documents[1:])
    return altered(saved, 2, searches=(replace(search, documents=documents),))


FORGERIES: dict[str, tuple[Callable[[SavedGame], SavedGame], set[tuple[str, str]]]] = {
    "token of the prompt": (lambda s: other_id(s, 0), {("solver 2", "segments[0].ids[1]")}),
    "token of an observation": (lambda s: other_id(s, 2), {("solver 2", "segments[2].ids[1]")}),
    "passage": (
        other_passage,
        {("solver 3", "segments[2].text"), ("solver 3", "segments[2].ids[3]")},
    ),
    "readable text": (lambda s: rewritten(s, 0, 1, text="?"), {("solver 1", "segments[1].text")}),
    "ending": (lambda s: altered(s, 0, ending=Ending.FORMAT), {("solver 1", "ending")}),
    "result": (lambda s: altered(s, 0, result="me"), {("solver 1", "result")}),
    "verdict": (
        lambda s: altered(s, 1, verdict=Verdict(False)),
        {("solver 2", "reward")}
        | {("game", name) for name in ("solve_rate", "proposer_reward", "solver_reward")},
    ),
    "question": (lambda s: changed(s, question="who ?"), {("game", "question")}),
    "reward": (lambda s: changed(s, proposer_reward=0.75), {("game", "proposer_reward")}),
    "evidence": (
        lambda s: changed(s, evidence=s.record.evidence[:-1]),
        {("game", "number of evidence")},
    ),
    "hops": (lambda s: changed(s, hops=7), {("game", "hops")}),
    "truth": (lambda s: changed(s, truly_correct=False), {("game", "truly_correct")}),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_replay_says_where_a_forged_game_differs(
    mini: MiniWorld, saved: SavedGame, name: str
) -> None:
    forge, expected = FORGERIES[name]
    found = replay(forge(saved), world=mini).differences
    assert {(d.where, d.field) for d in found} == expected


def test_a_search_that_was_not_recorded(saved: SavedGame) -> None:
    differences = replay(altered(saved, 0, searches=())).differences
    assert any("not recorded: search 1 of solver 1" in str(d) for d in differences)
    assert {("solver 1", "ending"), ("solver 1", "outage")} <= {
        (d.where, d.field) for d in differences
    }
