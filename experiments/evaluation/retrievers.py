"""Retrievers that take the place of the real one, to measure what search is worth.

A policy that scores as well with an empty retriever answers from memory. One that believes a
retriever that lies consistently reads what it finds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from zlib import crc32

import numpy as np

from ssp_env.errors import ConfigError
from ssp_env.game.rules import Rules
from ssp_env.search.base import Retriever
from ssp_env.types import Document, Question
from ssp_env.wording.answers import normalise


class EmptyRetriever:
    """Finds nothing."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """An empty list per query."""
        return [[] for _ in queries]


class LyingRetriever:
    """Finds what the real one finds, with every right answer replaced by another question's, the
    same one everywhere. A policy that reads gives the planted answer."""

    def __init__(self, retriever: Retriever, planted: Mapping[str, str]) -> None:
        """``planted`` maps a wording to what stands in its place."""
        self._retriever = retriever
        self._planted = {wording.casefold(): other for wording, other in planted.items()}
        # Long wordings first, so that "New York City" is not read as "New York" and "City".
        body = "|".join(map(re.escape, sorted(planted, key=len, reverse=True)))
        self._pattern = re.compile(rf"(?<!\w)(?:{body})(?!\w)", re.IGNORECASE)

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """Finds the passages of the real one, but lying."""

        def lie(text: str) -> str:
            return self._pattern.sub(lambda m: self._planted.get(m[0].casefold(), m[0]), text)

        return [
            [replace(d, title=lie(d.title), text=lie(d.text)) for d in found]
            for found in self._retriever.search(queries, k)
        ]


def planted_answers(questions: Sequence[Question], seed: int) -> dict[str, str]:
    """For every accepted wording of every question, an answer of another question of its group.

    An answer whose group has no other one, or none but its own wordings, is left out."""
    planted: dict[str, str] = {}
    for group in sorted({question.group for question in questions}):
        wordings: dict[str, set[str]] = {}
        for question in questions:
            if question.group == group:
                wordings.setdefault(question.answers[0], set()).update(question.answers)

        # A shuffled circle, in which each answer gets the next one that is not its own.
        answers = sorted(wordings)
        order = np.random.default_rng([seed, crc32(group.encode())]).permutation(len(answers))
        circle = [answers[place] for place in order]
        for place, answer in enumerate(circle):
            own = {normalise(wording) for wording in wordings[answer]}
            others = circle[place + 1 :] + circle[:place]
            lie = next((other for other in others if normalise(other) not in own), None)
            if lie is not None:
                for wording in sorted(wordings[answer]):
                    planted.setdefault(wording, lie)
    return planted


def with_retriever(name: str, rules: Rules, questions: Sequence[Question], seed: int) -> Rules:
    """Rules with another retriever in the place of theirs; ``lying`` replaces the answers of
    ``questions``."""
    if name == "empty":
        return replace(rules, retriever=EmptyRetriever())
    planted = planted_answers(questions, seed)
    if not planted:
        fix = "needs questions with at least two different answers in a group"
        raise ConfigError("--retriever", name, fix)
    return replace(rules, retriever=LyingRetriever(rules.retriever, planted))
