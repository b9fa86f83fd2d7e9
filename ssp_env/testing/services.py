"""Mixins for parts that may fail: retriever, judge, verifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import SkipTest

from ssp_env.errors import ServiceError
from ssp_env.game.referee import ask_each
from ssp_env.judge.base import Judge, JudgeTask, Verifier, VerifyTask
from ssp_env.search.base import Retriever, all_found, search_each
from ssp_env.testing.material import AWKWARD, PASSAGES, check_unique, missing, same_twice
from ssp_env.types import Document, GroundTruth


class _ServiceTests:
    # Methods of the subclasses: a new part; its results on tasks, or the errors that hit them;
    # tasks that have a result.
    _part: Any
    _ask: Any
    _answerable: Any

    def break_it(self, part: Any) -> None:
        """Makes the next calls fail: stops the server, closes the connection.

        Unless it is overridden, the test of outages is skipped."""
        raise SkipTest("break_it is not overridden, so no outage can be provoked")

    def test_a_failure_is_an_error(self) -> None:
        part = self._part()
        self.break_it(part)
        results = self._ask(part, self._answerable())
        wrong = [result for result in results if not isinstance(result, ServiceError)]
        fix = "which would be trained on: raise a ServiceError"
        assert not wrong, f"an outage gave {wrong[0]!r:.100}, {fix}"


class RetrieverTests(_ServiceTests):
    """Tests a :class:`~ssp_env.search.base.Retriever`."""

    queries: Sequence[str] = ()
    """Two or more different queries that find something."""

    def make_retriever(self) -> Retriever:
        missing("make_retriever(self)")

    def test_one_ranking_per_query_in_order(self) -> None:
        # The first one twice: equal queries get equal answers.
        queries = [self._answerable()[0], *self._answerable()]
        for query, ranking in zip(queries, self._search(queries), strict=True):
            assert ranking, f"nothing was found for {query!r}; choose other queries, or see why"
            assert [ranking] == self._search([query]), (
                f"{query!r} finds other documents alone than in a batch: sort results back into "
                f"order"
            )
        assert self._search([]) == [], "a batch of no queries gets an empty list"

    def test_documents(self) -> None:
        """At most k, different, best first."""
        queries = self._answerable()
        for k in (1, 2, 7):
            for query, ranking in zip(queries, self._search(queries, k), strict=True):
                check_unique("passage", [document.id for document in ranking])
                scores = [document.score for document in ranking if document.score is not None]
                assert scores == sorted(scores, reverse=True), (
                    f"best first: {query!r} got the scores {scores}; sort them"
                )

    def test_awkward_queries(self) -> None:
        queries, size = self._answerable(), len(self._answerable())
        rankings = self._search([*queries, *AWKWARD, *queries])
        assert rankings[:size] == rankings[-size:], (
            "awkward queries changed what the queries behind them find: keep them apart"
        )

    def test_no_shared_state(self) -> None:
        retriever, queries = self.make_retriever(), self._answerable()
        first = retriever.search(queries, 3)
        same_twice("search", lambda: retriever.search(queries, 3))
        assert queries == self._answerable(), "search changed the caller's queries: copy them first"

        kept = [list(ranking) for ranking in first]
        for ranking in first:
            ranking.clear()
        assert retriever.search(queries, 3) == kept, (
            "a caller that changed its rankings changed the next ones: hand out new lists"
        )

    def _part(self) -> Retriever:
        return self.make_retriever()

    def _ask(self, retriever: Retriever, queries: Sequence[str]) -> Sequence[Any]:
        return search_each(retriever, queries, 3)

    def _answerable(self) -> list[str]:
        assert len(set(self.queries)) > 1, "set queries to two or more that find something"
        return list(self.queries)

    def _search(self, queries: Sequence[str], k: int = 3) -> list[list[Document]]:
        return all_found(search_each(self.make_retriever(), list(queries), k))


class _VerdictTests(_ServiceTests):
    # Methods of the subclasses: tasks with their right verdicts, a right one first; awkward ones.
    _tasks: Any
    _awkward: Any

    def test_one_verdict_per_task_in_order(self) -> None:
        tasks = [self._tasks()[0], *self._tasks()]
        results = self._ask(self._part(), [task for task, _ in tasks])
        for (task, expected), result in zip(tasks, results, strict=True):
            verdict = getattr(result, "correct", result)
            assert verdict is expected, f"{task!r} got {verdict!r}, which should be {expected}"

    def test_same_task_same_verdict(self) -> None:
        part, tasks = self._part(), [task for task, _ in self._tasks()]
        same_twice("the verdict", lambda: self._ask(part, tasks))

    def test_awkward_tasks(self) -> None:
        last = self._ask(self._part(), [*self._awkward(), *self._answerable()])[-1]
        assert getattr(last, "correct", False), f"awkward tasks spoilt the one behind them: {last}"

    def _answerable(self) -> list[Any]:
        # A wrong answer may be rejected without a call, so only right ones are asked about.
        return [task for task, right in self._tasks() if right]


class JudgeTests(_VerdictTests):
    """Tests a :class:`~ssp_env.judge.base.Judge`."""

    question = "Which city is the capital of Austria?"
    truth = GroundTruth("t", "Vienna", ("Wien",))
    """The judge has to accept every wording of it."""
    wrong: Sequence[str] = ("Prague", "no idea")
    """Answers that the judge has to reject; an empty one has to be rejected as well."""

    def make_judge(self) -> Judge:
        missing("make_judge(self)")

    def _part(self) -> Judge:
        return self.make_judge()

    def _ask(self, judge: Judge, tasks: Sequence[Any]) -> Sequence[Any]:
        return ask_each("judge", judge.judge, tasks)

    def _tasks(self) -> list[tuple[Any, bool]]:
        answers = [(wording, True) for wording in self.truth.wordings]
        answers += [(text, False) for text in (*self.wrong, "")]
        return [(JudgeTask(self.question, text, self.truth), right) for text, right in answers]

    def _awkward(self) -> list[Any]:
        return [JudgeTask(self.question, text, self.truth) for text in AWKWARD]


class VerifierTests(_VerdictTests):
    """Tests a :class:`~ssp_env.judge.base.Verifier`."""

    supported = VerifyTask(
        "Which city is the capital of Austria?", GroundTruth("t", "Vienna"), PASSAGES
    )
    """A question that its documents answer with the ground truth."""
    unsupported: VerifyTask | None = VerifyTask(
        "Which city is the capital of Peru?", GroundTruth("t", "Lima"), PASSAGES
    )
    """One that they do not; ``None`` for a verifier that lets everything pass."""

    def make_verifier(self) -> Verifier:
        missing("make_verifier(self)")

    def _part(self) -> Verifier:
        return self.make_verifier()

    def _ask(self, verifier: Verifier, tasks: Sequence[Any]) -> Sequence[Any]:
        return ask_each("verifier", verifier.verify, tasks)

    def _tasks(self) -> list[tuple[Any, bool]]:
        without = [] if self.unsupported is None else [(self.unsupported, False)]
        return [(self.supported, True), *without]

    def _awkward(self) -> list[Any]:
        questions = [replace(self.supported, question=text) for text in AWKWARD]
        pages = [(Document("x", text, text),) for text in AWKWARD]
        return questions + [replace(self.supported, documents=page) for page in [*pages, ()]]
