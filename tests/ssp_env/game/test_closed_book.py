"""The closed-book gate: a question that the solver answers from memory teaches no searching, and is
rejected."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from scripted import Script, begin, by_role, play, prompt_of, propose, records, rules_of, say, solve

import ssp_env
from ssp_env.errors import ConfigError, ServiceError
from ssp_env.game.config import GameConfig
from ssp_env.game.game import Origin
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.pool import PooledQuestion
from ssp_env.game.round import Phase, Round
from ssp_env.game.strategies import DynamicResampling, ReplayBuffer
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.judge.exact import ExactMatchJudge
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import Role
from ssp_env.worlds.mini import MiniWorld

IGNORANT = "<answer> nothing </answer>"


def with_memory(memory: Any, proposer: Script | None = None) -> Script:
    """Proposes, solves, and says from memory what ``memory`` says: a text, or a function of the
    trajectory."""
    others = by_role(proposer or propose(), solve)

    def script(trajectory: Trajectory) -> str | list[int]:
        if trajectory.role is not Role.CLOSED_BOOK:
            return others(trajectory)
        return memory(trajectory) if callable(memory) else memory  # type: ignore[no-any-return]

    return script


def knows(played: Round, slots: Sequence[int]) -> Any:
    """A memory that holds the answers of these games alone."""

    def memory(trajectory: Trajectory) -> str:
        game = next(g for g in played.games if g.closed_book is trajectory)
        return f"<answer> {game.truth.answer} </answer>" if game.slot in slots else IGNORANT

    return memory


def test_what_is_known_by_heart_is_rejected(mini: MiniWorld, words: WordTokenizer) -> None:
    played = begin(rules_of(mini, words, closed_book=True, invalid_reward=-0.5, attempts=2))
    play(played, with_memory(knows(played, [1, 2])))
    for game in played.games:
        known = game.slot in (1, 2)
        assert game.closed_book_verdict is not None
        assert game.closed_book_verdict.correct is known
        assert game.verification is not None, "the gate comes after verification"
        if known:
            assert (game.outcome, game.reason, game.proposer_reward) == (
                Outcome.INVALID,
                "closed_book",
                -0.5,
            )
            assert game.attempts == []
        else:
            assert (game.outcome, game.reason, len(game.attempts)) == (Outcome.VALID, None, 2)
    closed = [record.closed_book for record in records(played)]
    assert [verdict.correct for verdict in closed if verdict is not None] == [
        False,
        True,
        True,
        False,
    ]


def test_the_solver_sees_the_question_and_nothing_else(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    seen = []

    def memory(trajectory: Trajectory) -> str:
        seen.append(
            (prompt_of(trajectory), trajectory.about, trajectory.documents, trajectory.searches)
        )
        return IGNORANT

    played = play(begin(rules_of(mini, words, closed_book=True), slots=1), with_memory(memory))
    question = played.games[0].question
    assert seen == [(f"read nothing question {question} :", question, (), [])]


def test_there_is_no_search_in_a_closed_book(mini: MiniWorld, words: WordTokenizer) -> None:
    """A search call is plain text there; no answer is a wrong answer, and the question stays."""
    memory = [*words.encode("<search> mentor </search>"), 1]
    played = play(begin(rules_of(mini, words, closed_book=True), slots=1), with_memory(memory))
    (game,) = played.games
    assert game.closed_book is not None
    assert (game.closed_book.searches, game.closed_book.ending) == ([], Ending.FORMAT)
    assert (game.outcome, game.closed_book_verdict) == (
        Outcome.VALID,
        Verdict(False, "no answer: format"),
    )


def test_off_by_default(mini: MiniWorld, words: WordTokenizer) -> None:
    assert GameConfig().closed_book is False
    played = play(begin(rules_of(mini, words)), by_role(propose(), solve))
    assert [(game.closed_book, game.closed_book_verdict) for game in played.games] == [
        (None, None)
    ] * 4
    assert [record.closed_book for record in records(played)] == [None] * 4


def test_a_question_that_was_rejected_before_is_not_asked(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    proposer = say(
        "<search> mentor rival </search>", "<question> what is the mentor of Nobody ? </question>"
    )
    played = play(
        begin(rules_of(mini, words, closed_book=True)), with_memory("not to be asked", proposer)
    )
    assert {(game.reason, game.closed_book) for game in played.games} == {("unverified", None)}


def test_the_gate_follows_the_policys_own_verification(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    answers = "<answer> {} </answer>".format
    rules = rules_of(mini, words, closed_book=True, verifier="policy")
    played = begin(rules, slots=1)

    def script(trajectory: Trajectory) -> str | list[int]:
        roles.append(trajectory.role)
        reads = trajectory.role is Role.VERIFIER
        return answers(played.games[0].truth.answer) if reads else with_memory(IGNORANT)(trajectory)

    roles: list[Role] = []
    play(played, script)
    order = list(dict.fromkeys(roles))
    assert order == [Role.PROPOSER, Role.VERIFIER, Role.CLOSED_BOOK, Role.SOLVER]
    assert played.games[0].outcome is Outcome.VALID


class Fails(ExactMatchJudge):
    """Cannot judge one answer."""

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        results = super().judge(tasks)
        return [
            ServiceError("judge", "down") if task.prediction == "what" else result
            for task, result in zip(tasks, results, strict=True)
        ]


def test_an_outage_of_the_judge_voids_the_game_that_it_hit(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    played = begin(rules_of(mini, words, closed_book=True, judge=Fails(), attempts=2))
    hit = "<answer> what </answer>"
    play(played, with_memory(lambda t: hit if played.games[1].closed_book is t else IGNORANT))
    assert [game.outcome for game in played.games] == [
        Outcome.VALID,
        Outcome.VOID,
        Outcome.VALID,
        Outcome.VALID,
    ]
    game = played.games[1]
    assert (game.reason, game.proposer_reward, game.closed_book_verdict, game.attempts) == (
        "judge",
        None,
        None,
        [],
    )


def test_an_outage_of_the_whole_judge_voids_all(mini: MiniWorld, words: WordTokenizer) -> None:
    class Dead:
        def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
            raise ServiceError("judge", "down")

    played = play(
        begin(rules_of(mini, words, closed_book=True, judge=Dead())), with_memory(IGNORANT)
    )
    assert {(game.outcome, game.reason) for game in played.games} == {(Outcome.VOID, "judge")}


def test_a_question_that_does_not_fit_into_the_prompt(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    """The closed-book prompt is a few words longer than the solver's."""
    whole = play(
        begin(rules_of(mini, words, closed_book=True), slots=1), with_memory(IGNORANT)
    ).games[0]
    assert whole.closed_book is not None
    room = whole.closed_book.prompt_length - 1
    assert whole.attempts[0].trajectory.prompt_length <= room
    rules = rules_of(mini, words, closed_book=True, max_prompt_tokens=room)
    played = play(begin(rules, slots=1), with_memory(IGNORANT))
    assert (played.games[0].outcome, played.games[0].reason) == (Outcome.INVALID, "budget_prompt")


