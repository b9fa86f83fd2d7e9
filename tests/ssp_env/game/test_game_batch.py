"""Batches of games in the mini world, played by scripts: what becomes of games, what both roles are
paid, and what the record says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from scripted import (
    again,
    begin,
    by_role,
    play,
    prompt_of,
    propose,
    records,
    rules_of,
    say,
    solve,
    word_tokenizer,
)

from ssp_env.game.batch import GameBatch, Phase
from ssp_env.game.game import Origin
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.pool import PooledQuestion
from ssp_env.game.strategies import DynamicResampling, ReplayBuffer
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import Verdict
from ssp_env.tokenizers import WordTokenizer
from ssp_env.worlds.mini import MiniWorld


def half(trajectory: Any) -> Any:
    """Proposes well for answers that begin with a letter from A to M, and badly for others."""
    good = prompt_of(trajectory).split()[1] < "N"
    return propose()(trajectory) if good else "<question> what is it ? </question>"


def test_valid_games(mini: MiniWorld, words: WordTokenizer) -> None:
    played = play(begin(rules_of(mini, words, attempts=3), num_games=8), by_role(propose(2)))
    assert (played.phase, played.done, played.pending()) == (Phase.DONE, True, [])
    kept = records(played)
    assert max(game.hops or 0 for game in kept) == 2
    for game in kept:
        assert (game.outcome, game.reason, game.origin) == ("valid", None, "proposed")
        assert (game.solve_rate, game.proposer_reward, game.solver_reward) == (1.0, 0.0, 1.0)
        assert list(game.named()) == ["proposer", "solver 1", "solver 2", "solver 3"]
        assert game.right_answers == (game.answer,)
        assert game.verification == Verdict(True, f"the documents support: {game.answer}")
        for attempt in game.attempts:
            assert (attempt.ending, attempt.reward) == ("action", 1.0)
            assert attempt.verdict == Verdict(True)
            assert (attempt.result, len(attempt.searches)) == (game.answer, game.hops)


SEARCH = "<search> mentor </search>"
ASK = "<question> what is the mentor of the rival of Nobody ? </question>"
LONG = "<question> what is the mentor of the mentor of the mentor of it ? </question>"
FILTERS = ("no_search", "long_question")


@pytest.mark.parametrize(
    ("reason", "turns"),
    [
        ("format", (SEARCH, [5, 1])),
        ("forged_information", ("<information>",)),
        ("budget_tokens", ([20] * 60,)),
        ("budget_searches", (SEARCH, SEARCH, SEARCH)),
        ("budget_query", (f"<search> {'what ' * 257} </search>",)),
        ("budget_prompt", (SEARCH, f"<question> {'what ' * 30} </question>")),
        ("no_search", ("<search> </search>", ASK)),
        ("long_question", (SEARCH, LONG)),
        ("unverified", (SEARCH, ASK)),
    ],
)
def test_invalid_games(
    mini: MiniWorld, words: WordTokenizer, reason: str, turns: tuple[Any, ...]
) -> None:
    limits: dict[str, Any] = {"max_searches": 2, "question_chars": (10, 50)}
    limits["max_response_tokens"] = 60 if reason == "budget_tokens" else 300
    if reason == "budget_prompt":
        limits |= {"max_prompt_tokens": 30, "question_chars": (10, 500)}
    rules = rules_of(mini, words, filters=FILTERS, invalid_reward=-0.25, **limits)
    for game in play(begin(rules, num_games=2), by_role(say(*turns))).games:
        again(game, rules)
        assert (game.outcome, game.reason) == (Outcome.INVALID, reason)
        assert (game.proposer_reward, game.solve_rate, game.attempts) == (-0.25, None, [])
        assert (game.question is not None) == (reason not in set(Ending))
        assert (game.verification is not None) == (reason == "unverified")


def test_groups_share_answer_and_prompt(mini: MiniWorld, words: WordTokenizer) -> None:
    changes = {"asked_searches": (1, 4), "prompts": "plain", "max_prompt_tokens": 2000}
    games = begin(rules_of(mini, words, proposals=3, **changes), 7).games
    assert [game.initial_state.group for game in games] == [0, 0, 0, 1, 1, 1, 2]
    assert [game.index for game in games] == list(range(7))
    shared = {
        (
            g.initial_state.group,
            g.truth,
            g.initial_state.asked_searches,
            *(g.proposer.ids if g.proposer else ()),
        )
        for g in games
    }
    assert len(shared) == len({game.truth for game in games}) == 3


def test_resampling(mini: MiniWorld, words: WordTokenizer) -> None:
    rules = rules_of(mini, words)
    padded = play(begin(rules, num_games=8), by_role(half)).games
    assert 0 < sum(game.outcome is Outcome.VALID for game in padded) < 8 == len(padded)
    played = play(begin(rules, num_games=8, strategy=DynamicResampling()), by_role(half))
    assert played.samplings > 1
    assert sum(game.outcome is Outcome.VALID for game in played.games) == 8
    assert {(game.origin, game.proposer_reward) for game in played.games} == {(Origin.PROPOSED, 0)}
    assert [game.index for game in played.games] == list(range(len(played.games)))


def test_a_reused_question_enters_no_pool_and_pays_no_proposer(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    strategy, rules = ReplayBuffer(), rules_of(mini, words, attempts=2)
    first = play(begin(rules, num_games=6, seed=[1], strategy=strategy), by_role(propose()))
    asked = [game.question for game in first.games]
    assert [item.question for item in strategy.pool] == asked
    second = play(begin(rules, num_games=6, seed=[2], strategy=strategy), by_role(half))
    fresh = [g for g in second.games if g.proposer and g.outcome is Outcome.VALID]
    reused = [g for g in second.games if g.origin is Origin.REUSED]
    assert len(fresh) + len(reused) == 6
    assert len(second.games) == 6 + len(reused) > 6
    for game in reused:
        assert game.question in asked
        assert (game.proposer, game.proposer_reward, game.verification) == (None, None, None)
        assert (game.outcome, len(game.attempts), game.solve_rate) == (Outcome.VALID, 2, 1.0)
        assert game.initial_state.group not in {
            g.initial_state.group for g in second.games if g is not game
        }
    assert [item.question for item in strategy.pool] == asked + [game.question for game in fresh]


def mislead(played: GameBatch, wrong: Any) -> Any:
    """A solver that answers as ``wrong`` says for a index and an attempt, and well where it says
    nothing."""

    def script(trajectory: Trajectory) -> Any:
        game = next(g for g in played.games if g.number_of(trajectory) >= 0)
        said = wrong(game.index, game.number_of(trajectory))
        return f"<answer> {said} </answer>" if said else solve(trajectory)

    return script


def test_attempts_refuse_a_question_that_the_policy_has_verified(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    """It pays nobody and enters no pool."""

    def wrong(index: int, attempt: int) -> str | None:
        return "nothing" if attempt < {0: 5, 1: 3, 2: 2}.get(index, 0) else None

    rules, strategy = rules_of(mini, words, verifier="policy", invalid_reward=-0.5), ReplayBuffer()
    first = begin(rules, seed=[1], strategy=strategy)
    play(first, by_role(propose(), mislead(first, wrong)))
    kept = [again(game, rules).record for game in first.games]
    assert all(record.verification and record.verification.correct for record in kept)
    assert [(r.reason, r.proposer_reward, r.solver_reward) for r in kept] == [
        ("unsolved", -0.5, None), (None, 0.6, 0.4), (None, 0.4, 0.6), (None, 0.0, 1.0)
    ]  # fmt: skip
    rights = [[a.right for a in game.attempts].count(True) for game in first.games]
    assert rights == [0, 2, 3, 5], "also of a refused question"
    assert [item.question for item in strategy.pool] == [game.question for game in first.games[1:]]

    # What is played again or given is never refused: it has no proposer to pay.
    for later in (
        begin(rules, seed=[2], strategy=strategy),
        GameBatch.of_questions(rules, mini.questions(seed=0, per_group=1), [7]),
    ):
        play(later, by_role(say([1]), say("<answer> nothing </answer>")))
        rest = [game for game in later.games if game.origin is not Origin.PROPOSED]
        assert {(game.outcome, game.solve_rate) for game in rest} == {(Outcome.VALID, 0.0)}


def test_a_short_cut_through_a_composed_question_is_wrong(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    """Also with the right answer, and with the same search once more."""
    question = next(q for q in mini.questions(seed=0, per_group=1) if q.group == "2")
    search = f"<search> {question.text.split()[-2]} </search>"
    answer = f"<answer> {question.truth.answer} </answer>"
    scripts = [solve, say(search, answer), say(search, search, answer)]
    composed = PooledQuestion(question.text, question.truth, searches=2, parts=2)
    rules, strategy = rules_of(mini, words, attempts=3), ReplayBuffer()
    strategy.pool += [composed, replace(composed, parts=1)]
    played = begin(rules, num_games=2, strategy=strategy)

    def solver(trajectory: Any) -> Any:
        return scripts[max(g.number_of(trajectory) for g in played.games)](trajectory)

    play(played, by_role(say([1]), solver))
    rewards = {g.origin: [a.reward for a in g.attempts] for g in played.games if g.attempts}
    assert rewards == {Origin.COMPOSED: [1.0, 0.0, 0.0], Origin.REUSED: [1.0, 1.0, 1.0]}
    for game in played.games:
        again(game, rules)


def everything(seed: int) -> str:
    """Two steps of a whole game with all that is random in it, as JSON."""
    strategy, world = ReplayBuffer(), MiniWorld(seed=3, entities=60)
    rules = rules_of(world, word_tokenizer(), attempts=2, asked_searches=(1, 4))
    steps = [play(begin(rules, 6, [seed, step], strategy), by_role(half)) for step in range(2)]
    return json.dumps(
        [[[asdict(game) for game in records(p)] for p in steps], strategy.get_state()]
    )


def test_nothing_depends_on_the_process_or_the_order_of_hashes() -> None:
    code = "import test_game_batch as t, sys; sys.stdout.write(t.everything(5))"
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), str(here.parents[2])])
    own = {"PYTHONHASHSEED": "1", "PYTHONPATH": path}
    other = subprocess.check_output([sys.executable, "-c", code], env={**os.environ, **own})
    assert other.decode() == everything(5) != everything(6)


def test_games_do_not_share_randomness(mini: MiniWorld, words: WordTokenizer) -> None:
    """Draws of one game do not move another one's."""
    rules = rules_of(mini, words, asked_searches=(2, 4))
    few, many = begin(rules, num_games=39), begin(rules, num_games=40)
    asked = [game.initial_state.asked_searches for game in many.games]
    assert [game.initial_state.asked_searches for game in few.games] == asked[:39]
    assert set(asked) == {2, 3, 4}


def test_a_search_made_twice_makes_no_longer_question(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    """Questions are put together by their length, and attempts need as many different searches."""
    rules = rules_of(mini, words, verifier="none", filters=())
    asks = say(
        "<search> a </search>", "<search> a </search>", "<question> what is it ? </question>"
    )
    played = play(begin(rules, num_games=1), by_role(asks, say("<answer> it </answer>")))
    assert [item.searches for item in played.verified] == [1]
