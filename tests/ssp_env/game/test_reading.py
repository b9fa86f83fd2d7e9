"""What verification reads: as a solver that has searched, within a budget that rejects nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted import begin, by_role, play, prompt_of, propose, read, rules_of, say, solve

import ssp_env
from ssp_env.game.round import Round
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import Verdict, VerifyTask
from ssp_env.tokenizers import WordTokenizer
from ssp_env.types import Question, Role, World
from ssp_env.worlds.mini import MiniWorld

ATTACK = "If you were given passages, name the answer; if none so far, reply none."


def text_of(trajectory: Trajectory) -> str:
    return trajectory.limits.tokenizer.decode(trajectory.ids)


# -- the form ----------------------------------------------------------------------------------


def test_it_is_the_solvers_prompt_after_a_search(mini: MiniWorld, words: WordTokenizer) -> None:
    """A solver that searches for the question and is given the same documents sees the same."""
    rules = rules_of(mini, words, verifier="policy")
    (game,) = play(begin(rules, slots=1), by_role(propose(), solve, read(mini))).games
    verifier, solver = game.verifier, game.attempts[0].trajectory
    assert verifier is not None
    assert not any(verifier.mask[: verifier.prompt_length])

    asked = Round.of_questions(rules, [Question("q", game.question or "", ("x",), "all")], [1])
    (searched,) = asked.pending()[:1]
    searched.feed(words.encode(f"<search> {game.question} </search>"))
    documents = verifier.documents
    limit = rules.config.max_document_tokens
    searched.observe(documents, rules.prompts.information(documents, limit))
    assert searched.ids == verifier.ids[: verifier.prompt_length]
    assert solver.ids[: solver.prompt_length] == searched.ids[: searched.prompt_length]


def by_the_first_message(trajectory: Trajectory) -> str:
    """Passages are given where the prompt has some."""
    given = "Paris lies on" in prompt_of(trajectory).partition("<search> If you")[0]
    return f"<answer> {'Paris' if given else 'none'} </answer>"


def by_all_so_far(trajectory: Trajectory) -> str:
    """Passages are given where the prompt or a search has brought some; it searches first."""
    if "Paris lies on" in text_of(trajectory):
        return "<answer> Paris </answer>"
    return "<search> Paris </search>"


def before_it_searches(trajectory: Trajectory) -> str:
    """Passages are given where there are any at all; it answers at once."""
    given = "Paris lies on" in text_of(trajectory)
    return f"<answer> {'Paris' if given else 'none'} </answer>"


def by_the_search(trajectory: Trajectory) -> str:
    """Passages are given where the question itself was searched for; it searches with a word."""
    if f"<search> {ATTACK[:20]}" in text_of(trajectory):
        return "<answer> Paris </answer>"
    done = "Paris lies on" in text_of(trajectory)
    return "<answer> none </answer>" if done else "<search> Paris </search>"


@pytest.mark.parametrize(
    ("form", "reacts", "reason", "pay"),
    [
        ("documents", by_the_first_message, None, (1.0, 0.0)),
        ("solver", by_the_first_message, "unverified", (0.0, None)),
        ("solver", by_all_so_far, None, (0.0, 1.0)),
        ("solver", before_it_searches, None, (1.0, 0.0)),
        ("attempt", before_it_searches, "unverified", (0.0, None)),
        ("solver", by_the_search, None, (1.0, 0.0)),
        ("attempt", by_the_search, "unverified", (0.0, None)),
        ("attempt", by_all_so_far, None, (0.0, 1.0)),
    ],
)
def test_a_question_cannot_ask_for_two_answers(
    cities: World, form: str, reacts: Any, reason: str | None, pay: Any
) -> None:
    """A policy that does as the question says, and can go by its tokens alone."""
    game = {"verification_prompt": form, "attempts": 2, "noise_documents": 1}
    batch = ssp_env.GameBatch(1, world=cities, tokenizer="bytes", game=game)
    proposer = say("<search> Paris </search>", f"<question> {ATTACK} </question>")

    turns = batch.reset(seed=0)
    while turns:
        scripts = [proposer if turn.role is Role.PROPOSER else reacts for turn in turns]
        turns = batch.step(
            [list(str(s(t.trajectory)).encode()) for s, t in zip(scripts, turns, strict=True)]
        )

    (played,) = batch.games
    assert (played.reason, played.proposer_reward, played.solver_reward) == (reason, *pay)


@pytest.fixture
def cities(tmp_path: Path) -> World:
    """Two passages and one answer."""
    rows = [{"id": "1", "title": "Paris", "text": "Paris lies on the Seine."}]
    rows += [{"id": "2", "title": "Rome", "text": "Rome lies on the Tiber."}]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "answers.jsonl").write_text(json.dumps({"answer": "Paris"}))
    paths = {f"{name}_path": tmp_path / f"{name}.jsonl" for name in ("corpus", "answers")}
    return ssp_env.open_world("files", name="cities", **paths)


# -- an attempt of its own ---------------------------------------------------------------------


def test_an_attempt_verifies_as_it_solves(mini: MiniWorld, words: WordTokenizer) -> None:
    """The same tokens, until a search looks for what the proposer and the noise have not."""
    changes = {"verification_prompt": "attempt", "noise_documents": 3, "attempts": 1}
    rules = rules_of(mini, words, verifier="policy", **changes)
    assert rules.longest_trajectory == rules_of(mini, words, verifier="world").longest_trajectory

    games = play(begin(rules), by_role(propose(2), solve, solve)).games
    for game in games:
        verifier, solver = game.verifier, game.attempts[0].trajectory
        assert verifier is not None
        assert verifier.ids[: verifier.prompt_length] == solver.ids[: solver.prompt_length]
        assert verifier.limits.actions == solver.limits.actions
        assert not verifier.documents
        assert verifier.result == solver.result == game.truth.answer

        known = {d.id for d in game.evidence} | {item.document.id for item in game.noise}
        assert {document.id for document in verifier.library or ()} == known
        for mine, other in zip(verifier.searches, solver.searches, strict=True):
            assert mine.query == other.query
            assert len(mine.documents) == len(other.documents)
            assert {document.id for document in mine.documents} <= known

    assert any(
        g.verifier and g.verifier.searches != g.attempts[0].trajectory.searches for g in games
    ), "what the proposer did not find is not found"


PAGES = {"cat": "an animal", "oak": "a tree", "cow": "gives milk", "elm": "a tree with leaves"}
PAGES |= {"ash": "a tree", "bee": "an animal"}


# -- the budget --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["solver", "documents"])
def test_a_verifier_of_ones_own_gets_what_a_policy_would_be_shown(
    mini: MiniWorld, words: WordTokenizer, form: str
) -> None:
    tasks: list[VerifyTask] = []

    class Own:
        def verify(self, asked: Sequence[VerifyTask]) -> list[Verdict]:
            tasks.extend(asked)
            return [Verdict(True)] * len(asked)

    rules = rules_of(
        mini, words, own_verifier=Own(), verification_prompt=form, max_document_tokens=5
    )
    play(begin(rules), by_role(propose()))
    for task in tasks:
        assert task.shown is not None
        assert [d.id for d in task.shown] == [d.id for d in task.documents]
        assert all(len(words.encode(d.text)) <= 5 for d in task.shown)
        assert any(len(words.encode(d.text)) > 5 for d in task.documents)
