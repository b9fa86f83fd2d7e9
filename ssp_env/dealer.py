"""Deals games from a seed, the same ones behind every door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ssp_env.errors import ConfigError, UsageError
from ssp_env.game.game import Start
from ssp_env.game.round import Answers, Round
from ssp_env.game.rules import Rules
from ssp_env.worlds.base import GroundTruth, Question

OPTIONS = ("answer", "question", "start")


class Dealer:
    """Begins one game after the other, each a round of its own.

    After ``seed(s)``, the k-th game is the same whichever door it is played through.
    """

    def __init__(self, rules: Rules, questions: Sequence[Question] | None = None) -> None:
        """
        Args:
            rules: what is played by.
            questions: play these, drawn at random, in place of proposals about the world's answers.

        Raises:
            ConfigError: there is nothing to play about, or questions that are no Questions.
        """
        if questions is not None and not questions:
            raise ConfigError("questions", [], "give at least one question")
        for question in questions or ():
            if not isinstance(question, Question):
                raise ConfigError("questions", question, "give Questions: id, text, answers and group")
        if questions is None and not rules.world.answers:
            fix = "this world has no answers to play from; give it some, or play questions"
            raise ConfigError("world.answers", [], fix)
        self.rules, self._questions = rules, questions
        self._rng: np.random.Generator | None = None

    def seed(self, seed: int | None) -> None:
        """Starts anew from a seed; ``None`` goes on, or draws a seed from the system the first time.

        Raises:
            UsageError: no whole number, or a negative one.
        """
        if seed is not None and (not isinstance(seed, int | np.integer) or seed < 0):
            raise UsageError(f"seed = {seed!r}: give a whole number from 0 up")
        if seed is not None or self._rng is None:
            self._rng = np.random.default_rng(seed)

    def deal(self, options: Mapping[str, Any] | None = None) -> Round:
        """Begins the next game.

        Args:
            options: ``answer`` (a string, or a ``GroundTruth``) plays about this answer; ``question`` (a ``Question``)
                lets the solver answer it; ``start`` (a ``Start``) begins as a saved game did; anything else is ignored.

        Raises:
            UsageError: an option of another type, or more than one of these.
        """
        if self._rng is None:
            raise UsageError("seed() comes first")
        if options is not None and not isinstance(options, Mapping):
            raise UsageError(f"options are a mapping, not {type(options).__name__}")
        seed = [int(self._rng.integers(1 << 62))]
        given = {name: options[name] for name in OPTIONS if options and options.get(name) is not None}
        if len(given) > 1:
            raise UsageError(f"a game is about one of {', '.join(OPTIONS)}, not about {' and '.join(given)}")
        match given:
            case {"start": Start() as start}:
                return Round.of_start(self.rules, start)
            case {"question": Question() as question}:
                return Round.of_questions(self.rules, [question], seed)
            case {"answer": str() as answer}:
                return Round(self.rules, lambda rng, count: [GroundTruth("given", answer)], 1, seed)
            case {"answer": GroundTruth() as truth}:
                return Round(self.rules, lambda rng, count: [truth], 1, seed)
        for name, value in given.items():
            kind = {"answer": "a string or a GroundTruth", "question": "a Question", "start": "a Start"}[name]
            raise UsageError(f"options[{name!r}] is {kind}, not {type(value).__name__}")
        if self._questions is not None:
            drawn = self._questions[int(self._rng.integers(len(self._questions)))]
            return Round.of_questions(self.rules, [drawn], seed)
        return Round(self.rules, self._answers, 1, seed)

    @property
    def _answers(self) -> Answers:
        answers = self.rules.world.answers
        return lambda rng, count: [answers[int(rng.integers(len(answers)))]]


def single_attempt(rules: Rules) -> Rules:
    """The same rules with one solver attempt a question."""
    return replace(rules, config=replace(rules.config, attempts=1))
