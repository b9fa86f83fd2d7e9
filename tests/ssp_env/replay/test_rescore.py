"""Another judge or reward on saved games: only what it decides changes, and nothing is searched
for."""

from __future__ import annotations

from typing import Any

import pytest
from scripted import begin, by_role, play, propose, rules_of, solve, written

from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.game import Attempt, Game, four_p_one_minus_p
from ssp_env.game.outcome import Outcome
from ssp_env.game.rules import Rules
from ssp_env.judge.base import Verdict
from ssp_env.judge.exact import ExactMatchJudge
from ssp_env.replay import SavedGame, replay, rescore, save_game
from ssp_env.tokenizers import WordTokenizer
from ssp_env.worlds.mini import MiniWorld


class Contrary:
    """Says the opposite of exact match, and remembers what it was asked."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def judge(self, tasks: Any) -> list[Verdict | ServiceError]:
        self.calls.append(len(tasks))
        return [
            Verdict(not v.correct, "contrary")
            for v in ExactMatchJudge().judge(tasks)
            if isinstance(v, Verdict)
        ]


def batch(rules: Rules) -> list[SavedGame]:
    """Two valid games, an invalid and a void one; in the first, one of three attempts is right and
    one says nothing."""
    played = begin(rules, slots=4)
    first, second, invalid, void = played.games
    assert void.proposer is not None
    played.void([void.proposer], ServiceError("engine", "gone"))

    def proposer(trajectory: Any) -> Any:
        return [1] if trajectory is invalid.proposer else propose()(trajectory)

    def solver(trajectory: Any) -> Any:
        place = [attempt.trajectory for attempt in first.attempts]
        turns = [None, "<answer> rival </answer>", [1]]
        turn = turns[place.index(trajectory)] if trajectory in place else None
        return solve(trajectory) if turn is None else turn

    play(played, by_role(proposer, solver))
    assert [game.outcome.value for game in played.games] == ["valid", "valid", "invalid", "void"]
    return [written(save_game(game, rules)) for game in (first, second, invalid, void)]


@pytest.fixture(scope="module")
def saved(mini: MiniWorld, words: WordTokenizer) -> list[SavedGame]:
    return batch(rules_of(mini, words, attempts=3, invalid_reward=-0.5))


def test_another_judge(saved: list[SavedGame]) -> None:
    judge = Contrary()
    rescored = rescore(saved, judge)
    assert judge.calls == [5], "one call for all answers of valid games"
    assert [one.before for one in rescored] == saved
    assert [one.changed for one in rescored] == [True, True, False, False]
    assert [one.after for one in rescored[2:]] == saved[2:], "void and invalid games stay so"
    first = rescored[0].after.record
    assert [a.verdict and (a.verdict.correct, a.verdict.detail) for a in first.attempts] == [
        (False, "contrary"),
        (True, "contrary"),
        (False, "no answer: format"),
    ]
    assert [a.reward for a in first.attempts] == [0.0, 1.0, 0.0]
    assert first.proposer_reward == pytest.approx(2 / 3)
    assert rescored[1].after.record.proposer_reward == 1.0
    assert rescored[0].after.rules.parts.judge.endswith("Contrary")


def test_what_was_rescored_is_a_saved_game_again(saved: list[SavedGame]) -> None:
    for one in rescore(saved, Contrary(), four_p_one_minus_p):
        back = written(one.after)
        assert back == one.after
        assert replay(back).identical
    assert not any(one.changed for one in rescore(saved, ExactMatchJudge()))


def test_other_rewards(saved: list[SavedGame]) -> None:
    def thrifty(game: Game, attempt: Attempt) -> float:
        """Rewards may look at the whole trajectory."""
        assert attempt.trajectory.limits.tokenizer.pieces
        return attempt.right - 0.01 * sum(attempt.trajectory.mask)

    rescored = rescore(saved, None, four_p_one_minus_p, thrifty)
    assert rescored[0].after.record.proposer_reward == pytest.approx(8 / 9)
    assert rescored[1].after.record.proposer_reward == 0.0
    tokens = [attempt.policy_tokens for attempt in saved[0].record.attempts]
    assert [a.reward for a in rescored[0].after.record.attempts] == [
        1 - 0.01 * tokens[0],
        -0.01 * tokens[1],
        -0.01 * tokens[2],
    ]
    assert [a.verdict for a in rescored[0].after.record.attempts] == [
        a.verdict for a in saved[0].record.attempts
    ]
    assert rescored[2].after.record.proposer_reward == -0.5
    with pytest.raises(UsageError, match="a finite number is wanted"):
        rescore(saved, None, lambda game: float("nan"))


def test_games_that_own_code_paid(mini: MiniWorld, words: WordTokenizer) -> None:
    rules = rules_of(mini, words, attempts=3, own_proposer_reward=lambda game: 0.125)
    saved = batch(rules)
    paid = [
        one.after.record.proposer_reward
        for one in rescore(saved, None, None, lambda game, attempt: 2.0)
    ]
    assert paid == [0.125, 0.125, 0.0, None], "what was not asked for stays"
    with pytest.raises(
        ConfigError, match="proposer_reward = None: other verdicts have to be paid anew"
    ):
        rescore(saved, Contrary())
    assert rescore(saved, Contrary(), lambda game: 0.5)[0].after.record.proposer_reward == 0.5


def test_a_judge_that_fails(saved: list[SavedGame]) -> None:
    class Failing(ExactMatchJudge):
        def judge(self, tasks: Any) -> Any:
            down = ServiceError("judge", "down")
            return [down, down, *super().judge(tasks)[2:]]

    class Short(ExactMatchJudge):
        def judge(self, tasks: Any) -> Any:
            return super().judge(tasks)[1:]

    first, second, *_ = rescore(saved, Failing())
    assert (first.after.record.outcome, first.after.record.reason, first.changed) == (
        Outcome.VOID,
        "judge",
        True,
    )
    assert {(a.verdict, a.reward) for a in first.after.record.attempts} == {(None, None)}
    assert not second.changed
    assert replay(first.after).identical
    with pytest.raises(UsageError, match="4 results came for 5 tasks"):
        rescore(saved, Short())
    assert rescore([], Short()) == []
