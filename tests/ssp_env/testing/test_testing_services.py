"""The test mixins of retrievers, judges and verifiers: what ships passes them, a broken part does
not."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from broken import fails_as

from ssp_env.errors import ServiceError
from ssp_env.judge.base import Judge, Verdict, Verifier, VerifyTask
from ssp_env.judge.exact import ExactMatchJudge, F1Judge
from ssp_env.judge.openai import ChatClient, ChatConfig, OpenAIJudge, OpenAIVerifier
from ssp_env.judge.world import NoVerifier, WorldJudge, WorldVerifier
from ssp_env.search.base import Retriever
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.corpus import Corpus
from ssp_env.testing import JudgeTests, RetrieverTests, VerifierTests
from ssp_env.testing.material import PASSAGES
from ssp_env.types import Document, GroundTruth
from ssp_env.worlds.mini import MiniWorld, SmallWorld

# -- retrievers --------------------------------------------------------------------------------


class TestBM25(RetrieverTests):
    queries = ("capital of Austria", "Danube", "city in Italy")

    def make_retriever(self) -> Retriever:
        return BM25Retriever(Corpus(PASSAGES))


class TestBM25WithoutCache(TestBM25):
    def make_retriever(self) -> Retriever:
        return BM25Retriever(Corpus(PASSAGES), cache_size=0)


class Breakable(BM25Retriever):
    """A retriever that can be switched off; off, it does what ``failing`` says."""

    down = False

    def __init__(self, failing: str = "raise") -> None:
        super().__init__(Corpus(PASSAGES))
        self.failing = failing

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        if self.down and self.failing == "raise":
            raise ServiceError("search", "switched off")
        return [[] for _ in queries] if self.down else super().search(queries, k)


class TestAnOutage(TestBM25):
    def make_retriever(self) -> Breakable:
        return Breakable()

    def break_it(self, retriever: Any) -> None:
        retriever.down = True


class HidesOutages(TestAnOutage):
    def make_retriever(self) -> Breakable:
        return Breakable("be silent")


class Twisted(BM25Retriever):
    """BM25, and then something done to what it found."""

    def __init__(self, twist: str) -> None:
        super().__init__(Corpus(PASSAGES))
        self.twist, self.calls = twist, itertools.count()

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        found = super().search(queries, k)
        match self.twist:
            case "unordered":
                return found[::-1]
            case "too many":
                return super().search(queries, k + 1)
            case "random" if next(self.calls) % 2:
                return [ranking[1:] for ranking in found]
        return found


@pytest.mark.parametrize(
    ("twist", "test", "message"),
    [
        ("unordered", "one_ranking_a_query_in_order", "sort results back into order"),
        ("too many", "at_most_k_documents", "at most k = 1 documents"),
        ("random", "same_query_same_answer", "same question has to get the same answer"),
    ],
)
def test_broken_retrievers(twist: str, test: str, message: str) -> None:
    class Broken(TestBM25):
        def make_retriever(self) -> Retriever:
            return Twisted(twist)

    fails_as(Broken(), test, message)


def test_a_retriever_that_hides_outages() -> None:
    fails_as(
        HidesOutages(),
        "a_failure_is_an_error",
        "says that nothing matches, and would be trained on",
    )


class TestEach(TestBM25):
    """A retriever that can say which queries failed."""

    def make_retriever(self) -> Retriever:
        retriever = BM25Retriever(Corpus(PASSAGES))
        retriever.search_each = retriever.search  # type: ignore[attr-defined]
        return retriever


def test_what_has_to_be_overridden() -> None:
    with pytest.raises(
        NotImplementedError, match=r"override make_retriever\(self\) in your subclass"
    ):
        RetrieverTests().test_no_shared_state()


# -- judges ------------------------------------------------------------------------------------


class TestExactMatch(JudgeTests):
    def make_judge(self) -> Judge:
        return ExactMatchJudge()


class TestF1(JudgeTests):
    def make_judge(self) -> Judge:
        return F1Judge()


class TestWorldJudge(JudgeTests):
    def make_judge(self) -> Judge:
        return WorldJudge(MiniWorld(entities=16))


class Model(ThreadingHTTPServer):
    """Stands in for a language model: finds what it is asked about in the prompt."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Reply)


class _Reply(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt, *more = [message["content"] for message in body["messages"]]
        said = prompt.rpartition("- Wien")[2]
        if more:
            # A verifier: the question, then a search, then the documents as its results.
            known = "capital of Austria" in more[-1] and "capital of Austria?" in prompt
            reply = f"<answer>{'Vienna' if known else ''}</answer>"
        else:
            reply = f"verdict: {'correct' if 'Vienna' in said or 'Wien' in said else 'incorrect'}"
        choice = {"message": {"role": "assistant", "content": reply}}
        answer = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


class _WithModel:
    @pytest.fixture(autouse=True)
    def _model(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        self.server: Any = Model()
        thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        thread.start()
        url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        with ChatClient(ChatConfig(url, "m", timeout=20.0, attempts=1)) as self.client:
            yield
        self.stop()

    def stop(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
        self.server = None

    def break_it(self, tested: Any) -> None:
        self.stop()


class TestOpenAIJudge(_WithModel, JudgeTests):
    def make_judge(self) -> Judge:
        return OpenAIJudge(self.client)


class TestOpenAIVerifier(_WithModel, VerifierTests):
    def make_verifier(self) -> Verifier:
        return OpenAIVerifier(self.client, ExactMatchJudge())


@pytest.mark.parametrize(
    ("judge", "test", "message"),
    [
        (
            lambda tasks: [Verdict(task.prediction == task.truth.answer) for task in tasks],
            "one_verdict_a_task_in_order",
            "'Wien'.* False, which should be True: aliases count",
        ),
        (ExactMatchJudge().judge, "a_failure_is_an_error", "a verdict would be trained on"),
    ],
)
def test_broken_judges(judge: Any, test: str, message: str) -> None:
    class Broken(JudgeTests):
        def make_judge(self) -> Any:
            return SimpleNamespace(judge=judge)

        def break_it(self, tested: Any) -> None: ...

    fails_as(Broken(), test, message)


# -- verifiers ---------------------------------------------------------------------------------


def mini_tasks() -> tuple[VerifyTask, VerifyTask]:
    """A question of the small world with all its pages, and with those that do not mention its
    subject."""
    world = SmallWorld()
    question = world.questions(0, 1)[0]
    subject = question.text.removesuffix("?").split()[-1]
    pages = tuple(world.corpus)
    silent = tuple(page for page in pages if subject not in f"{page.title} {page.text}")
    truth = GroundTruth("t", question.answers[0])
    return VerifyTask(question.text, truth, pages), VerifyTask(question.text, truth, silent)


class TestWorldVerifier(VerifierTests):
    supported, unsupported = mini_tasks()

    def make_verifier(self) -> Verifier:
        return WorldVerifier(SmallWorld())


class TestNoVerifier(VerifierTests):
    unsupported = None

    def make_verifier(self) -> Verifier:
        return NoVerifier()


class Credulous(VerifierTests):
    """Says that its verifier tells questions apart; it does not."""

    def make_verifier(self) -> Verifier:
        return NoVerifier()


def test_a_verifier_that_accepts_everything_is_noticed() -> None:
    fails_as(Credulous(), "one_verdict_a_task_in_order", "Peru.* True, which should be False")
