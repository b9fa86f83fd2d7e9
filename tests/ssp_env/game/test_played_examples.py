"""Right attempts that are shown again: where they come from, how they are joined, when they are
dropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scripted import begin, by_role, play, propose, rules_of, say, solve, written

from ssp_env.errors import ServiceError
from ssp_env.game.game import Game, Origin
from ssp_env.game.outcome import Outcome
from ssp_env.game.pool import PooledQuestion, compose, play_examples, solution_of
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import make_strategy, update_strategy
from ssp_env.replay import replay, save_game
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import GroundTruth, Question, Role
from ssp_env.worlds.mini import MiniWorld


def thinks(trajectory: Any) -> str:
    """A solver that says how far it is before each turn."""
    return f"<think> {trajectory.about.split()[-2]} </think> {solve(trajectory)}"


def solved(rules: Rules, text: str, answer: str) -> PooledQuestion:
    """A question with the solution of whoever has just solved it."""
    truth = GroundTruth(answer, answer)
    (game,) = play(
        Round.of_questions(rules, [Question(text, text, (answer,), "1")], [3]), thinks
    ).games
    assert game.solve_rate == 1.0
    solution = solution_of(game, rules.config.tags)
    return PooledQuestion(text, truth, len(solution) - 2, solution=solution)


def shown(rules: Rules, item: PooledQuestion) -> Game:
    """A game about a question, with its example."""
    game = Game((1,), 0, 0, item.truth, Origin.COMPOSED, question=item.question)
    game.solution, game.least_searches = item.solution, item.searches
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
    example = shown(rules, whole).example
    assert example is not None
    assert (example.role, example.result) == (Role.SOLVER, whole.truth.answer)
    assert [search.query for search in example.searches] == [start, middle]
    own = [token for token, mine in zip(example.ids, example.mask, strict=True) if mine]
    assert rules.limits[Role.SOLVER].tokenizer.decode(own) == " ".join(whole.solution)


def test_only_a_right_example_stays(rules: Rules, whole: PooledQuestion) -> None:
    wrong = (*whole.solution[:-1], "<answer> rival </answer>")
    unended = whole.solution[1:]
    short = replace(whole, searches=3)
    for item in (replace(whole, solution=wrong), replace(whole, solution=unended), short):
        assert shown(rules, item).example is None
    assert shown(rules, replace(whole, solution=())).example is None


def test_an_outage_costs_the_example_and_nothing_else(
    mini: MiniWorld, words: WordTokenizer, whole: PooledQuestion
) -> None:
    class Down:
        def search(self, queries: Any, k: int) -> Any:
            return [ServiceError("search", "down")] * len(queries)

    game = shown(rules_of(mini, words, retriever=Down()), whole)
    assert (game.example, game.outcome) == (None, Outcome.PENDING)


@pytest.mark.parametrize("examples", [True, False])
def test_an_earlier_question_brings_its_solution_along(
    mini: MiniWorld, words: WordTokenizer, examples: bool
) -> None:
    """And everything else of the game is as it would be without."""
    rules, strategy = rules_of(mini, words, attempts=2), make_strategy("reuse", examples=examples)
    first = play(begin(rules, seed=[1], strategy=make_strategy("dummy")), by_role(propose()))
    update_strategy(strategy, [first.verified])
    played = play(begin(rules, seed=[2], strategy=strategy), by_role(say([1]), say([1])))

    games = [game for game in played.games if game.origin is Origin.REUSED]
    assert len(games) == 4
    for game in games:
        assert (game.solve_rate, len(game.attempts)) == (0.0, 2)
        assert (game.example is not None) == examples == bool(game.solution)
        saved = written(save_game(game, rules))
        assert replay(saved).identical
        assert saved.record.start.solution == game.solution


def test_what_nobody_solved_has_no_solution(mini: MiniWorld, words: WordTokenizer) -> None:
    played = play(begin(rules_of(mini, words)), by_role(propose(), say([1])))
    assert [item.solution for item in played.verified] == [()] * 4
