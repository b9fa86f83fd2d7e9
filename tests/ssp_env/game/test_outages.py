"""Outages: they void what they hit, whole and alone, never become a reward or an observation, and
are played again as they were."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import again, begin, by_role, play, propose, records, rules_of, say, solve, turn

from ssp_env.errors import ServiceError
from ssp_env.game.batch import GameBatch, Phase
from ssp_env.game.game import Game
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.rules import Rules
from ssp_env.judge.base import Verdict
from ssp_env.judge.judges import ExactMatchJudge, WorldVerifier
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.tokenizers import WordTokenizer
from ssp_env.worlds.mini import MiniWorld


def check_outages(game: Game) -> None:
    """A void game rewards nobody and leaves nothing alive; a void attempt does not count."""
    assert all(trajectory.done for trajectory in game.trajectories())
    if game.outcome is Outcome.VOID:
        assert (game.proposer_reward, game.solve_rate, game.solver_reward) == (None, None, None)
        assert all((a.reward, a.verdict) == (None, None) for a in game.attempts)
        assert game.outage is not None
        assert game.outage.service == game.reason
        return

    assert game.outcome is Outcome.VALID
    for attempt in game.attempts:
        void = attempt.outage is not None
        assert (attempt.verdict is None) == (attempt.reward is None) == void
    rewards = [attempt.reward for attempt in game.attempts if attempt.reward is not None]
    assert 2 * len(rewards) >= len(game.attempts)
    assert game.solver_reward == sum(rewards) / len(rewards)
    assert game.proposer_reward == 1 - game.share_right


class Chance:
    """Services that fail on some texts, which follow from a number."""

    def __init__(self, salt: int, percent: int, raises: bool) -> None:
        self.salt, self.percent, self.raises = salt, percent, raises

    def fails(self, service: str, *about: object) -> bool:
        return zlib.crc32(repr((self.salt, service, about)).encode()) % 100 < self.percent

    def each(self, service: str, texts: Sequence[Any], results: Any) -> Any:
        """The results, with an error in place of those about texts that this service fails on."""
        down = [self.fails(service, text) for text in texts]
        if self.raises and any(down) and service == "search":
            raise ServiceError(service, "down", calls=3)
        error = ServiceError(service, "down", calls=3)
        return [error if out else result for out, result in zip(down, results, strict=True)]

    def parts(self, world: MiniWorld) -> dict[str, Any]:
        """A retriever, a judge and a verifier that fail so."""
        index, own, each = BM25Retriever(world.corpus), WorldVerifier(world), self.each

        def judge(tasks: Any) -> Any:
            return each("panel", [t.prediction for t in tasks], ExactMatchJudge().judge(tasks))

        def verify(tasks: Any) -> Any:
            return each("verifier", [t.question for t in tasks], own.verify(tasks))

        return {
            "retriever": SimpleNamespace(search=lambda q, k: each("search", q, index.search(q, k))),
            "judge": SimpleNamespace(judge=judge),
            "own_verifier": SimpleNamespace(verify=verify),
        }


def play_with(played: GameBatch, chance: Chance | None) -> set[int]:
    """Plays a batch of games whose attempts differ; returns the games where the engine failed."""
    hit = set()
    while pending := played.pending():
        for game in played.games:
            attempts = [attempt.trajectory for attempt in game.attempts]
            for trajectory in game.trajectories():
                if trajectory.done or not any(trajectory is one for one in pending):
                    continue
                number = attempts.index(trajectory) if trajectory in attempts else -1
                about = game.index, number, len(trajectory.searches)
                if chance is not None and chance.fails("engine", *about):
                    trajectory.feed([5, 6])  # it fails in the middle of a turn
                    played.void([trajectory], ServiceError("engine", "out of memory"))
                    hit.add(game.index)
                else:
                    word = ("mentor", "rival", "owner", "heir")[number]
                    other = say(f"<search> {word} </search>", f"<answer> {word} </answer>")
                    script = solve if number < 1 else other
                    trajectory.feed(turn(trajectory, by_role(propose(2), script)))
        played.advance()
    return hit


@settings(max_examples=15)
@given(
    salt=st.integers(0, 999),
    percent=st.sampled_from([5, 15, 40]),
    raises=st.booleans(),
    attempts=st.integers(1, 4),
)
def test_outages_void_what_they_hit_and_nothing_else(
    mini: MiniWorld, words: WordTokenizer, salt: int, percent: int, raises: bool, attempts: int
) -> None:
    chance = Chance(salt, percent, raises)
    # Noise is searched for with the question.
    changes = {"noise_documents": 2, "noise_kind": "near", "attempts": attempts}
    healthy = begin(rules_of(mini, words, **changes), num_games=3)
    play_with(healthy, None)
    rules = rules_of(mini, words, **changes, **chance.parts(mini))
    played = begin(rules, num_games=3)
    hit = play_with(played, chance)
    assert played.phase is Phase.DONE

    for before, after in zip(records(healthy), records(played), strict=True):
        queries = [s.query for t in before.trajectories for s in t.searches] + [before.question]
        down = [chance.fails("search", query) for query in queries]
        down += [chance.fails("panel", attempt.result) for attempt in before.attempts]
        down += [chance.fails("verifier", before.question)]
        game = played.games[after.index]
        if any(down) or after.index in hit:
            check_outages(game)
            assert after.outcome == "void" or any(a.outage for a in after.attempts)
        else:
            assert after == before
        again(game, rules)


def solving(rules: Rules) -> GameBatch:
    """A batch of one game whose attempts wait for their first tokens."""
    played = begin(rules, num_games=1)
    while played.phase is not Phase.SOLVE:
        for trajectory in played.pending():
            trajectory.feed(turn(trajectory, propose()))
        played.advance()
    return played


@pytest.mark.parametrize(
    ("attempts", "hit", "outcome"),
    [(1, 1, "void"), (2, 1, "void"), (3, 1, "valid"), (3, 2, "void"), (6, 3, "valid")],
)
def test_a_game_is_void_if_too_few_attempts_remain(
    mini: MiniWorld, words: WordTokenizer, attempts: int, hit: int, outcome: str
) -> None:
    played = solving(rules_of(mini, words, attempts=attempts))
    played.void(played.pending()[:hit], ServiceError("engine", "out of memory"))
    (game,) = play(played, solve).games
    assert game.outcome == outcome
    check_outages(game)


def test_a_judge_may_fail_while_others_write(mini: MiniWorld, words: WordTokenizer) -> None:
    """Rollouts have attempts judged early; what was still written is cut off by it."""
    rules = rules_of(mini, words, attempts=3)
    played = solving(rules)
    (game,) = played.games
    for trajectory in played.pending()[:2]:
        trajectory.feed(words.encode("<answer> rival </answer>"))
    played.pending()[0].feed(words.encode("<search> rival"))

    asked = [(game, attempt) for attempt in game.attempts[:2]]
    errors = [ServiceError("judge", "down"), ServiceError("judge", "gone")]
    played.referee.record_verdicts(asked, errors)
    played.advance()
    assert (game.outcome, game.reason, played.done) == (Outcome.VOID, "judge", True)
    check_outages(game)
    again(game, rules)


@pytest.mark.parametrize("part", ["own_filters", "own_proposer_reward", "solver_reward"])
def test_a_filter_or_reward_that_is_down_voids_its_game_alone(
    mini: MiniWorld, words: WordTokenizer, part: str
) -> None:
    (first, _) = begin(rules_of(mini, words), num_games=2).games

    def pays(about: Any, *_: Any) -> float:
        if about.truth == first.truth:
            raise ServiceError("scorer", "down")
        return 1.0

    own = {"mine": lambda proposal: pays(proposal) == 0.0} if part == "own_filters" else pays
    rules = rules_of(mini, words, attempts=2, **{part: own})
    hit, healthy = play(begin(rules, num_games=2), by_role(propose())).games
    assert (hit.outcome, hit.reason) == (Outcome.VOID, "scorer")
    check_outages(hit)
    assert (healthy.outcome, healthy.solver_reward) == (Outcome.VALID, 1.0)
    for game in (hit, healthy):
        again(game, rules)


class Refusing(BM25Retriever):
    """A search server that will not answer one query, nor questions."""

    def search(self, queries: Sequence[str], k: int) -> Any:
        if "what" in queries or any(query.startswith("what is") for query in queries):
            raise ServiceError("search", "HTTP 413", fault="text")
        return super().search(queries, k)


class RefusingJudge(ExactMatchJudge):
    """A judge that will not deal with one answer, and is down for long ones."""

    def judge(self, tasks: Any) -> Any:
        assert all(len(task.prediction) < 500 for task in tasks), "no judge is asked"
        error = ServiceError("judge", "HTTP 400", fault="text")
        if len(tasks) > 1 and any(task.prediction == "what is" for task in tasks):
            raise error  # for all, and then for the one
        both = zip(tasks, super().judge(tasks), strict=True)
        return [error if task.prediction == "what is" else verdict for task, verdict in both]


def test_a_text_that_a_service_refuses_is_wrong(mini: MiniWorld, words: WordTokenizer) -> None:
    services = {"retriever": Refusing(mini.corpus), "judge": RefusingJudge()}
    rules = rules_of(mini, words, attempts=4, max_response_tokens=600, **services)
    query, floods = "<search> what </search>", f"<answer> {'what ' * 257} </answer>"
    near = rules_of(mini, words, noise_kind="near", noise_documents=3, **services)
    (game,) = play(begin(near, 1), by_role(propose())).games
    assert (game.outcome, len(game.noise)) == (Outcome.VALID, 3), "from the corpus"
    again(game, near)

    (game,) = play(begin(rules, 1), say(query)).games
    assert (game.outcome, game.reason) == (Outcome.INVALID, "refused")
    again(game, rules)

    played = begin(rules, num_games=1)
    scripts = [say(query), say("<answer> what is </answer>"), say(floods), solve]

    def solver(trajectory: Any) -> Any:
        return scripts[played.games[0].number_of(trajectory)](trajectory)

    (game,) = play(played, by_role(propose(), solver)).games
    assert (game.outcome, game.solve_rate) == (Outcome.VALID, 1 / 4)
    endings = [attempt.trajectory.ending for attempt in game.attempts]
    assert endings == [Ending.REFUSED, Ending.ACTION, Ending.BUDGET_ANSWER, Ending.ACTION]
    assert game.attempts[1].verdict == Verdict(False, "refused: HTTP 400")
    again(game, rules)
