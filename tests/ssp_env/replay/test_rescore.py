"""Another judge or reward on saved games: only what it decides changes, and nothing is searched
for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scripted import begin, by_role, play, propose, rules_of, solve, written

from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.game import Attempt, Game, Origin, Start, four_p_one_minus_p
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.judge.base import Verdict
from ssp_env.judge.judges import ExactMatchJudge
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
        turns = [solve(trajectory), "<answer> rival </answer>", [1]]
        return turns[max(0, first.number_of(trajectory))]

    play(played, by_role(proposer, solver))
    assert [game.outcome.value for game in played.games] == ["valid", "valid", "invalid", "void"]
    return [written(save_game(game, rules)) for game in (first, second, invalid, void)]


@pytest.fixture(scope="module")
def saved(mini: MiniWorld, words: WordTokenizer) -> list[SavedGame]:
    return batch(rules_of(mini, words, attempts=3, invalid_reward=-0.5))


def test_another_judge(saved: list[SavedGame]) -> None:
    """With or without the tokens; and what was rescored is a saved game again."""
    judge = Contrary()
    rescored = rescore(saved, judge)
    assert judge.calls == [5], "one call for all answers of valid games"
    assert [one.before for one in rescored] == saved
    assert [one.changed for one in rescored] == [True, True, False, False]
    assert [one.after for one in rescored[2:]] == saved[2:], "void and invalid games stay so"

    first, second = (one.after.record for one in rescored[:2])
    assert [attempt.verdict for attempt in first.attempts] == [
        Verdict(False, "contrary"),
        Verdict(True, "contrary"),
        Verdict(False, "no answer: format"),
    ]
    assert [attempt.reward for attempt in first.attempts] == [0.0, 1.0, 0.0]
    assert first.proposer_reward == pytest.approx(2 / 3)
    assert second.proposer_reward == 1.0
    assert rescored[0].after.rules.parts.judge.endswith("Contrary")

    bare = replace(saved[0], record=saved[0].record.without_tokens())
    assert rescore([bare], Contrary())[0].after.record == first.without_tokens()
    for one in rescored:
        assert written(one.after) == one.after
        assert replay(one.after).identical
    assert not any(one.changed for one in rescore(saved, ExactMatchJudge()))


def test_other_rewards(saved: list[SavedGame]) -> None:
    def thrifty(game: Game, attempt: Attempt) -> float:
        """Rewards may look at the whole game."""
        assert game.proposer is not None
        return attempt.right - 0.01 * sum(attempt.trajectory.mask)

    rescored = rescore(saved, None, four_p_one_minus_p, thrifty)
    (first, now), (_, second) = ((one.before.record, one.after.record) for one in rescored[:2])
    assert (now.proposer_reward, second.proposer_reward) == (pytest.approx(8 / 9), 0.0)
    for before, after, right in zip(first.attempts, now.attempts, (1, 0, 0), strict=True):
        assert (after.reward, after.verdict) == (
            right - 0.01 * before.policy_tokens,
            before.verdict,
        )
    assert rescored[2].after.record.proposer_reward == -0.5
    assert all(replay(one.after, solver_reward=thrifty).identical for one in rescored)

    with pytest.raises(UsageError, match="a finite number is wanted"):
        rescore(saved, None, lambda game: float("nan"))
    bare = replace(saved[0], rules=replace(saved[0].rules, tokens=False))
    with pytest.raises(UsageError, match="written without token ids"):
        rescore([bare], solver_reward=thrifty)


def test_games_that_own_code_paid(mini: MiniWorld, words: WordTokenizer) -> None:
    rules = rules_of(mini, words, attempts=3, own_proposer_reward=lambda game: 0.125)
    saved = batch(rules)
    rescored = rescore(saved, None, None, lambda game, attempt: 2.0)
    paid = [one.after.record.proposer_reward for one in rescored]
    assert paid == [0.125, 0.125, 0.0, None], "what was not asked for stays"
    with pytest.raises(ConfigError, match="other verdicts have to be paid anew"):
        rescore(saved, Contrary())
    assert rescore(saved, Contrary(), lambda game: 0.5)[0].after.record.proposer_reward == 0.5


def test_a_short_cut_stays_one(mini: MiniWorld, words: WordTokenizer) -> None:
    """Whoever judges it."""
    question, rules = mini.questions(seed=0, per_group=1)[0], rules_of(mini, words, attempts=2)
    given = question.truth, Origin.COMPOSED, 0, question.text
    start = Start((7,), 0, 0, *given, least_searches=2)
    (game,) = play(Round.of_starts(rules, [start]), solve).games
    assert game.solve_rate == 0.0, "the answer is right, but took one search"
    assert not rescore([save_game(game, rules)], ExactMatchJudge())[0].changed


def test_a_judge_that_fails(saved: list[SavedGame]) -> None:
    class Failing(ExactMatchJudge):
        def judge(self, tasks: Any) -> Any:
            down = ServiceError("judge", "down")
            return [down, down, *super().judge(tasks)[2:]]

    class Down:
        def judge(self, tasks: Any) -> Any:
            raise ServiceError("judge", "down")

    first, second, *_ = rescore(saved, Failing())
    record = first.after.record
    assert (record.outcome, record.reason, first.changed) == (Outcome.VOID, "judge", True)
    assert {(a.verdict, a.reward) for a in record.attempts} == {(None, None)}
    assert not second.changed
    assert replay(first.after).identical
    with pytest.raises(ServiceError, match="down"):
        rescore(saved, Down())
    assert rescore([], Down()) == []
