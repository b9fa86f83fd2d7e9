"""Batch strategies: what they ask for, fill in and remember; attempts and proposals shown again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import again, begin, by_role, play, propose, rules_of, say, solve

from ssp_env.errors import ServiceError
from ssp_env.game.batch import GameBatch
from ssp_env.game.config import DEFAULT_FILTERS
from ssp_env.game.examples import play_examples, with_turns
from ssp_env.game.game import Game, InitialState, Origin
from ssp_env.game.outcome import Outcome
from ssp_env.game.pool import PooledQuestion, compose
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import (
    REMEMBERED,
    BalancedReuse,
    BatchStrategy,
    Remembering,
    ReplayBuffer,
    make_strategy,
    update_strategy,
)
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import GroundTruth, Question, Role
from ssp_env.worlds.mini import MiniWorld


def step(
    strategy: BatchStrategy, fresh: Sequence[PooledQuestion], empty: int, seed: int = 0
) -> list[PooledQuestion]:
    strategy.begin_step()
    filled = strategy.fill(np.random.default_rng(seed), fresh, empty)
    strategy.keep(fresh)
    return filled


@pytest.mark.parametrize("every", [1, 3])
def test_periodic_reset_comes_exactly_every_k_steps(every: int) -> None:
    strategy = ReplayBuffer(reset_every=every)
    sizes = []
    for i in range(4 * every):
        step(strategy, [asked(f"what is {i} ?", "x")], 0)
        sizes.append(len(strategy.pool))
    assert sizes == list(range(1, every + 1)) * 4


def test_past_questions_are_refused_in_later_steps_and_in_replays(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    rules = rules_of(mini, words, attempts=2, filters=(*DEFAULT_FILTERS, "past_question"))
    strategy, player = Remembering(ReplayBuffer()), by_role(propose(), solve)
    first = play(begin(rules, seed=[1], strategy=strategy), player)
    assert {game.outcome for game in first.games} == {Outcome.VALID}

    # A later step about the same answers, wherever its batch is played; the batch is filled up.
    elsewhere = Remembering(ReplayBuffer())
    elsewhere.set_state(json.loads(json.dumps(strategy.get_state())))
    second = play(begin(rules, seed=[1], strategy=elsewhere), player)
    proposed, reused = second.games[:4], second.games[4:]
    assert {game.reason for game in proposed} == {"past_question"}
    assert [game.origin for game in reused] == [Origin.REUSED] * 4
    for game in proposed:
        assert game.question in again(game, rules).record.initial_state.asked_before

    for _ in range(2 * REMEMBERED):
        strategy.keep([asked("what is it ?", "g1")])
    assert len(strategy.asked_before("g1")) == REMEMBERED


def asked(text: str, answer: str, searches: int = 1) -> PooledQuestion:
    return PooledQuestion(text, GroundTruth(answer, answer), searches)


@pytest.mark.parametrize(
    ("outer", "inner", "whole"),
    [
        (
            asked("Who designed the Eiffel Tower?", "Koechlin"),
            asked("What was the tallest building of 1900?", "Eiffel Tower", 2),
            "Who designed the tallest building of 1900?",
        ),
        (
            asked("Who led the country of Paris?", "de Gaulle"),
            asked("Which city hosted the games of 1924?", "Paris"),
            "Who led the country of (the answer to: Which city hosted the games of 1924?)?",
        ),
    ],
)
def test_two_questions_make_one(outer: PooledQuestion, inner: PooledQuestion, whole: str) -> None:
    made = compose(outer, inner)
    assert made == PooledQuestion(whole, outer.truth, outer.searches + inner.searches, 2)


def test_a_step_is_filled_up_with_the_lengths_that_it_lacks() -> None:
    strategy = BalancedReuse()
    step(strategy, [asked(f"what is {i} ?", str(i), 1 + i % 3) for i in range(40)], 0)
    fresh = [asked(f"which is {i} ?", str(i), 2) for i in range(8)]
    lengths = Counter(item.searches for item in step(strategy, fresh, 16))
    assert lengths == {1: 4, 3: 12}, "with eight of two searches, 4 : 8 : 12"


def test_no_question_fills_two_slots_before_all_others_have() -> None:
    """A proposer asks its favourite over and over, and few questions are of the longest."""
    strategy = BalancedReuse()
    favourite, long = asked("what is 0 ?", "0"), asked("what is 9 ?", "9", 4)
    others = [asked(f"what is {i} ?", str(i)) for i in range(1, 5)]
    step(strategy, [*[favourite] * 30, *others, long], 0)
    filled = [item.question for item in step(strategy, [], 12)]
    assert Counter(filled[:6]) == Counter(filled[6:])
    assert len({*filled[:6]}) == 6


def chain(start: int) -> PooledQuestion:
    """The question of one hop whose answer the next one asks about."""
    return asked(f"what is the heir of N{start} ?", f"N{start + 1}")


@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1))
def test_questions_are_put_together_up_to_one_search_beyond_the_longest(seed: int) -> None:
    two = asked("what is the heir of the heir of N20 ?", "N22", 2)
    strategy = make_strategy("compose", max_searches=5)
    step(strategy, [*map(chain, range(8)), two], 0)
    filled = step(strategy, [], 40, seed)

    for item in (item for item in filled if item.parts > 1):
        links = item.question.count("the heir of")
        start = int(item.question.split()[-2][1:])
        assert links == item.parts == item.searches <= 3
        assert item.truth.answer == f"N{start + links}"
    assert 3 in {item.searches for item in filled}
    assert any(item.parts == 1 for item in filled)


def thinks(trajectory: Any) -> str:
    """A solver that says how far it is before each turn."""
    return f"<think> {trajectory.about.split()[-2]} </think> {solve(trajectory)}"


def solved(rules: Rules, text: str, answer: str) -> PooledQuestion:
    """A question with the solution of whoever has just solved it, and a proposer's turns."""
    truth = GroundTruth(answer, answer)
    (game,) = play(
        GameBatch.of_questions(rules, [Question(text, text, (answer,), "1")], [3]), thinks
    ).games
    assert game.solve_rate == 1.0
    item = with_turns(PooledQuestion(text, truth), game, rules.tags)
    assert item.proposal == ()
    looked_up = f"<search> {answer} </search>", f"<think> {text.split()[-2]} </think>"
    return replace(item, searches=len(item.solution) - 2, proposal=looked_up)


