"""`ssp play`: a person types, the policy plays the rest."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from agents.engines.base import StopRule
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model, tiny_directory
from experiments.commands.play import Session
from experiments.config import load_preset, make_config
from experiments.run.checks import open_run
from ssp_env.cli import main
from ssp_env.errors import ServiceError
from ssp_env.game.game import Game
from ssp_env.search.base import Retriever
from ssp_env.types import Document


@pytest.fixture(scope="module")
def session() -> Session:
    config = make_config(load_preset("tiny"))
    rules, _ = open_run(config)
    stop = StopRule.of(config.game, rules.tokenizer)
    engine = TransformersEngine(load_model(tiny_directory()), rules.tokenizer, stop)
    return Session(rules, engine, 0, "proposer")


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


def flaky(session: Session, failing: int, role: str = "solver") -> Session:
    rules = replace(session.rules, retriever=Flaky(session.rules.retriever, failing))
    return Session(rules, session.engine, 0, role)


def type_in(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))


def test_a_person_s_question_is_verified_and_asked(
    session: Session,
    asked: Game,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The policy's own question, written by a person who read the same pages."""
    searches = [f"s {document.title}" for document in asked.evidence]
    type_in(monkeypatch, *searches, f"a {asked.question}")
    session.propose(asked.truth, (1,))
    shown = " ".join(capsys.readouterr().out.split())
    assert "valid: the policy answered" in shown
    points = float(shown.partition(" points for you")[0].rpartition(" ")[2])
    right = float(shown.partition("% of it is right")[0].split()[-1]) / 100
    assert points == pytest.approx(1 - right)
    assert session.score == f"you {points:.2f}, the policy {right:.2f}, after 1 game"


def test_an_outage_ends_nothing_and_its_games_do_not_count(
    session: Session,
    asked: Game,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert next(flaky(session, 1).questions()).question
    with pytest.raises(ServiceError, match="nobody is there"):
        next(flaky(session, 10**6).questions())

    type_in(monkeypatch, *[f"s {asked.evidence[-1].title}"] * 3)
    out = flaky(session, 10**6, "proposer")
    with pytest.raises(EOFError):
        out.play()
    assert capsys.readouterr().out.count("this game does not count") == 3
    assert out.score == "you 0.00, the policy 0.00, after 0 games"


def test_a_session_in_the_terminal(
    asked: Game, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = asked.evidence[-1]
    answer = f"a {asked.truth.answer}"
    type_in(monkeypatch, f"s {document.title}", "s xyzzy", "what", answer, "n", "q")
    assert main(["play"]) == 0
    shown = capsys.readouterr().out
    assert asked.question
    assert asked.question in shown
    assert document.text[:40] in shown
    assert "no such word: xyzzy" in shown
    assert f"right: it is {asked.truth.answer}" in shown
    assert "skipped: it is" in shown
    assert shown.rstrip().endswith("after 2 games")

    type_in(monkeypatch, f"a {asked.question}")
    assert main(["play", "--role", "proposer", "--games", "1"]) == 0
    shown = capsys.readouterr().out
    assert "invalid: no search" in shown
    assert shown.count("after 1 game") == 1
