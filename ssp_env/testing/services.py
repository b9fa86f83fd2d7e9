"""Mixins for parts that may fail: retriever, judge, verifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ssp_env.errors import ServiceError
from ssp_env.judge.base import Judge, JudgeTask, Verdict, Verifier, VerifyTask
from ssp_env.search.base import Retriever
from ssp_env.testing.material import (
    AWKWARD,
    PASSAGES,
    check_count,
    check_unique,
    missing,
    same_twice,
    shown,
    skip,
)
from ssp_env.types import Document, GroundTruth


class RetrieverTests:
    """Tests a :class:`~ssp_env.search.base.Retriever`."""

    queries: Sequence[str] = ()
    """Two or more different queries that find something."""

    def make_retriever(self) -> Retriever:
        missing("make_retriever(self)")

    def break_it(self, retriever: Retriever) -> None:
        """Makes the next searches fail: stops the server, closes the connection.

        Unless it is overridden, the test of outages is skipped.
        """
        skip("break_it is not overridden, so no outage can be provoked")

    def test_one_ranking_per_query_in_order(self) -> None:
        queries = [self._queries[0], *self._queries]
        for query, ranking in zip(queries, self._search(queries, 3), strict=True):
            assert ranking, f"nothing was found for {query!r}; choose other queries, or see why"
            assert [ranking] == self._search([query], 3), (
                f"{query!r} finds other documents alone than in a batch: sort results back into "
                f"order"
            )
        assert self._search([], 3) == [], "a batch of no queries gets an empty list"

    def test_documents(self) -> None:
        """At most k, whole, different, best first."""
        for k in (1, 2, 7):
            for query, ranking in zip(self._queries, self._search(self._queries, k), strict=True):
                assert len(ranking) <= k, f"{query!r} got {len(ranking)} documents for k = {k}"
                for document in ranking:
                    assert isinstance(document, Document), f"{shown(document)} is no Document"
                check_unique("passage", [document.id for document in ranking])
                scores = [document.score for document in ranking if document.score is not None]
                assert scores == sorted(scores, reverse=True), (
                    f"best first: {query!r} got the scores {scores}; sort them"
                )

    def test_awkward_queries(self) -> None:
        queries, size = self._queries, len(self._queries)
        rankings = self._search([*queries, *AWKWARD, *queries], 3)
        assert rankings[:size] == rankings[-size:], (
            "awkward queries changed what the queries behind them find: keep them apart"
        )

    def test_no_shared_state(self) -> None:
        retriever, queries = self.make_retriever(), self._queries
        first = retriever.search(queries, 3)
        same_twice("search", lambda: retriever.search(queries, 3))
        assert queries == self._queries, "search changed the caller's queries: copy them first"

        kept = [list(ranking) for ranking in first]
        for ranking in first:
            ranking.clear()
        assert retriever.search(queries, 3) == kept, (
            "a caller that changed its rankings changed the next ones: hand out new lists"
        )

    def test_a_failure_is_an_error(self) -> None:
        retriever = self.make_retriever()
        self.break_it(retriever)
        try:
            found = retriever.search(self._queries, 3)
        except ServiceError:
            return
        raise AssertionError(
            f"an outage gave {shown(found)}, which would be trained on: raise ServiceError"
        )

    @property
    def _queries(self) -> list[str]:
        assert len(set(self.queries)) > 1, "set queries to two or more that find something"
        return list(self.queries)

    def _search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        rankings = self.make_retriever().search(list(queries), k)
        check_count("search", rankings, len(queries))
        return rankings


class _VerdictTests:
    """Tests that judges and verifiers share."""

    # Methods of the subclasses: a new part; verdicts on tasks, by a part or a new one; tasks, each
    # with its right verdict, a right one first; and awkward ones.
    _part: Any
    _ask: Any
    _tasks: Any
    _awkward: Any

    def break_it(self, part: Any) -> None:
        """Makes the next calls fail: stops the server, closes the connection.

        Unless it is overridden, the test of outages is skipped.
        """
        skip("break_it is not overridden, so no outage can be provoked")

    def test_one_verdict_per_task_in_order(self) -> None:
        tasks = [self._tasks()[0], *self._tasks()]
        results = self._ask([task for task, _ in tasks])
        check_count("the result", results, len(tasks))
        for (task, expected), result in zip(tasks, results, strict=True):
            assert isinstance(result, Verdict), f"{task!r} got {result!r}, which is no Verdict"
            assert result.correct is expected, (
                f"{task!r} was called {result.correct}, which should be {expected}"
            )
        assert not self._ask([]), "no tasks get an empty list"

    def test_same_task_same_verdict(self) -> None:
        part, tasks = self._part(), [task for task, _ in self._tasks()]
        same_twice("the verdict", lambda: self._ask(tasks, part))

    def test_awkward_tasks(self) -> None:
        tasks = [*self._awkward(), self._tasks()[0][0]]
        results = self._ask(tasks)
        check_count("the result", results, len(tasks))
        last = results[-1]
        right = isinstance(last, Verdict) and last.correct
        assert right, f"awkward tasks spoilt the one behind them: {last!r}"

    def test_a_failure_is_an_error(self) -> None:
        part = self._part()
        self.break_it(part)
        try:
            # A wrong answer may be rejected without a call, so only right ones are asked about.
            results = self._ask([task for task, right in self._tasks() if right], part)
        except ServiceError:
            return
        wrong = [result for result in results if not isinstance(result, ServiceError)]
        assert not wrong, (
            f"an outage gave {wrong[0]!r}, which would be trained on: put a ServiceError there"
        )


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

    def _ask(self, tasks: Sequence[Any], part: Any = None) -> Sequence[Verdict | ServiceError]:
        judge: Judge = part or self.make_judge()
        return judge.judge(tasks)

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

    def _ask(self, tasks: Sequence[Any], part: Any = None) -> Sequence[Verdict | ServiceError]:
        verifier: Verifier = part or self.make_verifier()
        return verifier.verify(tasks)

    def _tasks(self) -> list[tuple[Any, bool]]:
        without = [] if self.unsupported is None else [(self.unsupported, False)]
        return [(self.supported, True), *without]

    def _awkward(self) -> list[Any]:
        questions = [replace(self.supported, question=text) for text in AWKWARD]
        pages = [(Document("x", text, text),) for text in AWKWARD]
        return questions + [replace(self.supported, documents=page) for page in [*pages, ()]]
