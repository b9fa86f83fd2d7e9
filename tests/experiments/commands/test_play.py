"""`ssp play`: a person types, the policy plays the rest."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import pytest

from agents.engines.base import StopRule
from agents.engines.transformers_engine import TransformersEngine
from agents.models import load_model, tiny_directory
from experiments.commands.play import Score, Terminal, propose, solve
from experiments.config import load_preset, make_config
from experiments.play import OUTAGES, Asked, Session
from experiments.run.checks import check
from ssp_env.cli import main
from ssp_env.errors import ServiceError
from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.search.base import Retriever
from ssp_env.types import Action, Document


@pytest.fixture(scope="module")
def session() -> Session:
    config = make_config(load_preset("tiny"))
    rules, _ = check(config)
    stop = StopRule.of(config.game, rules.tokenizer)
    return Session(
        rules, TransformersEngine(load_model(tiny_directory()), rules.tokenizer, stop), 0
    )


@pytest.fixture(scope="module")
def asked(session: Session) -> Asked:
    return next(session.questions())


def test_a_asked_is_a_valid_question_of_the_policy_s_own(session: Session, asked: Asked) -> None:
    truth = session.rules.world.analyse(asked.question)
    assert truth is not None
    assert asked.truth.answer in truth.answers
    assert asked.read
    assert 0 <= asked.solve_rate <= 1


def test_a_person_who_answers_right_is_right(session: Session, asked: Asked) -> None:
    part = session.solver(asked)
    left = part.searches_left
    found = part.write(Action.SEARCH, asked.read[-1].title)
    assert asked.read[-1] in found
    assert part.searches_left == left - 1

    assert part.write(Action.ANSWER, asked.truth.answer) == ()
    assert part.over
    assert part.finish().attempts[0].right


def test_a_person_s_question_is_verified_and_asked(session: Session, asked: Asked) -> None:
    """The asked itself, written by somebody who was given its answer and read the same pages."""
    part = session.proposer(asked.truth)
    for document in asked.read:
        part.write(Action.SEARCH, document.title)
    part.write(Action.QUESTION, asked.question)
    game = part.finish()
    assert game.outcome is Outcome.VALID, game.reason
    assert len(game.attempts) == 5
    assert game.proposer_reward == pytest.approx(1 - game.share_right)

    rival = session.rival(game)
    assert rival.truth == game.truth
    assert rival.outcome is not Outcome.PENDING


class Flaky:
    """The search of a world, with outages."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever, self.down = retriever, False

    def search(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Document]]:
        if self.down:
            raise ServiceError("search", "nobody is there")
        return self._retriever.search(queries, k)


@pytest.fixture
def flaky(session: Session) -> tuple[Session, Flaky]:
    search = Flaky(session.rules.retriever)
    return Session(replace(session.rules, retriever=search), session.engine, 0), search


def test_an_outage_in_the_policy_s_part_voids_the_game(
    flaky: tuple[Session, Flaky], asked: Asked
) -> None:
    session, search = flaky
    part = session.proposer(asked.truth)
    for document in asked.read:
        part.write(Action.SEARCH, document.title)
    part.write(Action.QUESTION, asked.question)
    search.down = True
    with pytest.raises(ServiceError, match="nobody is there"):
        part.finish()
    with pytest.raises(ServiceError, match="nobody is there"):
        session.rival(part.game)
    with pytest.raises(ServiceError, match="nobody is there"):
        session.solver(asked).write(Action.SEARCH, asked.read[-1].title)


def test_a_short_outage_ends_no_questions(
    flaky: tuple[Session, Flaky], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, search = flaky
    waves: list[int] = []

    def self_play(self: Session, wave: int) -> list[Game]:
        waves.append(wave)
        search.down = len(waves) < OUTAGES
        return whole_wave(self, wave)

    whole_wave = Session._self_play
    monkeypatch.setattr(Session, "_self_play", self_play)
    assert next(session.questions()).question
    assert len(waves) >= OUTAGES


@pytest.mark.parametrize("role", ["solver", "proposer"])
def test_games_that_an_outage_voids_do_not_count(
    role: str,
    flaky: tuple[Session, Flaky],
    asked: Asked,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    session, search = flaky
    search.down = True
    monkeypatch.setattr(Session, "questions", lambda self: repeat(asked))
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"s {asked.read[-1].title}\n" * 9))
    play, score = solve if role == "solver" else propose, Score()
    with pytest.raises(ServiceError, match=f"{OUTAGES} games in a row are void"):
        list(play(Terminal(role), session, score))
    assert capsys.readouterr().out.count("this game does not count") == OUTAGES
    assert (score.games, score.person, score.policy) == (0, 0.0, 0.0)


def test_without_search_the_command_ends_and_says_why(
    flaky: tuple[Session, Flaky],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    session, search = flaky
    search.down = True
    monkeypatch.setattr("experiments.commands.play.check", lambda config: (session.rules, []))
    assert main(["play"]) == 2
    said = capsys.readouterr()
    assert "search: nobody is there" in said.err
    assert "has not written any valid question" not in said.out
    assert "after 0 games" in said.out


def test_a_session_in_the_terminal(
    asked: Asked,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    typed = [f"s {asked.read[-1].title}", "s xyzzy", "what", f"a {asked.truth.answer}", "q"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(typed) + "\n"))
    assert main(["play"]) == 0

    shown = capsys.readouterr().out
    assert asked.question in shown
    assert "no such word: xyzzy" in shown
    assert f"right: it is {asked.truth.answer}" in shown
    assert shown.rstrip().endswith("after 1 game")


def test_a_question_that_fails_is_told_why_in_words_and_the_score_is_said_once(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"a {asked.question}\n"))
    assert main(["play", "--role", "proposer", "--games", "1"]) == 0
    shown = capsys.readouterr().out
    assert "invalid: nothing was searched for that a question could rest on" in shown
    assert "no_search" not in shown
    assert shown.count("after 1 game") == 1
