"""Rounds of the mini-wiki, played by scripts: what becomes of games, and what both roles are
paid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from scripted import begin, by_role, play, prompt_of, propose, read, records, rules_of, say, solve

from ssp_env.game.game import Origin
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.round import Phase, Round
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.judge.exact import ExactMatchJudge, WorldVerifier
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import Document, Role
from ssp_env.worlds.mini import MiniWorld


class Asked:
    """A judge that notes what it was asked."""

    def __init__(self) -> None:
        self.tasks: list[JudgeTask] = []

    def judge(self, tasks: Sequence[JudgeTask]) -> Any:
        self.tasks += tasks
        return ExactMatchJudge().judge(tasks)


# -- valid games -------------------------------------------------------------------------------


@pytest.mark.parametrize("hops", [1, 2])
def test_valid_games(mini: MiniWorld, words: WordTokenizer, hops: int) -> None:
    played = play(begin(rules_of(mini, words, attempts=3), slots=8), by_role(propose(hops)))
    assert played.phase is Phase.DONE
    assert played.done
    assert played.pending() == []
    kept = records(played)
    assert [game.outcome for game in kept] == ["valid"] * 8
    assert max(game.hops or 0 for game in kept) == hops
    assert all(game.right_answers == (game.answer,) for game in kept)
    for game in kept:
        assert (game.solve_rate, game.proposer_reward, game.reason) == (1.0, 0.0, None)
        assert [t.role for t in game.trajectories] == ["proposer", "solver", "solver", "solver"]
        assert all(t.ending == "action" for t in game.trajectories)
        assert all(t.reward == 1.0 and t.verdict == Verdict(True) for t in game.trajectories[1:])
        assert all(
            t.result == game.answer and len(t.searches) == game.hops for t in game.trajectories[1:]
        )
        assert game.verification == Verdict(True, f"the documents support: {game.answer}")


def test_an_attempt_without_an_answer_is_wrong_and_nobody_is_asked(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    judge = Asked()
    played = begin(rules_of(mini, words, attempts=2, judge=judge), slots=1)

    def solver(trajectory: Trajectory) -> Any:
        return (
            solve(trajectory)
            if trajectory is played.games[0].attempts[1].trajectory
            else "<information>"
        )

    play(played, by_role(propose(), solver))
    (game,) = played.games
    assert game.outcome is Outcome.VALID
    assert [attempt.reward for attempt in game.attempts] == [0.0, 1.0]
    verdict = game.attempts[0].verdict
    assert verdict is not None
    assert verdict.detail == "no answer: forged_information"
    assert [task.prediction for task in judge.tasks] == [game.truth.answer]
    assert judge.tasks[0].question == game.question


def test_attempts_start_alike_and_do_not_share_a_list(
    mini: MiniWorld, words: WordTokenizer
) -> None:
    played = play(begin(rules_of(mini, words, attempts=3), slots=1), by_role(propose()))
    trajectories = [attempt.trajectory for attempt in played.games[0].attempts]
    prompts = {prompt_of(trajectory) for trajectory in trajectories}
    assert prompts == {f"solve {played.games[0].question} :"}
    assert len({id(trajectory.ids) for trajectory in trajectories}) == 3
    assert len({trajectory.prompt_length for trajectory in trajectories}) == 1


def test_knobs_of_search(mini: MiniWorld, words: WordTokenizer) -> None:
    rules = rules_of(mini, words, top_k=1, max_document_tokens=3)
    played = play(begin(rules, slots=1), by_role(say("<search> mentor </search>", [1])))
    (game,) = played.games
    assert game.proposer is not None
    assert [len(search.documents) for search in game.proposer.searches] == [1]
    written = words.decode(game.proposer.ids)
    page = words.decode(words.encode(game.proposer.searches[0].documents[0].text)[:3])
    assert f"</search> <information> {page} </information> <eos>" in written


# -- invalid games -----------------------------------------------------------------------------

SEARCH = "<search> mentor </search>"
WELL_FORMED = "<question> what is the mentor of the rival of Nobody ? </question>"


@pytest.mark.parametrize(
    ("reason", "turns"),
    [
        ("format", ([1],)),
        ("format", (SEARCH, [5, 1])),
        ("forged_information", (["<information>", "what", "</information>"][0],)),
        ("budget_tokens", ([20] * 60,)),
        ("budget_searches", (SEARCH, SEARCH, SEARCH)),
        ("budget_query", ("<search> what is the what is the </search>",)),
        ("empty_question", (SEARCH, "<question> ? </question>")),
        ("no_search", (WELL_FORMED,)),
        ("no_search", ("<search> </search>", WELL_FORMED)),
        ("short_question", (SEARCH, "<question> what ? </question>")),
        (
            "long_question",
            (
                SEARCH,
                "<question> what is the mentor of the mentor of the mentor of it ? </question>",
            ),
        ),
        ("repeated_query", (SEARCH, SEARCH, WELL_FORMED)),
        ("unverified", (SEARCH, WELL_FORMED)),
        ("unverified", (SEARCH, "<question> what is what is what ? </question>")),
    ],
)
def test_invalid_games(
    mini: MiniWorld, words: WordTokenizer, reason: str, turns: tuple[Any, ...]
) -> None:
    filters = (
        "empty_question",
        "no_search",
        "short_question",
        "long_question",
        "spoiler",
        "repeated_query",
    )
    rules = rules_of(
        mini,
        words,
        filters=filters,
        max_searches=2,
        max_response_tokens=60 if reason == "budget_tokens" else 256,
        max_query_tokens=4,
        max_question_chars=50,
        invalid_reward=-0.25,
    )
    played = play(begin(rules, slots=2), by_role(say(*turns)))
    assert played.phase is Phase.DONE
    for game in played.games:
        assert (game.outcome, game.reason) == (Outcome.INVALID, reason)
        assert (game.proposer_reward, game.solve_rate, game.attempts) == (-0.25, None, [])
        asked = reason not in set(Ending)
        assert (game.question is not None) == asked
        assert (game.verification is not None) == (reason == "unverified")


def test_a_spoiler(mini: MiniWorld, words: WordTokenizer) -> None:
    def proposer(trajectory: Trajectory) -> str:
        answer = prompt_of(trajectory).split()[1]
        return (
            f"<question> what is the mentor of {answer} ? </question>"
            if trajectory.searches
            else SEARCH
        )

    played = play(begin(rules_of(mini, words)), by_role(proposer))
    assert {game.reason for game in played.games} == {"spoiler"}
    played = play(
        begin(rules_of(mini, words, filters=("no_search",), verifier="none")),
        by_role(proposer, say([1])),
    )
    assert {game.outcome for game in played.games} == {Outcome.VALID}, (
        "only the filters that are named are used"
    )


def test_a_wrong_question_is_not_verified(mini: MiniWorld, words: WordTokenizer) -> None:
    def proposer(trajectory: Trajectory) -> Any:
        written = propose()(trajectory)
        return (
            str(written).replace("what is the", "what is the leader of the")
            if trajectory.searches
            else written
        )

    played = play(begin(rules_of(mini, words), slots=6), by_role(proposer))
    assert {game.reason for game in played.games} == {"unverified"}
    verdict = played.games[0].verification
    assert verdict is not None
    assert verdict.detail == "the documents support no answer"


def test_a_proposer_prompt_that_is_too_long(mini: MiniWorld, words: WordTokenizer) -> None:
    played = begin(rules_of(mini, words, max_prompt_tokens=2))
    assert played.phase is Phase.DONE, "a round that nobody can play is over at once"
    assert played.pending() == []
    assert {(game.outcome, game.reason) for game in played.games} == {
        (Outcome.INVALID, "budget_prompt")
    }
    assert all(game.proposer is None for game in played.games)


# -- verification by the policy ----------------------------------------------------------------


def test_the_policy_verifies(mini: MiniWorld, words: WordTokenizer) -> None:
    rules = rules_of(mini, words, verifier="policy")
    played = begin(rules, slots=3)
    roles = []

    def watching(trajectory: Trajectory) -> Any:
        roles.append((played.phase, trajectory.role))
        return by_role(propose(), solve, read(mini))(trajectory)

    play(played, watching)
    assert set(roles) == {
        (Phase.PROPOSE, Role.PROPOSER),
        (Phase.VERIFY, Role.VERIFIER),
        (Phase.SOLVE, Role.SOLVER),
    }
    for game in played.games:
        assert game.outcome is Outcome.VALID
        assert game.verifier is not None
        assert game.verifier.searches == []
        prompt = prompt_of(game.verifier)
        pages = [*game.evidence, *(item.document for item in game.noise)]
        assert len(game.noise) == rules.config.noise_documents
        assert all(words.decode(words.encode(page.text)) in prompt for page in pages)
        assert game.question in prompt
        assert [t.role for t in game.trajectories()][:2] == [Role.PROPOSER, Role.VERIFIER]


def test_materials_are_shuffled(mini: MiniWorld, words: WordTokenizer) -> None:
    """A verifier must not be able to tell evidence from noise by its place."""
    seen: list[list[bool]] = []

    class Watching(WorldVerifier):
        def verify(self, tasks: Any) -> Any:
            for task in tasks:
                seen.append(
                    [document.id in by_question[task.question] for document in task.documents]
                )
            return super().verify(tasks)

    rules = rules_of(mini, words, own_verifier=Watching(mini), attempts=1)
    played = begin(rules, slots=20)
    by_question: dict[str, set[str]] = {}

    def proposer(trajectory: Trajectory) -> Any:
        written = str(propose()(trajectory))
        if trajectory.searches:
            found = {document.id for search in trajectory.searches for document in search.documents}
            by_question[written.removeprefix("<question> ").removesuffix(" </question>")] = found
        return written

    play(played, by_role(proposer))
    assert len(seen) == 20
    assert all(sum(places) == rules.config.top_k for places in seen)
    assert len({tuple(places) for places in seen}) > 3


# -- given questions ---------------------------------------------------------------------------


def test_given_questions(mini: MiniWorld, words: WordTokenizer) -> None:
    questions = mini.questions(seed=0, per_group=2)[:6]
    judge = Asked()
    played = Round.of_questions(rules_of(mini, words, attempts=2, judge=judge), questions, [7])
    assert played.phase is Phase.SOLVE
    assert len(played.pending()) == 12
    play(played, solve)
    for game, question in zip(played.games, questions, strict=True):
        assert (game.origin, game.outcome, game.question) == (
            Origin.GIVEN,
            Outcome.VALID,
            question.text,
        )
        assert (game.proposer, game.verification, game.proposer_reward, game.noise) == (
            None,
            None,
            None,
            (),
        )
        assert game.truth.answer == question.answers[0]
    assert played.games[0].solve_rate == 1.0
    assert len(judge.tasks) == 12


# -- turns -------------------------------------------------------------------------------------


def test_all_searches_of_a_turn_go_out_together(mini: MiniWorld, words: WordTokenizer) -> None:
    calls: list[tuple[list[str], int]] = []

    class Watching(BM25Retriever):
        def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
            calls.append((list(queries), k))
            return super().search(queries, k)

    rules = rules_of(mini, words, retriever=Watching(mini.corpus), attempts=2)
    play(begin(rules, slots=3), by_role(propose()))
    assert [(len(queries), k) for queries, k in calls] == [(3, 2), (6, 2)]


def test_token_by_token_is_the_same_as_turn_by_turn(mini: MiniWorld, words: WordTokenizer) -> None:
    rules = rules_of(mini, words, verifier="policy", max_prompt_tokens=1000, attempts=2)
    script = by_role(propose(2), solve, read(mini))
    whole = play(begin(rules), script)
    single = begin(rules)
    while pending := single.pending():
        for trajectory in pending:
            ids = words.encode(str(script(trajectory)))
            for token in ids[:-1]:
                assert not trajectory.feed([token], [-0.5])
                single.advance()  # does nothing while turns go on
            trajectory.feed(ids[-1:], [-0.5])
        single.advance()
    assert records(single) == records(whole)
    for a, b in zip(single.games, whole.games, strict=True):
        for t, u in zip(a.trajectories(), b.trajectories(), strict=True):
            assert (t.ids, t.mask, t.logprobs) == (u.ids, u.mask, u.logprobs)
