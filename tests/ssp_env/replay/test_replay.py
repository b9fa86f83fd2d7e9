"""Saved games play again offline as they were, whatever became of them; what was altered is told by
its place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scripted import begin, by_role, play, propose, read, rules_of, say, solve, spell, written

from ssp_env.errors import ConfigError, DataError, ServiceError
from ssp_env.game.game import Attempt, Game, Origin, Start
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.protocol import Tags
from ssp_env.game.record import record_game
from ssp_env.game.round import Phase, Round
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import ReplayBuffer
from ssp_env.game.verification import NoiseDocument
from ssp_env.judge.base import Verdict
from ssp_env.judge.exact import ExactMatchJudge
from ssp_env.replay import (
    OwnCode,
    SavedGame,
    read_games,
    replay,
    rescore,
    save_game,
    save_games,
)
from ssp_env.replay.files import game_lines, parse_games
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.tokenizers import BPETokenizer, ByteTokenizer, Tokenizer, WordTokenizer
from ssp_env.types import Document
from ssp_env.worlds.mini import MiniWorld

ROOMY: dict[str, Any] = {
    "max_prompt_tokens": 3000,
    "max_response_tokens": 3000,
    "max_query_tokens": 40,
    "max_document_tokens": 500,
}


def again(game: Game, rules: Rules) -> SavedGame:
    """Saves a game, reads it, replays it and checks that nothing at all is different."""
    saved = written(save_game(game, rules))
    replayed = replay(saved)
    assert [str(difference) for difference in replayed.differences] == []
    now, then = replayed.game, game
    unread = replace(record_game(then, rules), hops=None, truly_correct=None, right_answers=None)
    assert record_game(now, replayed.rules) == unread, "apart from what only the world knows"
    assert replay(saved, world=rules.world).identical
    for t, u in zip(then.trajectories(), now.trajectories(), strict=True):
        assert (t.role, t.ids, t.mask, t.logprobs, t.about) == (
            u.role,
            u.ids,
            u.mask,
            u.logprobs,
            u.about,
        )
        assert (t.ending, t.result, t.searches, t.library, t.documents) == (
            u.ending,
            u.result,
            u.searches,
            u.library,
            u.documents,
        )
        scores = [[d.score for s in one.searches for d in s.documents] for one in (t, u)]
        assert scores[0] == scores[1]
    assert (then.evidence, then.noise, then.truth, then.seed) == (
        now.evidence,
        now.noise,
        now.truth,
        now.seed,
    )
    assert [(a.verdict, a.reward) for a in then.attempts] == [
        (a.verdict, a.reward) for a in now.attempts
    ]
    return saved


def test_verification_by_an_attempt(mini: MiniWorld, words: WordTokenizer) -> None:
    """What it found among its documents is found again, without a world to search in."""
    form = {"verification_prompt": "attempt", "attempts": 1}
    rules = rules_of(mini, words, verifier="policy", **form)
    games = play(begin(rules), by_role(propose(2), solve, solve)).games
    assert any(game.verifier and len(game.verifier.searches) == 2 for game in games)
    for game in games:
        again(game, rules)


# -- valid games -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["words", "bytes", "bpe"])
@pytest.mark.parametrize("verifier", ["world", "policy", "none"])
def test_games_of_a_batch(
    mini: MiniWorld, words: WordTokenizer, kind: str, verifier: str, tmp_path: Path
) -> None:
    tokenizers = {"words": words, "bytes": ByteTokenizer(), "bpe": BPETokenizer()}
    tokenizer: Tokenizer = tokenizers[kind]
    rules = rules_of(
        mini, tokenizer, verifier=verifier, proposals=2, asked_searches=(1, 3), **ROOMY
    )
    played = play(begin(rules, slots=6), by_role(propose(2), solve, read(mini)))
    assert {game.outcome for game in played.games} == {Outcome.VALID}
    assert any(item.origin.startswith("game ") for game in played.games for item in game.noise)
    for game in played.games:
        saved = again(game, rules).record
        assert saved.materials is not None
        assert set(saved.materials) == {d.id for d in game.evidence} | {
            n.document.id for n in game.noise
        }
    for name in ("batch.jsonl", "batch.jsonl.gz"):
        save_games(played.games, rules, tmp_path / name)
        assert list(read_games(tmp_path / name)) == [
            save_game(game, rules) for game in played.games
        ]


def test_reused_and_given_questions(mini: MiniWorld, words: WordTokenizer) -> None:
    rules, strategy = rules_of(mini, words, attempts=2), ReplayBuffer()
    play(begin(rules, seed=[1], strategy=strategy), by_role(propose()))
    played = play(begin(rules, seed=[2], strategy=strategy), by_role(say([1])))
    reused = [game for game in played.games if game.origin is Origin.REUSED]
    given = play(Round.of_questions(rules, mini.questions(seed=0, per_group=1), [7]), solve).games
    assert len(reused) == 4
    assert given
    for game in (*reused, *given):
        assert again(game, rules).record.start.question == game.question


def test_a_short_cut_stays_one(mini: MiniWorld, words: WordTokenizer) -> None:
    """Whoever judges it."""
    question, rules = mini.questions(seed=0, per_group=1)[0], rules_of(mini, words, attempts=2)
    given = (question.truth, Origin.COMPOSED)
    start = Start((7,), 0, 0, *given, question=question.text, least_searches=2)
    (game,) = play(Round.of_start(rules, start), solve).games
    assert game.solve_rate == 0.0, "the answer is right, but took one search"
    saved = again(game, rules)
    assert saved.record.start == start
    assert not rescore([saved], ExactMatchJudge())[0].changed


def test_random_games(mini: MiniWorld) -> None:
    """Whole turns of random tokens, tags often among them, in attempts that are played at the same
    time."""
    tokenizer = ByteTokenizer()
    changes = {
        **ROOMY,
        "verifier": "none",
        "filters": ("no_search",),
        "max_response_tokens": 900,
        "attempts": 2,
    }
    rules = rules_of(mini, tokenizer, max_searches=2, asked_searches=(1, 1), **changes)
    calls = [
        "<search>mentor</search>",
        "<question>what is the mentor</question>",
        "<answer>rival</answer>",
    ]
    tags = ["<search>", "</search>", "<question>", "</question>", "<answer>", "</answer>"]
    common = [
        tokenizer.encode(text) for text in (*calls, *calls, *tags, "mentor ", "what ", "<", "</")
    ]
    endings = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        played = begin(rules, slots=2, seed=[seed])
        while pending := played.pending():
            for trajectory in pending:
                parts = [common[i] for i in rng.integers(len(common), size=int(rng.integers(1, 6)))]
                parts.append(
                    [int(rng.integers(tokenizer.vocab_size))] if rng.random() < 0.3 else []
                )
                trajectory.feed_turn([token for part in parts for token in part])
            played.advance()
        for game in played.games:
            again(game, rules)
            endings.add((game.outcome, game.reason, *(a.trajectory.ending for a in game.attempts)))
    assert len(endings) > 5, "the games are no test if they all end alike"


# -- invalid games -----------------------------------------------------------------------------


INVALID: dict[str, tuple[Any, dict[str, Any]]] = {
    "format": ([20, 1], {}),
    "forged_information": ("<information>", {}),
    "budget_tokens": ([20] * 30, {"max_response_tokens": 30}),
    "budget_searches": ("<search> mentor </search>", {"max_searches": 2, "asked_searches": (1, 2)}),
    "budget_query": ("<search> mentor mentor mentor </search>", {"max_query_tokens": 2}),
    "empty_question": ("<question> ? </question>", {}),
    "no_search": ("<question> what is the mentor of it ? </question>", {}),
    "short_question": (("<search> mentor </search>", "<question> what ? </question>"), {}),
    "long_question": (
        ("<search> mentor </search>", "<question> what is the mentor </question>"),
        {},
    ),
    "repeated_query": (
        ("<search> mentor </search>",) * 2 + ("<question> who is it of </question>",),
        {},
    ),
    "unverified": (
        ("<search> mentor </search>", "<question> what is the mentor of it ? </question>"),
        {},
    ),
}


@pytest.mark.parametrize("reason", INVALID)
def test_invalid_games(mini: MiniWorld, words: WordTokenizer, reason: str) -> None:
    turns, changes = INVALID[reason]
    if reason == "long_question":
        changes = {"max_question_chars": 12}
    if reason == "repeated_query":
        changes = {"filters": ("repeated_query",)}
    rules = rules_of(mini, words, invalid_reward=-0.5, **changes)
    script = say(*(turns if isinstance(turns, tuple) else (turns,)))
    (game,) = play(begin(rules, slots=1), by_role(script)).games
    assert (game.outcome, game.reason) == (Outcome.INVALID, reason)
    assert again(game, rules).record.proposer_reward == -0.5


def test_the_closed_book_gate(mini: MiniWorld, words: WordTokenizer) -> None:
    rules = rules_of(mini, words, closed_book=True)
    for answers in (False, True):
        played = begin(rules, slots=3)
        while pending := played.pending():
            for trajectory in pending:
                game = next(game for game in played.games if trajectory in game.trajectories())
                known = f"<answer> {game.truth.answer if answers else 'nothing'} </answer>"
                script = propose() if trajectory is game.proposer else solve
                trajectory.feed(
                    words.encode(
                        known if trajectory is game.closed_book else str(script(trajectory))
                    )
                )
            played.advance()
        for game in played.games:
            assert game.reason == ("closed_book" if answers else None)
            assert again(game, rules).record.closed_book is not None


# -- void games --------------------------------------------------------------------------------


class FailingSearch(BM25Retriever):
    """Cannot answer one query."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        if "mentor" in queries:
            raise ServiceError("search", "down")
        return super().search(queries, k)


