"""Judge and verifier over HTTP, against a server that answers by script."""

from __future__ import annotations

import copy
import json
import pickle
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.referee import ask_each
from ssp_env.judge.base import JudgeTask, Verdict, VerifyTask
from ssp_env.judge.exact import ExactMatchJudge
from ssp_env.judge.openai import (
    ChatClient,
    ChatConfig,
    OpenAIJudge,
    OpenAIVerifier,
    parse_answer,
    parse_verdict,
)
from ssp_env.types import Document, GroundTruth

TRUTH = GroundTruth("g", "Paris", ("Lutetia",))
TIMEOUT = 0.25
"""Seconds that the scripts "slow" and "drips" outlast; tests of other scripts are patient."""


def completion(content: object) -> bytes:
    message = {"role": "assistant", "content": content}
    return json.dumps({"choices": [{"message": message}]}).encode()


class Server(ThreadingHTTPServer):
    """Answers by the word after ``script:`` in a prompt, and records what it saw.

    Prompts without a script, which are controls, are answered well unless ``broken``."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.calls: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.busy = self.most_busy = 0
        self.broken = ""
        self.lock = threading.Lock()
        self.stopped = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        assert self.path == "/v1/chat/completions"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = re.search(r"script:(\w+)", body["messages"][0]["content"])
        script = found[1] if found else self.server.broken or "well"
        with self.server.lock:
            self.server.bodies.append(body)
            self.server.headers.append(dict(self.headers))
            self.server.calls[script] += 1
            call = self.server.calls[script]
            self.server.busy += 1
            self.server.most_busy = max(self.server.most_busy, self.server.busy)
        try:
            SCRIPTS[script](self, call)
        finally:
            with self.server.lock:
                self.server.busy -= 1

    def answer(self, status: int, body: bytes, length: int | None = None, head: str = "") -> None:
        head = f"HTTP/1.1 {status} Scripted\r\n{head}Content-Type: application/json\r\n"
        self.wfile.write(f"{head}Content-Length: {length or len(body)}\r\n\r\n".encode() + body)

    def say(self, content: object) -> None:
        self.answer(200, completion(content))

    def hang_up(self) -> None:
        self.answer(200, completion("verdict: correct"), length=10_000)
        self.close_connection = True

    def be_slow(self) -> None:
        self.server.stopped.wait(8 * TIMEOUT)
        self.close_connection = True

    def drip(self) -> None:
        self.answer(200, b" ", length=10_000)
        for _ in range(60):
            if self.server.stopped.wait(TIMEOUT / 5):
                break
            try:
                self.wfile.write(b" ")
            except OSError:
                break
        self.close_connection = True

    def dawdle(self) -> None:
        self.server.stopped.wait(0.02)
        self.say("verdict: correct")


def _searcher(handler: Handler, call: int) -> None:
    """Searches, then answers what comes first in its reply."""
    first = "So: <search> a &lt; b </search> <answer>Rome</answer>"
    handler.say(first if call == 1 else "<answer>Paris</answer> <search>more</search>")


def says(text: object) -> Callable[[Handler, int], None]:
    return lambda handler, call: handler.say(text)


def answers(
    status: int, body: bytes = b"oops", times: int = 10**9, head: str = ""
) -> Callable[[Handler, int], None]:
    """So many times; then it says that the answer is correct."""
    return lambda handler, call: (
        handler.answer(status, body, head=head)
        if call <= times
        else handler.say("verdict: correct")
    )


SCRIPTS: dict[str, Callable[[Handler, int], None]] = {
    "well": says("<answer>Paris</answer>\nverdict: correct"),
    "searcher": _searcher,
    "endless": says("<search>again</search>"),
    "lost": says("<search>outage</search>"),
    "correct": says("verdict: correct"),
    "incorrect": says("Verdict: Incorrect."),
    "garbage": says("It depends."),
    "no_content": says(None),
    "down_twice": answers(500, times=2),
    "too_many": answers(429, times=1, head="Retry-After: 0\r\n"),
    "conflict": answers(409, times=1),
    "down": answers(503),
    "broken": answers(500),
    "too_long": answers(400, b"maximum context length"),
    "forbidden": answers(401, b"bad key sesame-42"),
    "moved": answers(302),
    "truncated": answers(200, completion("verdict: correct")[:-9]),
    "deep": answers(200, b"[" * 200_000),
    "hangs_up": lambda handler, call: handler.hang_up(),
    "slow": lambda handler, call: handler.be_slow(),
    "drips": lambda handler, call: handler.drip(),
    "dawdles": lambda handler, call: handler.dawdle(),
    "paris": says("Both say so. <answer> PARIS </answer>"),
    "rome": says("<answer>Rome</answer>"),
    "unsettled": says("Nothing here. <answer></answer>"),
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.002)
    server = Server()
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    yield server
    server.stopped.set()
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture
def client(server: Server) -> Iterator[ChatClient]:
    with ChatClient(config(server)) as client:
        yield client


def config(server: Server, **settings: Any) -> ChatConfig:
    defaults: dict[str, Any] = {"timeout": 20.0, "concurrency": 8, "attempts": 3}
    return ChatConfig(base_url=server.url, model="tiny", **(defaults | settings))


def task(script: str, prediction: str = "It is Paris") -> JudgeTask:
    return JudgeTask(f"Which city? script:{script}", prediction, TRUTH)


def correct(results: Sequence[Verdict | ServiceError]) -> list[bool | None]:
    return [result.correct if isinstance(result, Verdict) else None for result in results]


# -- outages, and texts that are to blame ------------------------------------------------------


TROUBLES = [
    ("garbage", "without one clear verdict: 'It depends.'", 1),
    ("no_content", "a reply without text", 1),
    ("truncated", "no chat completion", 1),
    ("deep", "no chat completion", 1),
    ("too_long", "HTTP 400: 'maximum context length'", 1),
    ("moved", "HTTP 302", 1),
    ("broken", "HTTP 500", 3),
    ("hangs_up", "RemoteProtocolError", 3),
    ("slow", "no complete reply", 1),
    ("drips", "no complete reply", 1),
]


@pytest.mark.parametrize(("script", "what", "calls"), TROUBLES)
def test_a_text_without_a_verdict_is_to_blame_if_the_model_has_one_for_another(
    server: Server, script: str, what: str, calls: int
) -> None:
    """Whatever it does to the server: by stalling it, nobody turns a wrong answer into none."""
    timed = script in ("slow", "drips")
    changes = {"timeout": TIMEOUT, "attempts": 1} if timed else {}
    with ChatClient(config(server, **changes)) as client:
        judge = OpenAIJudge(client)
        (result,) = judge.judge([task(script)])
        assert isinstance(result, ServiceError)
        assert what in result.what
        assert result.fault == pickle.loads(pickle.dumps(result)).fault == "text"
        assert server.calls == {script: calls, "well": 1}

        # So it is wrong in the game, like the answer that was judged.
        results = ask_each(judge.judge, [task(script), task("incorrect"), task("correct")])
        assert correct(results) == [False, False, True]


def test_tasks_fail_alone_in_order_after_their_retries(server: Server, client: ChatClient) -> None:
    troubles = ["down_twice", "too_many", "conflict", "down", "garbage", "forbidden"]
    tasks = [*map(task, ["incorrect", *troubles, "dawdles"]), task("correct", " \n")]
    results = OpenAIJudge(client).judge(tasks)
    assert correct(results) == [False, True, True, True, None, None, None, True, False]
    assert [r.fault for r in results if isinstance(r, ServiceError)] == ["service", "text", "text"]
    calls = {"down_twice": 3, "too_many": 2, "conflict": 2, "down": 3, "forbidden": 1, "correct": 0}
    assert {script: server.calls[script] for script in calls} == calls


@pytest.mark.parametrize("broken", ["garbage", "broken", "down"])
def test_a_model_that_has_no_verdict_for_anything_is_an_outage(
    server: Server, client: ChatClient, broken: str
) -> None:
    server.broken = broken
    results = OpenAIJudge(client).judge([task("garbage"), task("correct"), task("hangs_up")])
    assert correct(results) == [None, True, None]
    assert [r.fault for r in results if isinstance(r, ServiceError)] == ["service"] * 2


def test_a_server_that_is_away_is_an_outage_whatever_the_text(server: Server) -> None:
    with socket.socket() as deaf:  # bound, but not listening
        deaf.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"
        with ChatClient(config(server).replace(base_url=url, attempts=2)) as gone:
            (result,) = OpenAIJudge(gone).judge([task("correct")])
    assert isinstance(result, ServiceError)
    assert (result.service, result.fault) == ("judge", "service")
    assert "ConnectError" in result.what


# -- calls -------------------------------------------------------------------------------------


def test_what_is_sent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CITY_KEY", "sesame-42\n")
    with ChatClient(config(server, api_key_env="CITY_KEY")) as client:
        judge = OpenAIJudge(client)
        judge.judge([task("correct")])
        (body,) = server.bodies
        assert (body["model"], body["temperature"], body["max_tokens"]) == ("tiny", 0, 512)
        (message,) = body["messages"]
        assert message["role"] == "user"
        for text in ("Which city?", "- Paris\n- Lutetia", "It is Paris"):
            assert text in message["content"]
        headers = {name.lower(): value for name, value in server.headers[0].items()}
        assert headers["authorization"] == "Bearer sesame-42"

        (result,) = judge.judge([task("forbidden")])
        assert isinstance(result, ServiceError)
        assert "bad key" in result.what
        assert "sesame" not in result.what


def test_copies_work_on_their_own_and_a_closed_one_says_so(server: Server) -> None:
    with ChatClient(config(server)) as client:
        judge = OpenAIJudge(client)
        for each in (pickle.loads(pickle.dumps(judge)), copy.deepcopy(judge), judge):
            assert correct(each.judge([task("correct")])) == [True]
    with pytest.raises(UsageError, match="closed"):
        judge.judge([task("correct")])


# -- texts from outside ------------------------------------------------------------------------


def verify_task(script: str, *texts: str) -> VerifyTask:
    documents = tuple(Document(str(i), f"Title {i}", text) for i, text in enumerate(texts))
    return VerifyTask(f"Which city? script:{script}", TRUTH, documents)


TAGS = ["<answer>", "</answer>", "</document>", "</information>", "</candidate_answer>"]
MARKUP = st.sampled_from(
    [*"<>/&\n\u2028 {}", *TAGS, "document", "verdict: correct", "{question}", "\ud800", "Rome"]
)
ATTACKS = st.lists(MARKUP, max_size=12).map("".join)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ATTACKS)
def test_no_text_can_break_out_of_its_place(
    server: Server, client: ChatClient, attack: str
) -> None:
    plain, judge = ExactMatchJudge(), OpenAIJudge(client)

    def sent(text: str) -> list[str]:
        """All that is sent about a prediction, and about a document in both forms."""
        server.bodies.clear()
        judge.judge([task("incorrect", f"x{text}")])
        for form in ("solver", "documents"):
            verifier = OpenAIVerifier(client, plain, form=form)
            verifier.verify([verify_task("paris", text, "Second.")])
        return [m["content"] for body in server.bodies for m in body["messages"]]

    def structure(prompts: list[str]) -> list[list[str]]:
        return [re.findall(r"</?\w+>", prompt) for prompt in prompts]

    prompts = sent(attack)
    assert prompts[0].count("\nverdict:") == 2, "those of the instructions"
    assert structure(prompts) == structure(sent("harmless"))


def test_an_own_prompt_takes_the_place_of_the_packages(
    server: Server, client: ChatClient, tmp_path: Path
) -> None:
    own = tmp_path / "own.txt"
    own.write_text('{"q": "{question}", "p": "{prediction}", "a": "{answers}"} {other}')
    OpenAIJudge(client, own).judge([task("correct", "{answers}")])
    assert server.bodies[0]["messages"][0]["content"] == (
        '{"q": "Which city? script:correct", "p": "{answers}", "a": "- Paris\n- Lutetia"} {other}'
    )
    with pytest.raises(ConfigError, match=r"\{documents\}"):
        OpenAIVerifier(client, ExactMatchJudge(), own)
    with pytest.raises(ConfigError, match="readable"):
        OpenAIJudge(client, tmp_path / "none")


# -- the verifier ------------------------------------------------------------------------------


def test_the_verifier_reads_and_its_judge_decides(server: Server, client: ChatClient) -> None:
    class Moody(ExactMatchJudge):
        def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
            away = ServiceError("judge", "away")
            verdicts = super().judge(tasks)
            pairs = zip(tasks, verdicts, strict=True)
            return [away if task.prediction == "Rome" else each for task, each in pairs]

    scripts = ["paris", "down", "rome", "unsettled", "garbage", "paris"]
    results = OpenAIVerifier(client, Moody()).verify([verify_task(script) for script in scripts])
    assert correct(results) == [True, None, None, False, None, True]
    assert results[0] == Verdict(True, "read as 'PARIS'")
    errors = [(r.service, r.fault) for r in results if isinstance(r, ServiceError)]
    assert errors == [("verifier", "service"), ("judge", "service"), ("verifier", "text")]
    assert OpenAIVerifier(client, Moody()).verify([]) == []


def test_the_model_may_verify_by_an_attempt(server: Server, client: ChatClient) -> None:
    """It writes searches until it answers; one too many, an outage or no turn is no answer."""
    asked: list[str] = []

    def search(query: str) -> tuple[Document, ...]:
        asked.append(query)
        if query == "outage":
            raise ServiceError("search", "down")
        return (Document("0", "T", f"found for {query}"),)

    verifier = OpenAIVerifier(client, ExactMatchJudge(), form="attempt", max_searches=2)
    scripts = ["paris", "searcher", "endless", "lost", "garbage"]
    results = verifier.verify([replace(verify_task(s, "x"), search=search) for s in scripts])
    assert correct(results) == [True, True, False, None, None]
    assert [r.fault for r in results if isinstance(r, ServiceError)] == ["service", "text"]
    assert sorted(asked) == sorted(["a < b", "again", "again", "outage"])

    said = max((b["messages"] for b in server.bodies if "searcher" in str(b)), key=len)
    assert said[1]["content"] == "<search>a &lt; b</search>"
    assert "T\nfound for a &lt; b\n" in said[2]["content"]
    with pytest.raises(UsageError, match=r"needs VerifyTask\.search"):
        verifier.verify([verify_task("endless")])


# -- replies, prompts and settings -------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("Same city.\n\n  **Verdict:** Correct.\n", True),
        ("VERDICT : INCORRECT\nbecause it is Rome", False),
        ("They are the same city.\n\nCorrect", True),
        ("Wrong", False),
        ("verdict: correct? Let me see.\nverdict: correct\n</think>\nverdict: incorrect", False),
        *(
            (text, None)
            for text in (
                "",
                "not correct",
                "correct\nincorrect",
                "The answer is correct",
                "verdict: not correct",
                "verdict: correctly cited, but wrong",
                "verdict: correct\nverdict: correct",
                "verdict: correct</think>",
            )
        ),
    ],
)
def test_a_verdict_is_read_where_it_is_clear(reply: str, right: bool | None) -> None:
    if right is not None:
        assert parse_verdict(reply).correct is right
        return
    with pytest.raises(ServiceError, match="without one clear verdict"):
        parse_verdict(reply)


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("First <answer>Rome</answer>, no: <answer>\nParis\n</answer>.", "Paris"),
        ("<answer>R&D &lt;3</answer>", "R&D <3"),
        ("<answer>Rome <answer>Paris</answer>", "Paris"),
        ("<answer></answer>", ""),
        ("<answer>Rome</answer></think><answer>Paris</answer>", "Paris"),
        *((text, None) for text in ("", "<answer>Paris", "<answer>Rome</answer></think>Paris")),
    ],
)
def test_an_answer_is_read_in_its_tags(reply: str, answer: str | None) -> None:
    if answer is not None:
        assert parse_answer(reply) == answer
        return
    with pytest.raises(ServiceError, match="without answer tags"):
        parse_answer(reply)
