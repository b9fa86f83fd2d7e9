"""Whole batches: noise and its provenance, groups, strategies, and the same play from the same
seed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from scripted import (
    begin,
    by_role,
    draw_from,
    play,
    prompt_of,
    propose,
    records,
    rules_of,
    say,
    solve,
)

from ssp_env.errors import ConfigError, UsageError
from ssp_env.game.game import Origin
from ssp_env.game.outcome import Outcome
from ssp_env.game.pool import PooledQuestion
from ssp_env.game.round import Round
from ssp_env.game.strategies import DummyPadding, DynamicResampling, ReplayBuffer
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import GroundTruth
from ssp_env.worlds.mini import MiniWorld


def half(trajectory: Any) -> Any:
    """Proposes well for answers that begin with a letter from A to M, and badly for others."""
    good = prompt_of(trajectory).split()[1] < "N"
    return propose()(trajectory) if good else "<question> what is it ? </question>"


# -- noise -------------------------------------------------------------------------------------


def test_provenance(mini: MiniWorld, words: WordTokenizer) -> None:
    played = play(begin(rules_of(mini, words, noise_documents=4), slots=8), by_role(propose(2)))
    kept = records(played)
    retrieved = {
        game.slot: [d.id for search in game.trajectories[0].searches for d in search.documents]
        for game in kept
    }
    for game in kept:
        own = retrieved[game.slot]
        assert list(game.evidence) == list(dict.fromkeys(own)), (
            "each passage once, in the order it was found in"
        )
        noise = [item.document.id for item in game.noise]
        assert len(noise) == len(set(noise)) == 4
        assert not set(noise) & set(own)
        for item in game.noise:
            assert item.origin != "corpus", "eight games have noise enough for each other"
            slot = int(item.origin.removeprefix("game "))
            assert slot != game.slot
            assert item.document.id in retrieved[slot]


@pytest.mark.parametrize("count", [0, 7])
def test_the_number_of_noise_documents(mini: MiniWorld, words: WordTokenizer, count: int) -> None:
    for game in play(begin(rules_of(mini, words, noise_documents=count)), by_role(propose())).games:
        assert len(game.noise) == count
        assert len(game.materials) == len(game.evidence) + count


def test_failed_proposals_give_noise_and_get_none(mini: MiniWorld, words: WordTokenizer) -> None:
    def searches_then_fails(trajectory: Any) -> Any:
        return [1] if trajectory.searches else propose()(trajectory)

    rules = rules_of(mini, words, noise_documents=2)
    played = begin(rules, slots=3)
    good = played.games[0].truth.answer

    def proposer(trajectory: Any) -> Any:
        return (propose() if prompt_of(trajectory).split()[1] == good else searches_then_fails)(
            trajectory
        )

    kept = records(play(played, by_role(proposer)))
    assert [game.outcome for game in kept] == ["valid", "invalid", "invalid"]
    assert {item.origin for item in kept[0].noise} <= {"game 1", "game 2"}
    assert [game.noise for game in kept[1:]] == [(), ()]
    assert all(game.evidence for game in kept)


# -- groups ------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [6, 7])
def test_groups_share_answer_and_prompt(mini: MiniWorld, words: WordTokenizer, slots: int) -> None:
    rules = rules_of(
        mini, words, proposals=3, asked_searches=(1, 4), prompts="plain", max_prompt_tokens=2000
    )
    games = begin(rules, slots).games
    assert [game.group for game in games] == [0, 0, 0, 1, 1, 1, 2][:slots]
    assert [game.slot for game in games] == list(range(slots))
    for group in {game.group for game in games}:
        members = [game for game in games if game.group == group]
        assert len({game.truth for game in members}) == 1
        assert len({game.asked_searches for game in members}) == 1
        assert len({tuple(game.proposer.ids) for game in members if game.proposer is not None}) == 1
    assert len({game.truth for game in games}) == -(-slots // 3)


def test_asked_searches_are_drawn_from_their_range(mini: MiniWorld, words: WordTokenizer) -> None:
    games = begin(rules_of(mini, words, asked_searches=(2, 4)), slots=40).games
    assert {game.asked_searches for game in games} == {2, 3, 4}


# -- strategies --------------------------------------------------------------------------------


def test_dummy_padding(mini: MiniWorld, words: WordTokenizer) -> None:
    played = play(begin(rules_of(mini, words), slots=8), by_role(half))
    outcomes = [game.outcome for game in played.games]
    assert len(outcomes) == 8
    assert 0 < outcomes.count(Outcome.VALID) < 8


def test_resampling(mini: MiniWorld, words: WordTokenizer) -> None:
    played = play(
        begin(rules_of(mini, words), slots=8, strategy=DynamicResampling()), by_role(half)
    )
    valid = [game for game in played.games if game.outcome is Outcome.VALID]
    assert len(valid) == 8
    assert played.waves > 1
    assert len(played.games) > 8
    assert {game.origin for game in played.games} == {Origin.PROPOSED}
    assert [game.slot for game in played.games] == list(range(len(played.games)))
    assert all(game.proposer_reward == 0.0 for game in played.games), (
        "all are the policy's own, and learnt from"
    )


class Endless(DummyPadding):
    """Asks for ever, and fills in whatever it was given."""

    def __init__(self, only_empty: bool = True, fills: Any = ()) -> None:
        self.only_empty, self.fills = only_empty, fills

    def wants_more(self, valid: int, slots: int, waves: int) -> bool:
        return self.fills == () and (valid < slots or not self.only_empty)

    def fill(self, rng: Any, fresh: Any, empty: int) -> list[PooledQuestion]:
        return self.fills  # type: ignore[no-any-return]


def test_waves_without_end_are_refused(
    mini: MiniWorld, words: WordTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssp_env.game.round.MOST_WAVES", 5)
    played = begin(rules_of(mini, words), strategy=Endless())
    message = "the strategy Endless asks for another wave after 5, with 4 of 4 slots empty"
    with pytest.raises(UsageError, match=message):
        play(played, by_role(say("<question> ? </question>")))
    assert (played.waves, len(played.games)) == (5, 20)


QUESTION = PooledQuestion("what is it ?", GroundTruth("t", "it"))


def test_a_strategy_that_fills_in_too_much_is_refused(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    played = begin(rules_of(mini, words), strategy=Endless(fills=[QUESTION] * 5))
    with pytest.raises(UsageError, match="Endless gave 5 questions for 4 empty slots"):
        play(played, by_role(say("<question> ? </question>")))
    for strategy in ("resample", DummyPadding):
        with pytest.raises(ConfigError, match="pass a strategy that was made"):
            begin(rules_of(mini, words), strategy=strategy)  # type: ignore[arg-type]


def test_reuse(mini: MiniWorld, words: WordTokenizer) -> None:
    strategy = ReplayBuffer()
    rules = rules_of(mini, words, attempts=2)
    first = play(begin(rules, slots=6, seed=[1], strategy=strategy), by_role(propose()))
    asked = {game.question for game in first.games}
    assert {item.question for item in strategy.pool} == asked
    second = play(begin(rules, slots=6, seed=[2], strategy=strategy), by_role(half))
    fresh, failed, reused = (
        [game for game in second.games if (game.origin, game.outcome) == kind]
        for kind in (
            (Origin.PROPOSED, Outcome.VALID),
            (Origin.PROPOSED, Outcome.INVALID),
            (Origin.REUSED, Outcome.VALID),
        )
    )
    assert len(fresh) + len(failed) == 6
    assert len(fresh) + len(reused) == 6
    assert fresh
    assert reused
    for game in reused:
        assert game.question in asked
        assert (game.proposer, game.proposer_reward, game.verification, game.noise) == (
            None,
            None,
            None,
            (),
        )
        assert (len(game.attempts), game.solve_rate) == (2, 1.0)
        assert game.group not in {other.group for other in second.games if other is not game}
    assert [item.question for item in strategy.pool] == [
        game.question for game in (*first.games, *fresh)
    ]
    assert {record.origin for record in records(second)} == {"proposed", "reused"}


def test_a_short_cut_through_a_composed_question_is_wrong(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    """Also with the right answer, and with the same search once more."""
    question = next(q for q in mini.questions(seed=0, per_group=1) if q.group == "2")
    start, truth = question.text.split()[-2], question.truth
    search, answer = f"<search> {start} </search>", f"<answer> {truth.answer} </answer>"
    scripts = [solve, say(search, answer), say(search, search, answer)]

    composed = PooledQuestion(question.text, truth, searches=2, parts=2)
    reused = PooledQuestion(question.text, truth, searches=2)
    strategy = Endless(fills=[composed, reused])
    played = begin(rules_of(mini, words, attempts=3), slots=2, strategy=strategy)

    def solver(trajectory: Any) -> Any:
        plays = [[a.trajectory is trajectory for a in game.attempts] for game in played.games]
        return scripts[next(row.index(True) for row in plays if any(row))](trajectory)

    play(played, by_role(say([1]), solver))
    rewards = {g.origin: [a.reward for a in g.attempts] for g in played.games if g.attempts}
    assert rewards == {Origin.COMPOSED: [1.0, 0.0, 0.0], Origin.REUSED: [1.0, 1.0, 1.0]}


# -- seeds -------------------------------------------------------------------------------------


def everything(seed: int, mini: MiniWorld, words: WordTokenizer) -> str:
    """Two steps of a whole game with all that is random in it, as JSON."""
    strategy = ReplayBuffer()
    rules = rules_of(mini, words, attempts=2, asked_searches=(1, 4))
    steps = [play(begin(rules, 6, [seed, step], strategy), by_role(half)) for step in range(2)]
    ids = [
        [trajectory.ids for game in played.games for trajectory in game.trajectories()]
        for played in steps
    ]
    kept = [asdict(game) for played in steps for game in records(played)]
    return json.dumps([kept, ids, strategy.get_state()])


def test_the_same_seed_plays_the_same(mini: MiniWorld, words: WordTokenizer) -> None:
    again = MiniWorld(seed=3, entities=60)
    assert everything(5, mini, words) == everything(5, again, words)


def test_games_do_not_share_randomness(mini: MiniWorld, words: WordTokenizer) -> None:
    """What one game draws does not move another one's draws."""
    few, many = (
        begin(rules_of(mini, words, asked_searches=(1, 4)), slots=slots) for slots in (8, 9)
    )
    assert [game.asked_searches for game in few.games] == [
        game.asked_searches for game in many.games[:8]
    ]
    states = {str(game.rng.bit_generator.state["state"]) for game in many.games}
    assert len(states) == 9


