"""Training on given questions: which of them a step learns from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np

from ssp_agents.config import LearningConfig, given_per_step
from ssp_env.config import named
from ssp_env.disk import check_file
from ssp_env.errors import ConfigError
from ssp_env.game.batch import check_questions
from ssp_env.game.config import GameConfig
from ssp_env.game.rules import Rules
from ssp_env.types import Question
from ssp_env.worlds.questions import read_questions, shared_questions

_ORDER = 0x61FE
"""First number of the seeds of their order, whose random streams are no others'."""


class GivenQuestions:
    """Questions that come with answers, in the order in which the solver learns from them.

    All of them come once, in an order that seed and epoch decide, before one comes again. So the
    questions of a step follow from its number, and nothing has to be kept to resume.

    >>> questions = [Question(name, f"{name}?", ("yes",)) for name in "abcde"]
    >>> given = GivenQuestions(questions, seed=0, per_step=2)
    >>> [[question.id for question in given.of_step(step)] for step in range(5)]
    [['a', 'c'], ['d', 'b'], ['e', 'b'], ['e', 'a'], ['c', 'd']]
    >>> given.figures(steps=5)
    {'given_epoch': 2.0}
    """

    def __init__(self, questions: Sequence[Question], seed: int, per_step: int) -> None:
        self.questions, self.per_step, self._seed = questions, per_step, seed

    @classmethod
    def of(cls, learning: LearningConfig, game: GameConfig, seed: int) -> GivenQuestions:
        """Those of the settings, read from their file; none where nothing is given."""
        per_step = given_per_step(learning, game)
        return cls(open_given(learning) if per_step else (), seed, per_step)

    def of_step(self, step: int) -> list[Question]:
        """The questions of a step, counted from 0."""
        drawn: list[Question] = []
        # A step may begin in one epoch and end in another one.
        while len(drawn) < self.per_step:
            # The i-th that a run asks, of n, is number i mod n in the order of epoch i div n.
            epoch, place = divmod(step * self.per_step + len(drawn), len(self.questions))
            order = np.random.default_rng([_ORDER, self._seed, epoch])
            left = order.permutation(len(self.questions)).tolist()[place:]
            drawn += (self.questions[i] for i in islice(left, self.per_step - len(drawn)))
        return drawn

    def figures(self, steps: int) -> dict[str, float]:
        """How often all of them have come, once so many steps are done."""
        passes = steps * self.per_step / max(1, len(self.questions))
        return {"given_epoch": passes} if self.per_step else {}

    def digest(self) -> str:
        """Short digest of texts and answers in their order; empty where nothing is given."""
        texts = "\n".join(repr((q.text, q.answers)) for q in self.questions)
        return hashlib.sha256(texts.encode("utf-8", "replace")).hexdigest()[:16] if texts else ""

    def check(self, digest: str) -> None:
        """Refuses to go on from a checkpoint of a run that was given others."""
        if digest != self.digest():
            what = "questions" if self.questions else "given questions"
            fix = f"the run that is to go on learns from other {what}: give it those, unchanged"
            raise ConfigError("learning.questions", f"{len(self.questions)} questions", fix)


def open_given(learning: LearningConfig) -> tuple[Question, ...]:
    """The questions of ``learning.questions``; a file that it names is read once, unless it
    changes."""
    given = learning.questions
    if not isinstance(given, str):
        return given
    check_file("learning.questions", given)
    return _read(given, Path(given).stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _read(path: str, changed: int) -> tuple[Question, ...]:
    # Seconds where there are a hundred thousand: before a run starts, three parts ask for them.
    # ``changed`` is there for the cache's key: a file that has been edited is read again.
    return read_questions(path)


def check_given(rules: Rules, questions: Sequence[Question]) -> None:
    """Refuses questions that the policy could only read as unknown tokens, or that leave too long a
    prompt."""
    with named("learning"):
        check_questions(rules, questions)
    config, prompts = rules.config, rules.prompts
    limit = config.max_prompt_tokens

    def length(text: str) -> int:
        return len(prompts.solver(text, config.max_searches))

    # Most are so short that nobody has to count: a byte makes one token at most, and four where
    # the tokenizer writes it out.
    room = (limit - length("")) / 4
    counted = [q for q in questions if len(q.text.encode("utf-8", "replace")) > room]
    long = [question for question in counted if length(question.text) > limit]
    if long:
        most = max(length(question.text) for question in long)
        what = f"the prompts of {len(long)} of {len(questions)} given questions are longer, such as"
        fix = f"{what} that of {long[0].id}; give {most}, or leave them out"
        raise ConfigError("game.max_prompt_tokens", limit, fix)


def check_unseen(learning: LearningConfig, measured: Sequence[Question]) -> None:
    """Refuses training on questions that the policy is measured by."""
    if not (learning.questions and learning.share_given):
        return
    given = open_given(learning)
    if shared := list(shared_questions(given, measured)):
        names = ", ".join(question.id for question in shared[:3])
        what = f"{len(shared)} of {len(given)} are evaluation questions ({names}"
        what += ", ..." if len(shared) > 3 else ""
        fix = f"{what}; the first: {shared[0].text!r:.100}): leave them out of it"
        where = learning.questions if isinstance(learning.questions, str) else "given questions"
        raise ConfigError("learning.questions", where, fix)