def shown(rules: Rules, item: PooledQuestion) -> Game:
    """A game about a question, with its examples."""
    given = item.question, item.searches, item.solution, item.proposal
    game = Game(InitialState((1,), 0, 0, item.truth, Origin.COMPOSED, 0, *given))
    play_examples(rules, [game])
    return game


@pytest.fixture(scope="module")
def rules(mini: MiniWorld, words: WordTokenizer) -> Rules:
    return rules_of(mini, words, attempts=1)


@pytest.fixture(scope="module")
def whole(mini: MiniWorld, rules: Rules) -> PooledQuestion:
    """Two hops, put together from one and one."""
    chain = mini.train_graph.walk(np.random.default_rng(0), 2)
    assert chain is not None
    start, (first, second), *_ = chain
    facts = mini.train_graph.facts
    middle = facts[start][first]
    inner = solved(rules, f"what is the {first.noun} of {start} ?", middle)
    outer = solved(rules, f"what is the {second.noun} of {middle} ?", facts[middle][second])
    made = compose(outer, inner)
    assert made is not None
    return made


def test_solutions_of_the_parts_solve_the_whole(rules: Rules, whole: PooledQuestion) -> None:
    start, middle = (turn.split()[-2] for turn in whole.solution[:2])
    assert whole.solution == (
        f"<think> {start} </think> <search> {start} </search>",
        f"<think> {start} </think> <think> {middle} </think> <search> {middle} </search>",
        f"<think> {middle} </think>",
        f"<answer> {whole.truth.answer} </answer>",
    )
    attempt = shown(rules, whole).example
    assert attempt is not None
    assert attempt.right
    example = attempt.trajectory
    assert (example.role, example.result) == (Role.SOLVER, whole.truth.answer)
    assert [search.query for search in example.searches] == [start, middle]
    own = [token for token, mine in zip(example.ids, example.mask, strict=True) if mine]
    assert rules.limits[Role.SOLVER].tokenizer.decode(own) == " ".join(whole.solution)


def test_proposals_of_the_parts_propose_the_whole(rules: Rules, whole: PooledQuestion) -> None:
    """From the answer down to where the question begins, in turns of the proposer."""
    start, answer = whole.question.split()[-2], whole.truth.answer
    middle = whole.proposal[1].split()[1]
    assert whole.proposal == (
        f"<search> {answer} </search>",
        f"<think> {middle} </think> <search> {middle} </search>",
        f"<think> {start} </think>",
    )
    attempt = shown(rules, whole).example_proposal
    assert attempt is not None
    example = attempt.trajectory
    assert (example.role, example.result) == (Role.PROPOSER, whole.question)
    assert [search.query for search in example.searches] == [answer, middle]
    asks = f"<question> {whole.question} </question>"
    own = [token for token, mine in zip(example.ids, example.mask, strict=True) if mine]
    decode = rules.limits[Role.PROPOSER].tokenizer.decode
    assert decode(own) == " ".join((*whole.proposal, asks))
    assert decode(example.ids[: example.prompt_length]) == decode(rules.prompts.proposer(answer, 1))

    # One that no proposer could have had accepted is left out.
    for proposal in ((), whole.proposal[-1:]):
        assert shown(rules, replace(whole, proposal=proposal)).example_proposal is None
    assert shown(rules, replace(whole, question=f"is it {answer}")).example_proposal is None