def test_nothing_depends_on_the_order_of_hashes() -> None:
    """Two processes with different hash seeds play the same."""
    code = (
        "import hashlib, test_round_batches as t; from scripted import word_tokenizer;"
        "from ssp_env.worlds.mini import MiniWorld;"
        "played = t.everything(5, MiniWorld(seed=3, entities=60), word_tokenizer());"
        "print(hashlib.sha256(played.encode()).hexdigest())"
    )
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), str(here.parents[2])])
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
    own = everything(5, MiniWorld(seed=3, entities=60), WordTokenizer(*_vocabulary()))
    assert digests == {hashlib.sha256(own.encode()).hexdigest() + "\n"}


def _vocabulary() -> Any:
    from ssp_env.game.protocol import Tags
    from ssp_env.worlds.mini.lexicon import vocabulary

    return vocabulary(), Tags().all()


def test_answers_are_drawn_by_the_seed(mini: MiniWorld, words: WordTokenizer) -> None:
    rules = rules_of(mini, words)
    drawn = [
        [game.truth.id for game in Round(rules, draw_from(mini.answers), 4, [s]).games]
        for s in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_engine_decides_nothing_but_tokens(mini: MiniWorld, words: WordTokenizer) -> None:
    """The order in which trajectories get their tokens does not matter."""
    rules = rules_of(mini, words, attempts=2)
    forth = play(begin(rules, slots=4), by_role(propose()))
    back = begin(rules, slots=4)
    while pending := back.pending():
        for trajectory in reversed(pending):
            ids = words.encode(str(by_role(propose(), solve)(trajectory)))
            trajectory.feed(ids)
        back.advance()

    # The script gives log-probabilities, this engine none.
    assert [r.without_tokens() for r in records(back)] == [
        r.without_tokens() for r in records(forth)
    ]
    assert [t.ids for r in records(back) for t in r.trajectories] == [
        t.ids for r in records(forth) for t in r.trajectories
    ]