# -- other origins, other waves ----------------------------------------------------------------


def test_given_questions_are_not_asked(mini: MiniWorld, words: WordTokenizer) -> None:
    rules = rules_of(mini, words, closed_book=True)
    played = play(
        Round.of_questions(rules, mini.questions(0, 2)[:2], [1]), with_memory("not to be asked")
    )
    assert [(game.closed_book, game.outcome) for game in played.games] == [
        (None, Outcome.VALID)
    ] * 2


def test_reused_questions_are_not_asked_again(mini: MiniWorld, words: WordTokenizer) -> None:
    strategy = ReplayBuffer()
    question = mini.questions(0, 1)[0]
    strategy.pool.append(PooledQuestion(question.text, question.truth))
    played = begin(rules_of(mini, words, closed_book=True), slots=2, strategy=strategy)
    play(played, with_memory(knows(played, [0])))
    assert [game.origin for game in played.games] == [
        Origin.PROPOSED,
        Origin.PROPOSED,
        Origin.REUSED,
    ]
    assert [game.reason for game in played.games] == ["closed_book", None, None]
    assert (played.games[2].closed_book, played.games[2].outcome) == (None, Outcome.VALID)


def test_what_was_rejected_does_not_enter_the_pool(mini: MiniWorld, words: WordTokenizer) -> None:
    strategy = ReplayBuffer()
    played = begin(rules_of(mini, words, closed_book=True), slots=2, strategy=strategy)
    play(played, with_memory(knows(played, [0])))
    assert [item.question for item in strategy.pool] == [played.games[1].question]