@pytest.mark.parametrize("unlucky", [0, 1, 2])
@pytest.mark.parametrize("when", [0, 1])
def test_a_search_that_failed_in_the_middle_of_an_attempt(
    mini: MiniWorld, words: WordTokenizer, unlucky: int, when: int
) -> None:
    """Three attempts side by side, one search apart: the others end wherever they were."""
    rules = rules_of(mini, words, attempts=3, retriever=FailingSearch(mini.corpus))
    played = begin(rules, slots=1)

    def solver(trajectory: Any) -> Any:
        index = [attempt.trajectory for attempt in played.games[0].attempts].index(trajectory)
        if index == unlucky and len(trajectory.searches) == when:
            return "<search> mentor </search>"
        return (
            "<search> rival </search>"
            if len(trajectory.searches) < 2 - (index == 0)
            else solve(trajectory)
        )

    (game,) = play(played, by_role(propose(), solver)).games
    void = [i for i, attempt in enumerate(game.attempts) if attempt.outage is not None]
    assert (game.outcome, void) == (Outcome.VALID, [unlucky])
    saved = again(game, rules)
    assert [a.outage is not None for a in saved.record.attempts] == [i == unlucky for i in range(3)]


@pytest.mark.parametrize("attempts", [2, 5])
def test_a_game_that_several_outages_made_void(
    mini: MiniWorld, words: WordTokenizer, attempts: int
) -> None:
    """Of two services, one after the other; those that had not begun end with the game."""
    rules = rules_of(mini, words, attempts=attempts, retriever=FailingSearch(mini.corpus))
    played = begin(rules, slots=1)
    while played.phase is not Phase.SOLVE:
        for trajectory in played.pending():
            trajectory.feed(words.encode(str(propose()(trajectory))))
        played.advance()

    first, *_, last = played.pending()
    last.feed(words.encode("<search> mentor </search>"))
    played.advance()
    if attempts == 5:
        first.feed(words.encode("<search> rival"))
        played.void(played.pending()[:2], ServiceError("engine", "gone"))

    (game,) = played.games
    assert game.outcome is Outcome.VOID
    assert again(game, rules).record.reason == ("engine" if attempts == 5 else "search")


