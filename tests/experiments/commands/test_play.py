"""`ssp play`: a person types, the policy plays the rest."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat

import pytest

from agents.engines.base import StopRule
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model, tiny_directory
from experiments.commands.play import OUTAGES, Session, Terminal
from experiments.config import load_preset, make_config
from experiments.run.checks import open_run
from ssp_env.cli import main
from ssp_env.errors import ServiceError
from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.search.base import Retriever
from ssp_env.types import Action, Document


@pytest.fixture(scope="module")
def session() -> Session:
    config = make_config(load_preset("tiny"))
    rules, _ = open_run(config)
    stop = StopRule.of(config.game, rules.tokenizer)
    return Session(
        rules, TransformersEngine(load_model(tiny_directory()), rules.tokenizer, stop), 0
    )


@pytest.fixture(scope="module")
def asked(session: Session) -> Game:
    return next(session.questions())


class Flaky:
    """The search of a world, with outages: the first so many queries fail."""

    def __init__(self, retriever: Retriever, failing: int) -> None:
        self._retriever, self.failing = retriever, failing

    def search(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Document]]:
        if self.failing > 0:
            self.failing -= 1
            raise ServiceError("search", "nobody is there")
        return self._retriever.search(queries, k)


def flaky(session: Session, failing: int = 10**6) -> tuple[Session, Flaky]:
    search = Flaky(session.rules.retriever, failing)
    return Session(replace(session.rules, retriever=search), session.engine, 0), search


def type_in(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))


def test_a_person_who_answers_right_is_right(session: Session, asked: Game) -> None:
    part = session.solver(asked)
    left = part.searches_left
    assert asked.evidence[-1] in part.write(Action.SEARCH, asked.evidence[-1].title)
    assert part.searches_left == left - 1

    assert part.write(Action.ANSWER, asked.truth.answer) == ()
    assert part.trajectory.done
    assert part.finish().attempts[0].right


def test_a_person_s_question_is_verified_and_asked(session: Session, asked: Game) -> None:
    """The policy's own, written by a person who read the same pages; then without search."""
    outage, search = flaky(session, 0)
    for dealer in (session, outage):
        part = dealer.proposer(asked.truth)
        for document in asked.evidence:
            part.write(Action.SEARCH, document.title)
        part.write(Action.QUESTION, asked.question or "")
        if dealer is session:
            game = part.finish()

    assert game.outcome is Outcome.VALID, game.reason
    assert len(game.attempts) == 5
    assert game.proposer_reward == pytest.approx(1 - game.share_right)
    rival = session.rival(game)
    assert rival.truth == game.truth
    assert rival.outcome is not Outcome.PENDING

    search.failing = 10**6
    with pytest.raises(ServiceError, match="nobody is there"):
        part.finish()
    with pytest.raises(ServiceError, match="nobody is there"):
        outage.rival(game)


def test_a_short_outage_ends_no_questions(session: Session) -> None:
    assert next(flaky(session, 1)[0].questions()).question
    with pytest.raises(ServiceError, match="nobody is there"):
        next(flaky(session)[0].questions())


@pytest.mark.parametrize("role", ["solver", "proposer"])
def test_games_that_an_outage_voids_do_not_count(
    role: str,
    session: Session,
    asked: Game,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Session, "questions", lambda self: repeat(asked))
    type_in(monkeypatch, *[f"s {asked.evidence[-1].title}"] * 9)
    terminal = Terminal(flaky(session)[0], role)
    with pytest.raises(ServiceError, match=f"{OUTAGES} games in a row are void"):
        terminal.play(None)
    assert capsys.readouterr().out.count("this game does not count") == OUTAGES
    assert terminal.score == "you 0.00, the policy 0.00, after 0 games"


def test_a_session_in_the_terminal(
    asked: Game, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    search, answer = f"s {asked.evidence[-1].title}", f"a {asked.truth.answer}"
    type_in(monkeypatch, search, "s xyzzy", "what", answer, "q")
    assert main(["play"]) == 0
    shown = capsys.readouterr().out
    assert asked.question
    assert asked.question in shown
    assert "no such word: xyzzy" in shown
    assert f"right: it is {asked.truth.answer}" in shown
    assert shown.rstrip().endswith("after 1 game")

    type_in(monkeypatch, f"a {asked.question}")
    assert main(["play", "--role", "proposer", "--games", "1"]) == 0
    shown = capsys.readouterr().out
    assert "invalid: nothing was searched for that a question could rest on" in shown
    assert shown.count("after 1 game") == 1
