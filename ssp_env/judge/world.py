"""Judge and verifier that ask the world itself, and the verifier that lets everything pass."""

from __future__ import annotations

from collections.abc import Sequence

from ssp_env.errors import ConfigError, ServiceError
from ssp_env.judge.base import JudgeTask, Verdict, VerifyTask
from ssp_env.types import World
from ssp_env.wording.answers import exact_match


class WorldJudge:
    """Accepts the ground truth, and any other right answer that the world knows.

    A question with several right answers is its proposer's fault, and the solver should not pay for
    it.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        """One verdict per task, in order; never a ``ServiceError``."""
        return [self._verdict(task) for task in tasks]

    def _verdict(self, task: JudgeTask) -> Verdict:
        if exact_match(task.prediction, task.truth.wordings):
            return Verdict(True, "the ground truth")

        # The question may have more right answers than the proposer had in mind.
        analysis = self._world.analyse(task.question)
        if analysis is None:
            return Verdict(
                False, "not the ground truth; the world does not understand the question"
            )

        if exact_match(task.prediction, analysis.answers):
            return Verdict(True, "not the ground truth, but right in this world")
        return Verdict(False, "no right answer in this world")


class WorldVerifier:
    """Verifies by parsing: the documents must support one answer only, the ground truth."""

    def __init__(self, world: World) -> None:
        """
        Args:
            world: one whose ``can_read`` is true.

        Raises:
            ConfigError: this world cannot read.
        """
        if not getattr(world, "can_read", False):
            raise ConfigError(
                "verifier",
                "world",
                f"the world {world.name!r} cannot read documents; choose policy, openai or none",
            )
        self._world = world

    def verify(self, tasks: Sequence[VerifyTask]) -> list[Verdict | ServiceError]:
        """One verdict per task, in order; never a ``ServiceError``."""
        return [self._verdict(task) for task in tasks]

    def _verdict(self, task: VerifyTask) -> Verdict:
        answers = self._world.read(task.question, task.documents)
        if answers is None:
            return Verdict(False, "the question cannot be read")

        if not answers:
            return Verdict(False, "the documents support no answer")

        if len(answers) > 1:
            return Verdict(
                False, f"the documents support {len(answers)} answers: {'; '.join(sorted(answers))}"
            )

        (answer,) = answers
        return Verdict(exact_match(answer, task.truth.wordings), f"the documents support: {answer}")


class NoVerifier:
    """Accepts every question: the paper's ablation without RAG verification."""

    def verify(self, tasks: Sequence[VerifyTask]) -> list[Verdict | ServiceError]:
        """One accepting verdict per task; never a ``ServiceError``."""
        return [Verdict(True, "there is no verifier") for _ in tasks]
