"""Given questions beside proposals: what they take part in, and what they leave alone."""

from __future__ import annotations

import pytest
from scripted import again, by_role, play, propose, rules_of, say, solve

from ssp_env.game.batch import GameBatch, answers_of
from ssp_env.game.game import Game, Origin
from ssp_env.game.outcome import Outcome
from ssp_env.game.rules import Rules
from ssp_env.game.strategies import BatchStrategy, make_strategy
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import Question, Role
from ssp_env.worlds.mini import MiniWorld


@pytest.fixture(scope="module")
def rules(mini: MiniWorld, words: WordTokenizer) -> Rules:
    return rules_of(mini, words, attempts=2)


@pytest.fixture(scope="module")
def questions(mini: MiniWorld) -> list[Question]:
    return mini.questions(0, per_group=1)[:3]


def beside(
    rules: Rules, questions: list[Question], strategy: BatchStrategy, num_games: int = 4
) -> GameBatch:
    answers = answers_of(rules.world)
    return GameBatch(rules, answers, num_games, [7], strategy, given=questions)


def given_in(played: GameBatch) -> list[Game]:
    return [game for game in played.games if game.origin is Origin.GIVEN]


def test_they_are_solved_and_nothing_else_and_replay(
    rules: Rules, questions: list[Question]
) -> None:
    played = play(beside(rules, questions, make_strategy("reuse")), by_role(propose(), solve))
    given = given_in(played)
    assert [(game.question, game.truth) for game in given] == [(q.text, q.truth) for q in questions]
    assert len({game.index for game in played.games}) == len(played.games) == 7
    for game in given:
        assert (game.outcome, game.proposer_reward, game.verification) == (
            Outcome.VALID,
            None,
            None,
        )
        assert [t.role for t in game.trajectories()] == [Role.SOLVER] * 2
        assert game.evidence == game.noise == ()
        again(game, rules)
    pooled = {item.question for item in played.verified}
    assert not pooled & {question.text for question in questions}


@pytest.mark.parametrize(
    ("name", "samplings", "filled"), [("dummy", 1, 0), ("resample", 8, 0), ("reuse", 1, 4)]
)
def test_strategies_see_the_slots_of_proposals_alone(
    name: str, samplings: int, filled: int, rules: Rules, questions: list[Question]
) -> None:
    strategy = make_strategy(name)
    play(beside(rules, questions, strategy), by_role(propose(), solve))
    silent = by_role(say("<question> what is it ? </question>"), solve)
    played = play(beside(rules, questions, strategy), silent)
    assert played.samplings == samplings
    assert sum(game.origin is Origin.REUSED for game in played.games) == filled
    assert len(given_in(played)) == 3
    assert all(game.outcome is Outcome.VALID for game in given_in(played))
    # Each sampling has groups of its own: proposals are compared within them.
    groups = [g.initial_state.group for g in played.games if g.origin is Origin.PROPOSED]
    assert len({*groups}) == len(groups) == 4 * samplings


def test_proposals_are_the_same_whatever_is_given(rules: Rules, questions: list[Question]) -> None:
    def proposed(given: list[Question]) -> list[tuple[object, ...]]:
        played = play(beside(rules, given, make_strategy("dummy")), by_role(propose(), solve))
        return [
            (game.initial_state, game.question, game.noise, [t.ids for t in game.trajectories()])
            for game in played.games
            if game.origin is Origin.PROPOSED
        ]

    assert proposed([]) == proposed(questions)