def test_each_wave_is_asked_once(mini: MiniWorld, words: WordTokenizer) -> None:
    asked: list[int] = []
    strategy = DynamicResampling(max_waves=2)
    played = begin(rules_of(mini, words, closed_book=True), slots=2, strategy=strategy)
    inner = knows(played, [0])

    def memory(trajectory: Trajectory) -> str:
        asked.append(trajectory.key)
        return str(inner(trajectory))

    play(played, with_memory(memory))
    assert (played.waves, len(played.games), len(asked)) == (2, 3, 3)
    assert len(set(asked)) == 3
    assert [game.outcome for game in played.games] == [
        Outcome.INVALID,
        Outcome.VALID,
        Outcome.VALID,
    ]
    assert played.phase is Phase.DONE


# -- doors and prompt sets ---------------------------------------------------------------------


def test_through_the_env_the_solver_plays_it(mini: MiniWorld) -> None:
    env = ssp_env.raw_env(world=mini, game={"closed_book": True, "attempts": 1})
    env.reset(seed=1)
    roles = []
    while env.infos["proposer"]["phase"] != "done":
        info = env.infos["proposer"]
        roles.append((env.agent_selection, info["role"], info["phase"], info["searches_left"]))
        trajectory = next(t for t in env.game.trajectories() if not t.done)
        for token in env.rules.tokenizer.encode(str(with_memory(IGNORANT)(trajectory))):
            env.step(token)
    assert ("solver", "closed_book", "closed_book", 0) in roles
    assert env.infos["proposer"]["outcome"] == "valid"


def test_a_prompt_set_without_that_prompt_is_refused_early(tmp_path: Path) -> None:
    with resources.as_file(resources.files("ssp_env.game.prompts") / "plain") as plain:
        shutil.copytree(plain, tmp_path / "own")
    (tmp_path / "own" / "closed_book.txt").unlink()
    game = {"prompts": str(tmp_path / "own"), "max_prompt_tokens": 4096}
    ssp_env.raw_env(world="small", tokenizer="bytes", game=game, view={"legal_moves": False})
    with pytest.raises(ConfigError, match=r"closed_book\.txt is missing"):
        ssp_env.raw_env(world="small", tokenizer="bytes", game={**game, "closed_book": True})


# -- what it pays ------------------------------------------------------------------------------


def sandbagging(trajectory: Trajectory) -> str | list[int]:
    """Knows the answer, and does not say so at the gate."""
    return IGNORANT if trajectory.role is Role.CLOSED_BOOK else solve(trajectory)


@pytest.mark.parametrize("door", ["aec", "rllib", "text", "batch"])
def test_playing_dumb_at_the_gate_does_not_pay(mini: MiniWorld, door: str) -> None:
    """Behind every door where the solver plays the gate: the honest one earns as much."""
    import all_doors as doors

    game = {"closed_book": True, "attempts": 1}
    paid = {}
    for honest in (True, False):
        truth: list[str] = []

        def script(trajectory: Trajectory, truth: list[str] = truth, honest: bool = honest) -> Any:
            if trajectory.role is Role.PROPOSER:
                truth[:] = [trajectory.about]
                return propose()(trajectory)
            if trajectory.role is Role.CLOSED_BOOK and honest:
                return f"<answer> {truth[0]} </answer>"
            return sandbagging(trajectory)

        if door == "batch":
            (told,) = doors.batch(range(5, 6), script, world=mini, game=game)
        else:
            told = getattr(doors, door)(5, script, world=mini, game=game)
        assert told.record.reason == ("closed_book" if honest else None)
        paid[honest] = told.rewards

    assert paid[True] == {"proposer": 0.0, "solver": 1.0}
    assert paid[False]["solver"] <= paid[True]["solver"]


def test_the_record_holds_what_it_paid(mini: MiniWorld, words: WordTokenizer) -> None:
    played = begin(rules_of(mini, words, closed_book=True, attempts=2), slots=2)
    play(played, with_memory(knows(played, [0])))
    rejected, valid = records(played)
    gates = [record.play_of(Role.CLOSED_BOOK) for record in (rejected, valid)]
    assert [gate and gate.reward for gate in gates] == [1.0, 0.0]
    assert (rejected.solver_reward, valid.solver_reward) == (1.0, 1.0)
    assert (rejected.solve_rate, rejected.proposer_reward) == (None, 0.0)
