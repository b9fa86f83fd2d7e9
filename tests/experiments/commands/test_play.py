"""`ssp play`: a person types, the policy plays the rest."""

from __future__ import annotations

import io
import sys

import pytest

from ssp_env.cli import main
from ssp_env.envs.setup import set_up
from ssp_env.game.game import Game
from ssp_experiments.commands.play import Session
from ssp_experiments.config import load_preset, make_config
from ssp_experiments.evaluation import engine_of
from ssp_experiments.run.checks import open_run


@pytest.fixture(scope="module")
def session() -> Session:
    config = make_config(load_preset("tiny"))
    rules, _ = open_run(config)
    return Session(rules, engine_of(config, rules), 0, "proposer")


@pytest.fixture(scope="module")
def asked(session: Session) -> Game:
    return next(session.questions())


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


def test_a_person_opens_pages(
    session: Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = session.rules.world
    rules = set_up({"world": world, "game": {"tools": ["search", "open"]}}).rules
    opening = Session(rules, session.engine, 0, "proposer")
    page = world.corpus[5]
    type_in(monkeypatch, f"open {page.title}", "open", "n")
    opening.propose(world.answers[0], (1,))
    shown = " ".join(capsys.readouterr().out.split())
    assert page.text[:20] in shown
    assert opening.keys.partition("[")[0] in shown


def test_a_session_in_the_terminal(
    asked: Game, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document, answer = asked.evidence[-1], f"a {asked.truth.answer}"
    type_in(monkeypatch, f"s {document.title}", "s xyzzy", "what", answer, "n", "q")
    assert main(["play"]) == 0
    shown = capsys.readouterr().out
    said = str(asked.question), document.text[:40], "no such word: xyzzy", "right: it is", "skipped"
    assert all(text in shown for text in said)
    assert shown.rstrip().endswith("after 2 games")

    type_in(monkeypatch, f"a {asked.question}")
    assert main(["play", "--role", "proposer", "--games", "1"]) == 0
    shown = capsys.readouterr().out
    assert "invalid: no search" in shown
    assert shown.count("after 1 game") == 1

    type_in(monkeypatch, "q")
    assert main(["play", "--world", "small"]) == 0, "of whose questions there are few"
