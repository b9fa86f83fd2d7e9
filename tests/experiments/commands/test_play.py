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
from experiments.commands.play import Score, Terminal, _propose, _solve
from experiments.config import load_preset, make_config
from experiments.play.table import OUTAGES, Riddle, Table
from experiments.run.checks import check
from ssp_env.cli import main
from ssp_env.errors import ServiceError
from ssp_env.game.game import Game
from ssp_env.game.outcome import Outcome
from ssp_env.search.base import Retriever
from ssp_env.types import Action, Document, Question


@pytest.fixture(scope="module")
def table() -> Table:
    config = make_config(load_preset("tiny"))
    rules, _ = check(config)
    stop = StopRule.of(config.game, rules.tokenizer)
    return Table(rules, TransformersEngine(load_model(tiny_directory()), rules.tokenizer, stop), 0)


@pytest.fixture(scope="module")
def riddle(table: Table) -> Riddle:
    return next(table.riddles())


def test_a_riddle_is_a_valid_question_of_the_policy_s_own(table: Table, riddle: Riddle) -> None:
    truth = table.rules.world.analyse(riddle.question)
    assert truth is not None
    assert riddle.truth.answer in truth.answers
    assert riddle.read
    assert 0 <= riddle.solve_rate <= 1


def test_a_person_who_answers_right_is_right(table: Table, riddle: Riddle) -> None:
    seat = table.solver(riddle)
    left = seat.searches_left
    found = seat.write(Action.SEARCH, riddle.read[-1].title)
    assert riddle.read[-1] in found
    assert seat.searches_left == left - 1

    assert seat.write(Action.ANSWER, riddle.truth.answer) == ()
    assert seat.over
    assert seat.finish().attempts[0].right


def test_a_person_who_answers_wrong_is_not(table: Table, riddle: Riddle) -> None:
    seat = table.solver(riddle)
    seat.write(Action.ANSWER, riddle.read[-1].title + " and " + riddle.truth.answer)
    assert not seat.finish().attempts[0].right


def test_a_person_s_question_is_verified_and_asked(table: Table, riddle: Riddle) -> None:
    """The riddle itself, written by somebody who was given its answer and read the same pages."""
    seat = table.proposer(riddle.truth)
    for document in riddle.read:
        seat.write(Action.SEARCH, document.title)
    seat.write(Action.QUESTION, riddle.question)
    game = seat.finish()
    assert game.outcome is Outcome.VALID, game.reason
    assert len(game.attempts) == 5
    assert game.proposer_reward == pytest.approx(1 - game.share_right)

    rival = table.rival(game)
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
def flaky(table: Table) -> tuple[Table, Flaky]:
    search = Flaky(table.rules.retriever)
    return Table(replace(table.rules, retriever=search), table.engine, 0), search


def test_an_outage_in_the_policy_s_part_voids_the_game(
    flaky: tuple[Table, Flaky], riddle: Riddle
) -> None:
    table, search = flaky
    seat = table.proposer(riddle.truth)
    for document in riddle.read:
        seat.write(Action.SEARCH, document.title)
    seat.write(Action.QUESTION, riddle.question)
    search.down = True
    with pytest.raises(ServiceError, match="nobody is there"):
        seat.finish()
    with pytest.raises(ServiceError, match="nobody is there"):
        table.rival(seat.game)
    with pytest.raises(ServiceError, match="nobody is there"):
        table.solver(riddle).write(Action.SEARCH, riddle.read[-1].title)


def test_a_short_outage_ends_no_riddles(
    flaky: tuple[Table, Flaky], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, search = flaky
    waves: list[int] = []

    def self_play(self: Table, wave: int) -> list[Game]:
        waves.append(wave)
        search.down = len(waves) < OUTAGES
        return whole_wave(self, wave)

    whole_wave = Table._self_play
    monkeypatch.setattr(Table, "_self_play", self_play)
    assert next(table.riddles()).question
    assert len(waves) >= OUTAGES


@pytest.mark.parametrize("role", ["solver", "proposer"])
def test_games_that_an_outage_voids_do_not_count(
    role: str,
    flaky: tuple[Table, Flaky],
    riddle: Riddle,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table, search = flaky
    search.down = True
    monkeypatch.setattr(Table, "riddles", lambda self: repeat(riddle))
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"s {riddle.read[-1].title}\n" * 9))
    play, score = _solve if role == "solver" else _propose, Score()
    questions = [Question("1", riddle.question, ("x",), "1")]
    with pytest.raises(ServiceError, match=f"{OUTAGES} games in a row are void"):
        play(Terminal(role), table, score, questions, 1)
    assert capsys.readouterr().out.count("this game does not count") == OUTAGES
    assert (score.games, score.person, score.policy) == (0, 0.0, 0.0)


def test_without_search_the_command_ends_and_says_why(
    flaky: tuple[Table, Flaky], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table, search = flaky
    search.down = True
    monkeypatch.setattr("experiments.commands.play.check", lambda config: (table.rules, []))
    assert main(["play"]) == 2
    said = capsys.readouterr()
    assert "search: nobody is there" in said.err
    assert "has not written any valid question" not in said.out
    assert "after 0 games" in said.out


def test_answers_are_dealt_by_the_seed(table: Table) -> None:
    ours, theirs = (Table(table.rules, table.engine, seed) for seed in (0, 1))
    first = [ours.proposer().game.truth for _ in range(3)]
    assert len(set(first)) == 3
    assert [theirs.proposer().game.truth for _ in range(3)] != first


def test_words_that_a_world_does_not_have_are_named(table: Table, riddle: Riddle) -> None:
    assert table.solver(riddle).unknown_words("the rival of Foo ?") == ["Foo"]


def test_a_session_in_the_terminal(
    riddle: Riddle,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    typed = ["h", f"s {riddle.read[-1].title}", "s xyzzy", "what", f"a {riddle.truth.answer}", "q"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(typed) + "\n"))
    assert main(["play"]) == 0

    shown = capsys.readouterr().out
    assert riddle.question in shown
    assert "no such word: xyzzy" in shown
    assert f"right: it is {riddle.truth.answer}, 0.75 points for you" in shown
    assert shown.rstrip().endswith("after 1 game")


def test_a_question_that_fails_is_told_why_in_words_and_the_score_is_said_once(
    riddle: Riddle, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"a {riddle.question}\n"))
    assert main(["play", "--role", "proposer", "--games", "1"]) == 0
    shown = capsys.readouterr().out
    assert "invalid: nothing was searched for that a question could rest on, 0 points" in shown
    assert "no_search" not in shown
    assert shown.count("after 1 game") == 1
