"""Mixins for what may fail: retriever, judge, verifier."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ssp_env.errors import ServiceError
from ssp_env.judge.base import Judge, JudgeTask, Verdict, Verifier, VerifyTask
from ssp_env.search.base import Retriever
from ssp_env.testing.material import (
    AWKWARD,
    PASSAGES,
    check_numbers,
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
        """The retriever to be tested."""
        missing("make_retriever(self)")

    def break_it(self, retriever: Retriever) -> None:
        """Makes the next searches fail: stops the server, closes the connection.

        Unless it is overridden, the test of outages is skipped.
        """
        skip("break_it(self, retriever) is not overridden, so no outage can be provoked")

    def test_every_query_finds_something(self) -> None:
        for query, ranking in zip(self._queries, self._search(self._queries, 3), strict=True):
            assert ranking, f"nothing was found for {query!r}; choose other queries, or see why"

    def test_one_ranking_a_query_in_order(self) -> None:
        queries = [self._queries[0], *self._queries]

        together = self._search(queries, 3)
        for query, ranking in zip(queries, together, strict=True):
            (alone,) = self._search([query], 3)
            assert ranking == alone, (
                f"rankings come in the order of the queries and do not depend on the batch, but "
                f"{query!r} found "
                f"{_ids(ranking)} in a batch of {len(queries)} and {_ids(alone)} alone: sort "
                f"results back into order"
            )

    def test_no_query_no_ranking(self) -> None:
        assert self._search([], 3) == [], "a batch of no queries gets an empty list"

    def test_at_most_k_documents(self) -> None:
        for k in (1, 2, 7):
            for query, ranking in zip(self._queries, self._search(self._queries, k), strict=True):
                assert len(ranking) <= k, (
                    f"at most k = {k} documents per query, but {query!r} got {len(ranking)}: cut it"
                )

    def test_documents_are_whole_and_different(self) -> None:
        for query, ranking in zip(self._queries, self._search(self._queries, 5), strict=True):
            for document in ranking:
                assert isinstance(document, Document), (
                    f"a ranking holds Documents, not {type(document).__name__}"
                )
                for field in ("id", "title", "text"):
                    value = getattr(document, field)
                    assert isinstance(value, str), (
                        f"Document.{field} is a string, not {value!r}: convert it"
                    )

            assert len(set(_ids(ranking))) == len(ranking), (
                f"{query!r} found a passage twice: {_ids(ranking)}; give every passage an id of "
                f"its own, once a ranking"
            )

    def test_best_first(self) -> None:
        for query, ranking in zip(self._queries, self._search(self._queries, 5), strict=True):
            scores = [document.score for document in ranking if document.score is not None]
            assert all(math.isfinite(score) for score in scores), (
                f"scores are finite numbers or None, not {scores}"
            )

            assert scores == sorted(scores, reverse=True), (
                f"best first: {query!r} got the scores {scores}; sort them"
            )

    def test_same_query_same_answer(self) -> None:
        retriever = self.make_retriever()
        same_twice("search", lambda: retriever.search(self._queries, 3))

    def test_awkward_queries(self) -> None:
        queries = [*self._queries, *AWKWARD, *self._queries]
        rankings = self._search(queries, 3)
        for query, ranking in zip(queries, rankings, strict=True):
            assert isinstance(ranking, list), (
                f"{shown(query)} got {ranking!r}: any string gets a list, maybe empty"
            )
            assert len(ranking) <= 3, f"{shown(query)} got {len(ranking)} documents, though k is 3"

        first, last = rankings[: len(self._queries)], rankings[len(queries) - len(self._queries) :]
        assert first == last, (
            "awkward queries changed what the queries behind them find: keep them apart"
        )

    def test_no_shared_state(self) -> None:
        retriever, queries = self.make_retriever(), self._queries
        first = retriever.search(queries, 3)
        assert queries == self._queries, (
            "search changed the caller's list of queries: copy it first"
        )

        # Changing what was handed out must not change what is handed out next.
        kept = [list(ranking) for ranking in first]
        for ranking in first:
            ranking.clear()

        assert retriever.search(queries, 3) == kept, (
            "a caller that changed its rankings changed the next ones: hand out new lists, not "
            "those of a cache"
        )

    def test_each_and_all_agree(self) -> None:
        """For a retriever that can also say which queries of a batch failed."""
        retriever = self.make_retriever()
        each = getattr(retriever, "search_each", None)
        if each is None:
            skip("this retriever has no search_each")

        found, one_by_one = retriever.search(self._queries, 3), each(self._queries, 3)
        assert found == one_by_one, f"search and search_each disagree: {found} and {one_by_one}"

    def test_a_failure_is_an_error(self) -> None:
        retriever = self.make_retriever()

        self.break_it(retriever)

        try:
            found = retriever.search([*self._queries, "never asked before"], 3)
        except ServiceError:
            return
        raise AssertionError(
            f"a retriever that cannot answer raises ServiceError('search', ...), but it returned "
            f"{found!r}: an empty "
            "list says that nothing matches, and would be trained on"
        )

    @property
    def _queries(self) -> list[str]:
        assert len(set(self.queries)) > 1, (
            "set queries to two or more different ones that find something"
        )
        return list(self.queries)

    def _search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        rankings = self.make_retriever().search(list(queries), k)

        check_numbers("search", rankings, len(queries))
        return rankings


def _ids(ranking: Sequence[Document]) -> list[str]:
    return [document.id for document in ranking]


class _VerdictTests:
    """What judges and verifiers have in common; subclasses say how to ask."""

    def _asker(self) -> tuple[Any, Callable[[Sequence[Any]], list[Verdict | ServiceError]], str]:
        """The tested object, its method, and what errors call it."""
        raise NotImplementedError

    def _tasks(self) -> list[tuple[Any, bool]]:
        """Tasks and the verdict that each has to get."""
        raise NotImplementedError

    def _awkward(self) -> list[Any]:
        raise NotImplementedError

    def _hint(self, task: Any, expected: bool) -> str:
        """What to say of a wrong verdict on a task."""
        return ""

    def break_it(self, tested: Any) -> None:
        """Makes the next calls fail: stops the server, closes the connection.

        Unless it is overridden, the test of outages is skipped.
        """
        skip("break_it is not overridden, so no outage can be provoked")

    def test_one_verdict_a_task_in_order(self) -> None:
        tasks = [self._tasks()[0], *self._tasks()]
        _, ask, what = self._asker()

        results = ask([task for task, _ in tasks])
        check_numbers(what, results, len(tasks))
        for (task, expected), result in zip(tasks, results, strict=True):
            assert isinstance(result, Verdict), (
                f"{what} gave {result!r} for {task!r} where a Verdict was expected"
            )
            assert result.correct is expected, (
                f"{what} called {task!r} {result.correct}, which should be "
                f"{expected}{self._hint(task, expected)}"
            )

    def test_no_task_no_verdict(self) -> None:
        _, ask, what = self._asker()
        assert ask([]) == [], f"{what} gets an empty list for no tasks"

    def test_same_task_same_verdict(self) -> None:
        _, ask, what = self._asker()
        same_twice(what, lambda: ask([task for task, _ in self._tasks()]))

    def test_awkward_tasks(self) -> None:
        _, ask, what = self._asker()
        (good, expected), *_ = self._tasks()
        tasks = [*self._awkward(), good]

        results = ask(tasks)
        check_numbers(what, results, len(tasks))
        for result in results:
            assert isinstance(result, Verdict | ServiceError), (
                f"{what} gave {result!r}: a Verdict or a ServiceError"
            )

        last = results[-1]
        assert isinstance(last, Verdict), (
            f"awkward tasks spoilt the one behind them, which got {last!r}"
        )
        assert last.correct is expected, (
            f"awkward tasks spoilt the one behind them, which got {last!r}"
        )

    def test_a_failure_is_an_error(self) -> None:
        tested, ask, what = self._asker()

        # A wrong answer may be rejected without a call, so only right ones are asked about.
        self.break_it(tested)
        try:
            results = ask(
                [task for task, right in self._tasks() if right]
            )  # a wrong one may need no asking
        except ServiceError:
            return

        wrong = [result for result in results if not isinstance(result, ServiceError)]
        assert not wrong, (
            f"{what} could not ask, and yet gave {wrong[0]!r}: put a ServiceError in the place "
            f"of each task that was "
            "hit, or raise one; a verdict would be trained on"
        )


class JudgeTests(_VerdictTests):
    """Tests a :class:`~ssp_env.judge.base.Judge`."""

    question = "Which city is the capital of Austria?"
    truth = GroundTruth("t", "Vienna", ("Wien",))
    """The judge has to accept every wording of it."""
    wrong: Sequence[str] = ("Prague", "no idea")
    """Answers that the judge has to reject; an empty one has to be rejected as well."""

    def make_judge(self) -> Judge:
        """The judge to be tested."""
        missing("make_judge(self)")

    def _asker(self) -> tuple[Any, Callable[[Sequence[Any]], list[Verdict | ServiceError]], str]:
        judge = self.make_judge()
        return judge, judge.judge, "judge"

    def _tasks(self) -> list[tuple[Any, bool]]:
        right = [
            (JudgeTask(self.question, wording, self.truth), True) for wording in self.truth.wordings
        ]

        return right + [
            (JudgeTask(self.question, text, self.truth), False) for text in (*self.wrong, "")
        ]

    def _awkward(self) -> list[Any]:
        return [
            JudgeTask(question, text, self.truth)
            for text in AWKWARD
            for question in (self.question, text)
        ]

    def _hint(self, task: Any, expected: bool) -> str:
        if expected and task.prediction in task.truth.aliases:
            return ": aliases count as much as the answer; compare with all of truth.wordings"
        return ""


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
        """The verifier to be tested."""
        missing("make_verifier(self)")

    def _asker(self) -> tuple[Any, Callable[[Sequence[Any]], list[Verdict | ServiceError]], str]:
        verifier = self.make_verifier()
        return verifier, verifier.verify, "verify"

    def _tasks(self) -> list[tuple[Any, bool]]:
        return [(self.supported, True)] + (
            [] if self.unsupported is None else [(self.unsupported, False)]
        )

    def _awkward(self) -> list[Any]:
        tasks = [replace(self.supported, question=text) for text in AWKWARD]
        tasks += [
            replace(self.supported, documents=(Document("x", text, text),)) for text in AWKWARD
        ]
        return [*tasks, replace(self.supported, documents=())]