def test_a_question_put_together_pays_its_example_as_a_proposal(
    rules: Rules, whole: PooledQuestion, mini: MiniWorld, words: WordTokenizer
) -> None:
    """Unless its attempts would have refused the proposal, or it was asked before."""

    class Gives(BatchStrategy):
        def fill(self, rng: Any, fresh: Any, empty: int) -> list[PooledQuestion]:
            return [whole, replace(whole, parts=1)][:empty]

        def asked_before(self, answer: str) -> tuple[str, ...]:
            return (whole.question,) if answer == whole.truth.id else ()

    played = play(begin(rules, num_games=2, strategy=Gives()), by_role(say([1]), say([1])))
    *_, composed, reused = played.games
    assert (composed.origin, reused.origin) == (Origin.COMPOSED, Origin.REUSED)
    assert composed.example_proposal is not None
    assert (composed.example_proposal.reward, composed.proposer_reward) == (1.0, None)
    assert reused.example_proposal is None
    assert again(composed, rules).record.initial_state == composed.initial_state

    for name in ("unsolved", "past_question"):
        strict = rules_of(mini, words, attempts=1, filters=(name,))
        played = play(begin(strict, num_games=2, strategy=Gives()), by_role(say([1]), say([1])))
        assert [game.example_proposal for game in played.games[-2:]] == [None, None]


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("reuse", (False, False)),
        ("compose", (False, False)),
        ("compose_with_examples", (True, False)),
        ("compose_with_proposals", (True, True)),
    ],
)
def test_a_strategy_keeps_the_turns_that_it_shows(
    name: str, kept: tuple[bool, bool], whole: PooledQuestion
) -> None:
    strategy = make_strategy(name)
    assert isinstance(strategy, ReplayBuffer)
    strategy.keep([whole])
    assert [
        (q.solution == whole.solution, q.proposal == whole.proposal) for q in strategy.pool
    ] == [kept]


def test_only_a_right_example_stays(rules: Rules, whole: PooledQuestion) -> None:
    wrong = (*whole.solution[:-1], "<answer> rival </answer>")
    unended = whole.solution[1:]
    short = replace(whole, searches=3)
    for item in (replace(whole, solution=wrong), replace(whole, solution=unended), short):
        assert shown(rules, item).example is None
    assert shown(rules, replace(whole, solution=())).example is None


@pytest.mark.parametrize("examples", [True, False])
def test_an_earlier_question_brings_its_solution_along(
    mini: MiniWorld, words: WordTokenizer, examples: bool
) -> None:
    """And everything else of the game is as it would be without."""
    rules, strategy = (
        rules_of(mini, words, attempts=2),
        ReplayBuffer(examples=[Role.SOLVER] * examples),
    )
    rules = replace(rules, solver_reward=lambda game, attempt: 3.0 * attempt.right)
    first = play(begin(rules, seed=[1], strategy=make_strategy("dummy")), by_role(propose()))
    update_strategy(strategy, [first.verified])
    played = play(begin(rules, seed=[2], strategy=strategy), by_role(say([1]), say([1])))

    games = [game for game in played.games if game.origin is Origin.REUSED]
    assert len(games) == 4
    for game in games:
        assert (game.solve_rate, len(game.attempts)) == (0.0, 2)
        assert (game.example is not None) == examples == bool(game.initial_state.solution)
        assert game.example is None or game.example.reward == 3.0
        assert game.example_proposal is None
        assert again(game, rules).record.initial_state == game.initial_state


def test_an_outage_costs_the_example_and_nothing_else(
    mini: MiniWorld, words: WordTokenizer, whole: PooledQuestion
) -> None:
    error = ServiceError("search", "down")
    down = SimpleNamespace(search=lambda queries, k: [error for _ in queries])
    game = shown(rules_of(mini, words, retriever=down), whole)
    assert (game.example, game.outcome) == (None, Outcome.PENDING)
