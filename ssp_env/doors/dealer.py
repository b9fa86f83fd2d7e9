"""Deals games from a seed, the same ones behind every door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ssp_env.errors import ConfigError, UsageError, nearest
from ssp_env.game.game import Start
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.types import GroundTruth, Immutable, Question

OPTIONS = ("answer", "question", "start")
_PROBE = ("options", 1)
"""What PettingZoo's API tests pass to ``reset``, to see whether it takes options at all."""


class Dealer:
    """Begins one game after another, each as its own round.

    After ``seed(s)``, the k-th game is the same whichever door it is played through.
    """

    def __init__(self, rules: Rules, questions: Sequence[Question] | None = None) -> None:
        """
        Args:
            rules: what the games are played by.
            questions: play these, drawn at random, in place of proposals about the world's answers.

        Raises:
            ConfigError: there is nothing to play about, or ``questions`` holds something else.
        """
        if questions is not None:
            _check_questions(questions)
        if questions is None and not rules.world.answers:
            fix = "this world has no answers to play from; give it some, or play questions"
            raise ConfigError("world.answers", [], fix)

        self.rules, self._questions = rules, questions
        self._rng: np.random.Generator | None = None

    def seed(self, seed: int | None) -> None:
        """Starts again from a seed; ``None`` continues, or draws a seed from the system at first.

        Raises:
            UsageError: not a whole number, or a negative one.
        """
        check_seed(seed)
        if seed is not None or self._rng is None:
            self._rng = np.random.default_rng(seed)

    def deal(self, options: Mapping[str, Any] | None = None) -> Round:
        """Begins the next game.

        Args:
            options: ``answer`` (a string, or a ``GroundTruth``) plays about this answer;
                ``question`` (a ``Question``) lets the solver answer it; ``start`` (a ``Start``)
                begins as a saved game did; ``None`` counts as not given.

        Raises:
            UsageError: an unknown option, one of another type, more than one of these, or an answer
                that is blank or that the tokenizer has no tokens for.
        """
        if self._rng is None:
            raise UsageError("seed() comes first")
        if options is not None:
            _check_names(options)

        # Drawn whatever is played, so that options do not shift the games that follow.
        seed = [int(self._rng.integers(1 << 62))]
        given = {
            name: options[name] for name in OPTIONS if options and options.get(name) is not None
        }

        if len(given) > 1:
            raise UsageError(
                f"a game is about one of {', '.join(OPTIONS)}, not about {' and '.join(given)}"
            )

        match given:
            case {"start": Start() as start}:
                return Round.of_start(self.rules, start)
            case {"question": Question() as question}:
                return Round.of_questions(self.rules, [question], seed)
            case {"answer": str() as answer}:
                return self._about(GroundTruth("given", answer), seed)
            case {"answer": GroundTruth() as truth}:
                return self._about(truth, seed)

        for name, value in given.items():
            kind = {
                "answer": "a string or a GroundTruth",
                "question": "a Question",
                "start": "a Start",
            }[name]
            raise UsageError(f"options[{name!r}] is {kind}, not {type(value).__name__}")

        if self._questions is not None:
            drawn = self._questions[int(self._rng.integers(len(self._questions)))]
            return Round.of_questions(self.rules, [drawn], seed)

        return Round(self.rules, _Drawn(self.rules), 1, seed)

    def _about(self, truth: GroundTruth, seed: Sequence[int]) -> Round:
        if not truth.answer.strip():
            raise UsageError(
                f"options['answer'] = {truth.answer!r}: there is nothing to ask about; give some "
                f"words"
            )

        if not self.rules.prompts.can_spell(truth.answer):
            fix = (
                "the tokenizer has no tokens for some of it; choose words that it knows, such "
                "as an answer of the world"
            )
            raise UsageError(f"options['answer'] = {truth.answer!r}: {fix}")

        return Round(self.rules, _Given(truth), 1, seed)


def check_seed(seed: object) -> None:
    """Checks a seed.

    Raises:
        UsageError: neither ``None`` nor a whole number from 0 up.
    """
    if seed is not None and (not isinstance(seed, int | np.integer) or seed < 0):
        raise UsageError(f"seed = {seed!r}: give a whole number from 0 up")


# Objects rather than functions, since they are copied and pickled with a game that has begun.
@dataclass(frozen=True)
class _Drawn(Immutable):
    """Draws from the world's answers."""

    rules: Rules

    def __call__(self, rng: np.random.Generator, count: int) -> list[GroundTruth]:
        answers = self.rules.world.answers
        return [answers[int(rng.integers(len(answers)))] for _ in range(count)]


@dataclass(frozen=True)
class _Given(Immutable):
    """Always the same answer."""

    truth: GroundTruth

    def __call__(self, rng: np.random.Generator, count: int) -> list[GroundTruth]:
        return [self.truth] * count


def _check_names(options: Mapping[str, Any]) -> None:
    if not isinstance(options, Mapping):
        raise UsageError(f"options are a mapping, not {type(options).__name__}")

    for name, value in options.items():
        if name not in OPTIONS and (name, value) != _PROBE:
            raise UsageError(
                f"options[{name!r}]: there is no such option; {nearest(str(name), OPTIONS)}"
            )


def _check_questions(questions: Sequence[Question]) -> None:
    fix = "give a list of Questions: id, text, answers and group"
    if isinstance(questions, str) or not isinstance(questions, Sequence):
        raise ConfigError("questions", questions, fix)

    if not questions:
        raise ConfigError("questions", [], "give at least one question")
    for question in questions:
        if not isinstance(question, Question):
            raise ConfigError("questions", question, fix)


def single_attempt(rules: Rules) -> Rules:
    """The same rules with one solver attempt per question."""
    return replace(rules, config=rules.config.replace(attempts=1))
