"""Deals games from a seed, the same ones behind every door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ssp_env.errors import ConfigError, UsageError, nearest
from ssp_env.game.round import Round
from ssp_env.game.rules import Rules
from ssp_env.types import GroundTruth, Immutable, Question

OPTIONS = {"answer": "a string or a GroundTruth", "question": "a Question"}
"""Options of every ``reset``, and their types."""


class Dealer:
    """Begins one game after another, each as its own round.

    After ``seed(s)``, the k-th game is the same whichever door it is played through.
    """

    def __init__(self, rules: Rules, questions: Sequence[Question] | None = None) -> None:
        """
        Args:
            rules: of the games.
            questions: play these, drawn at random, in place of proposals about the world's answers.
        """
        if questions is not None and not (
            isinstance(questions, Sequence)
            and questions
            and all(isinstance(question, Question) for question in questions)
        ):
            fix = "give a list of at least one Question: id, text, answers and group"
            raise ConfigError("questions", questions, fix)
        if questions is None and not rules.world.answers:
            fix = "this world has no answers to play from; give it some, or play questions"
            raise ConfigError("world.answers", [], fix)

        self.rules, self._questions = rules, questions
        self._rng: np.random.Generator | None = None

    def seed(self, seed: int | None) -> None:
        """Starts again from a seed; ``None`` continues, or draws one from the system at first."""
        if seed is not None and (not isinstance(seed, int | np.integer) or seed < 0):
            raise UsageError(f"seed = {seed!r}: give a whole number from 0 up")
        if seed is not None or self._rng is None:
            self._rng = np.random.default_rng(seed)

    def deal(self, options: Mapping[str, Any] | None = None) -> Round:
        """Begins the next game.

        Args:
            options: ``answer`` (a string, or a ``GroundTruth``) plays about this answer;
                ``question`` (a ``Question``) lets the solver answer it; ``None`` counts as not
                given.

        Raises:
            UsageError: an unknown option, one of another type, more than one of these, or an answer
                that is blank or that the tokenizer has no tokens for.
        """
        assert self._rng is not None, "seed() comes first"
        given = _given(options)

        # Drawn whatever is played, so that options do not shift the games that follow.
        seed = [int(self._rng.integers(1 << 62))]

        match given:
            case None if self._questions is not None:
                drawn = self._questions[int(self._rng.integers(len(self._questions)))]
                return Round.of_questions(self.rules, [drawn], seed)
            case None:
                return Round(self.rules, _Drawn(self.rules), 1, seed)
            case Question():
                return Round.of_questions(self.rules, [given], seed)

        if not given.answer.strip() or not self.rules.prompts.can_spell(given.answer):
            fix = "it is blank, or the tokenizer has no tokens for some of it; choose other words"
            raise UsageError(f"options['answer'] = {given.answer!r}: {fix}")
        return Round(self.rules, _Given(given), 1, seed)


def _given(options: Mapping[str, Any] | None) -> GroundTruth | Question | None:
    """The subject of a game, if the options name one."""
    options = {} if options is None else options
    if not isinstance(options, Mapping):
        raise UsageError(f"options are a mapping, not {type(options).__name__}")

    for name, value in options.items():
        # PettingZoo's API tests pass {"options": 1} to see whether options are taken at all.
        if name not in OPTIONS and (name, value) != ("options", 1):
            hint = nearest(str(name), OPTIONS)
            raise UsageError(f"options[{name!r}]: there is no such option; {hint}")

    given = [(name, options[name]) for name in OPTIONS if options.get(name) is not None]
    match given:
        case []:
            return None
        case [("question", Question() as subject)] | [("answer", GroundTruth() as subject)]:
            return subject
        case [("answer", str() as answer)]:
            return GroundTruth("given", answer)
        case [(name, value)]:
            raise UsageError(f"options[{name!r}] is {OPTIONS[name]}, not {type(value).__name__}")
    names = " and ".join(name for name, _ in given)
    raise UsageError(f"a game is about one of {', '.join(OPTIONS)}, not about {names}")


# Objects, since they are copied and pickled with a game that has begun.
@dataclass(frozen=True)
class _Drawn(Immutable):
    """Draws from the world's answers; a pickle refers to the world instead of holding them."""

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