def test_a_query_that_was_refused(mini: MiniWorld, words: WordTokenizer) -> None:
    class Picky(BM25Retriever):
        def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
            raise ServiceError("search", "HTTP 413", fault="text")

    rules = rules_of(mini, words, retriever=Picky(mini.corpus))
    (game,) = play(begin(rules, slots=1), by_role(say("<search> mentor </search>"))).games
    assert again(game, rules).record.reason == "refused"


class FailingJudge(ExactMatchJudge):
    """Fails for the second task of each call, or for all of them, under a name of its own."""

    def __init__(self, every: bool) -> None:
        self.every = every

    def judge(self, tasks: Any) -> Any:
        if self.every:
            raise ServiceError("panel", "down")
        return [
            ServiceError("panel", "down") if i == 1 else v
            for i, v in enumerate(super().judge(tasks))
        ]


@pytest.mark.parametrize("parts", [{"judge": FailingJudge(True)}, {"judge": FailingJudge(False)}])
@pytest.mark.parametrize("verifier", ["world", "policy"])
def test_a_judge_that_failed(
    mini: MiniWorld, words: WordTokenizer, parts: Any, verifier: str
) -> None:
    rules = rules_of(mini, words, attempts=3, verifier=verifier, max_prompt_tokens=1000, **parts)
    (game,) = play(begin(rules, slots=1), by_role(propose(), solve, read(mini))).games
    record = again(game, rules).record
    if parts["judge"].every:
        assert record.reason == "panel"
    else:
        assert [a.outage and a.outage.service for a in record.attempts] == [None, "panel", None]


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
@pytest.mark.parametrize("index", [0, 2])
def test_an_engine_that_failed(
    mini: MiniWorld, words: WordTokenizer, turns: int, index: int
) -> None:
    rules = rules_of(mini, words, attempts=3)
    played = begin(rules, slots=1)
    for _ in range(turns):
        for trajectory in played.pending():
            script = propose() if played.phase is Phase.PROPOSE else solve
            trajectory.feed(words.encode(str(script(trajectory))))
        played.advance()
    played.void(
        played.pending()[index:][:1] or played.pending(), ServiceError("engine", "out of memory")
    )
    played.advance()
    play(played, solve)
    record = again(played.games[0], rules).record
    if turns < 2:  # a proposer's turn
        assert record.reason == "engine"
    else:
        assert [a.outage and a.outage.service for a in record.attempts].count("engine") == 1


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
    given = OwnCode({"fussy": fussy}, pays_length, pays_place)
    assert all(replay(one, own=given).identical for one in saved)
    others = OwnCode({"fussy": lambda proposal: False}, lambda game: 0.5, lambda game, attempt: 1.0)
    for one in saved:
        fields = {(d.where, d.field) for d in replay(one, own=others).differences}
        if one.record.outcome is Outcome.VALID:
            paid = {("game", "proposer_reward"), ("game", "solver_reward")}
            assert fields == paid | {(f"solver {i}", "reward") for i in (1, 2, 3)}
        else:
            assert ("game", "outcome") in fields
    with pytest.raises(ConfigError, match="the game had no such filter"):
        replay(saved[0], own=OwnCode({"fuzzy": fussy}))


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
    tags = Tags(search="find", information="observation", also=("evidence",))
    rules = rules_of(
        mini, ByteTokenizer(), tags=tags, prompts=str(tmp_path), verifier="none", **ROOMY
    )
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


@settings(max_examples=400)
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


def test_a_line_may_be_written_in_another_way(saved: SavedGame) -> None:
    """Spaces and escapes are no alteration."""
    lines = [f"{json.dumps(json.loads(line))}\n".encode() for line in game_lines([saved])]
    assert list(parse_games(lines, "games.jsonl")) == [saved]


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
