"""The judges that ship, by name, and how often they agree with people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from ssp_env.errors import ConfigError, ServiceError, nearest
from ssp_env.judge.base import Judge, JudgeTask
from ssp_env.judge.chat import ChatClient, ChatConfig
from ssp_env.judge.exact import ExactMatchJudge, F1Judge
from ssp_env.judge.lenient import LenientJudge
from ssp_env.judge.openai import OpenAIJudge
from ssp_env.types import GroundTruth

BY_RULES: Mapping[str, Callable[[], Judge]] = {
    "lenient": LenientJudge,
    "exact": ExactMatchJudge,
    "f1": F1Judge,
}
"""Judges that need no model."""

JUDGES = (*BY_RULES, "openai")
"""Every name that :func:`make_judge` knows; the first is the default."""


def name_of(judge: Judge) -> str:
    """The name of a judge by rules; the class of any other."""
    names = {made: name for name, made in BY_RULES.items()}
    return names.get(type(judge), type(judge).__name__)


def make_judge(name: str, chat: ChatConfig | None = None) -> Judge:
    """The judge of this name.

    Args:
        name: one of :data:`JUDGES`.
        chat: where the model of ``openai`` is served; the others use none.

    Raises:
        ConfigError: no such judge, or ``openai`` without ``chat``.
    """
    if name in BY_RULES:
        return BY_RULES[name]()
    if name != "openai":
        raise ConfigError("judge", name, nearest(name, JUDGES))
    if chat is None:
        raise ConfigError("judge", name, "say where its model is served: base_url and model")
    return OpenAIJudge(ChatClient(chat))


class Pair(BaseModel, strict=True, frozen=True):
    """A prediction, and whether people call it right."""

    question: str
    """May be empty."""
    answers: list[str] = Field(min_length=1)
    """Right wordings."""
    prediction: str
    right: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """Verdicts of a judge on labelled pairs. A figure is ``None`` where there is nothing to count.

    Outages count in no figure."""

    judged: Sequence[bool | ServiceError]
    """Its verdict on each, or why there is none."""
    right: Sequence[bool]
    """The labels."""

    @property
    def errors(self) -> list[int]:
        """Places of the pairs that it got wrong."""
        return [i for i, (judged, label) in enumerate(self._places) if judged is (not label)]

    @property
    def failed(self) -> list[ServiceError]:
        """Outages."""
        return [judged for judged in self.judged if isinstance(judged, ServiceError)]

    @property
    def precision(self) -> float | None:
        """Of the pairs that it passes, the share that is right."""
        return _share(label for judged, label in self._places if judged is True)

    @property
    def recall(self) -> float | None:
        """Of the pairs that are right, the share that it passes."""
        judged = (judged for judged, label in self._places if label)
        return _share(each for each in judged if isinstance(each, bool))

    @property
    def accuracy(self) -> float | None:
        """Of all pairs, the share that it judges as people do."""
        return _share(j is label for j, label in self._places if isinstance(j, bool))

    @property
    def _places(self) -> list[tuple[bool | ServiceError, bool]]:
        return list(zip(self.judged, self.right, strict=True))


def _share(flags: Iterable[bool]) -> float | None:
    counted = list(flags)
    return sum(counted) / len(counted) if counted else None


def measure(judge: Judge, pairs: Sequence[Pair]) -> Measured:
    """Lets a judge decide on labelled pairs."""
    tasks = []
    for place, pair in enumerate(pairs):
        truth = GroundTruth(str(place), pair.answers[0], tuple(pair.answers[1:]))
        tasks.append(JudgeTask(pair.question, pair.prediction, truth))
    results = judge.judge(tasks)
    judged = [each if isinstance(each, ServiceError) else each.correct for each in results]
    return Measured(judged, [pair.right for pair in pairs])
