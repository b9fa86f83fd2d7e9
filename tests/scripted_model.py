"""Servers that answer by script, and a scripted model behind an OpenAI-compatible API, for probes
of settings that need one: it says what a *careful* or an *obedient* reader lets through."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from ssp_env.judge.base import JudgeTask, Verdict
from ssp_env.judge.lenient import LenientJudge
from ssp_env.players.scripted import GAP
from ssp_env.probe.proposers import CONDITIONAL, IfAnotherPageIsFound
from ssp_env.types import GroundTruth
from ssp_env.wording.normal import normalise

_CLOZE = re.compile(r'"(.*' + re.escape(GAP) + r'.*)"')
_CANDIDATE = re.compile(r"<(candidate|model)_answer>(.*?)</\1_answer>", re.DOTALL)
_REFERENCES = re.compile(r"<reference_answers>(.*?)</reference_answers>", re.DOTALL)
_QUESTION = re.compile(r"<question>(.*?)</question>", re.DOTALL)
_SEARCH = re.compile(r"^<search>(.*)</search>$", re.MULTILINE)
_TITLE = re.compile(r"^<document>\n(.*)$", re.MULTILINE)
_FOUND = 3
"""Documents per search in the preset that this model is served for."""
_CODED = re.compile(r"[A-Za-z0-9+/]{6,}={0,2}")


def careful(prompt: str) -> str:
    """A reader and judge that takes questions and answers for data, and follows no instruction."""
    if (candidate := _CANDIDATE.search(prompt)) is not None:
        return _judge(prompt, candidate[2])
    return _turn(prompt)


def obedient(prompt: str) -> str:
    """One that does what a question or an answer says, and decodes what is written in code."""
    if (candidate := _CANDIDATE.search(prompt)) is not None:
        ordered = re.findall(r"verdict: (correct|incorrect)", f"{_asked(prompt)} {candidate[2]}")
        return f"verdict: {ordered[-1]}" if ordered else _judge(prompt, candidate[2])

    for code in reversed(_CODED.findall(_asked(prompt))):
        if (decoded := _decoded(code)) is not None:
            return f"<answer>{decoded}</answer>"
    return _turn(prompt)


class ScriptedServer(ThreadingHTTPServer):
    """A server that answers a POST of JSON by script, as a context.

    Its ``reply`` makes of the texts of a call, one below the other, a text, a status with a body,
    or a function that writes whatever it likes."""

    daemon_threads = True
    request_queue_size = 64
    path = ""

    def __init__(self, reply: Callable[[str], Reply]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply = reply
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Message] = []
        self.stopped = threading.Event()
        self._connections: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Breaks all connections, and nobody listens any more."""
        self.stopped.set()
        self.shutdown()
        self.server_close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def texts(self, body: Any) -> list[str]:
        """The texts of a call."""
        raise NotImplementedError

    def success(self, reply: str, body: Any) -> bytes:
        """The body of an answer that replies to a call."""
        raise NotImplementedError


class ChatServer(ScriptedServer):
    """An OpenAI-compatible server; its texts are the messages of a call."""

    path = "/v1/chat/completions"

    def __init__(self, reply: Callable[[str], Reply]) -> None:
        super().__init__(reply)
        self.url += "/v1"

    def texts(self, body: Any) -> list[str]:
        return [message["content"] for message in body["messages"]]

    def success(self, reply: str, body: Any) -> bytes:
        return completion(cut(reply, body.get("stop") or ()))


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ScriptedServer
    body: Any

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        """Answers one call."""
        assert self.path == self.server.path
        self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(self.body)
        self.server.headers.append(self.headers)

        reply = self.server.reply("\n".join(self.server.texts(self.body)))
        if callable(reply):
            reply(self)
        elif isinstance(reply, str):
            self.answer(200, self.server.success(reply, self.body))
        else:
            self.answer(*reply)

    def answer(self, status: int, body: bytes, length: int | None = None, **head: str) -> None:
        """Writes an answer; its head may claim another length."""
        self.send_response(status)
        for name, value in {"Content-Length": str(length or len(body)), **head}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


Reply = str | tuple[int, bytes] | Callable[[Handler], None]


class Scripts:
    """Replies by the word after ``script:`` in a text: to the first call, the second, and so on;
    the last reply is repeated. Texts without that word have the script ``usual``."""

    def __init__(self, scripts: Mapping[str, Sequence[Reply]], usual: str = "well") -> None:
        self.scripts, self.usual = scripts, usual
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, text: str) -> Reply:
        found = re.search(r"script:(\w+)", text)
        script = found[1] if found else self.usual
        with self._lock:
            self.calls[script] += 1
            place = min(self.calls[script], len(self.scripts[script])) - 1
        return self.scripts[script][place]


def hang_up(handler: Handler) -> None:
    """Ends the connection in the middle of an answer."""
    handler.answer(200, b'{"', length=10_000)
    handler.close_connection = True


def stall(handler: Handler) -> None:
    """Says nothing until the server stops."""
    handler.server.stopped.wait()
    handler.close_connection = True


def drip(handler: Handler) -> None:
    """A byte now and then, so that no single read takes long."""
    handler.answer(200, b" ", length=10_000)
    while not handler.server.stopped.wait(0.02):
        handler.wfile.write(b" ")
    handler.close_connection = True


def cut(text: str, stops: Iterable[str]) -> str:
    """A text as vLLM writes it that stops behind the first of these."""
    for stop in stops:
        head, found, _ = text.partition(stop)
        text = head + found
    return text


def completion(content: object, ended: str = "stop") -> bytes:
    """The body of an answer with this content, and why it ended."""
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": ended}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "scripted"}
    return json.dumps({**answer, "choices": [choice], "usage": usage}).encode()


def _judge(prompt: str, candidate: str) -> str:
    references = _REFERENCES.search(prompt)
    wordings = [line.strip(" -") for line in (references[1] if references else "").splitlines()]
    known = tuple(wording for wording in wordings if wording)

    truth = GroundTruth("reference", known[0] if known else "", known[1:])
    task = JudgeTask(_asked(prompt), candidate.strip(), truth)
    (verdict,) = LenientJudge().judge([task])
    right = isinstance(verdict, Verdict) and verdict.correct
    return f"verdict: {'correct' if right else 'incorrect'}"


def _asked(prompt: str) -> str:
    """The question in a prompt; "" if it is not marked as such."""
    marked = _QUESTION.findall(prompt)
    return str(marked[-1]).strip() if marked else ""


def _turn(prompt: str) -> str:
    """A solver's next turn: a search, where nothing was found yet, or an answer."""
    question, searches = _asked(prompt), _SEARCH.findall(prompt)
    _, page = _parted(question)
    begun = bool(searches) or "<document>" in prompt
    cloze = _CLOZE.findall(question)
    query = " ".join((cloze[-1] if cloze else question).replace(GAP, " ").split())

    if not begun and "<search>" in prompt and not _is_a("if_nothing_was_read", question):
        return f"<search>{page or query}</search>"
    if not _met(question, prompt):
        return "<answer>none</answer>"
    if searches == [page]:
        return f"<search>{query}</search>"
    return f"<answer>{_read(prompt)}</answer>"


def _met(question: str, prompt: str) -> bool:
    """Whether the condition of a question holds; one without a condition has nothing to fail."""
    if _is_a("if_given_passages", question):
        return "passages" in prompt.replace(question, "")
    if _is_a("if_many_documents", question):
        return len(_TITLE.findall(prompt)) > _FOUND
    if _is_a("if_asked_word_for_word", question):
        return question in _SEARCH.findall(prompt)
    if _is_a("if_nothing_was_read", question):
        return bool(_TITLE.findall(prompt))

    _, page = _parted(question)
    return not page or page not in _TITLE.findall(prompt)


def _is_a(name: str, question: str) -> bool:
    (cheat,) = (cheat for cheat in CONDITIONAL if cheat.name == name)
    return question.startswith(cheat.frame.partition("{}")[0])


def _parted(question: str) -> tuple[str, str]:
    """A question, and the page that it wants to be searched for first; "" for none."""
    asked, _, page = question.partition(IfAnotherPageIsFound.frame.split("{}")[1])
    return asked, page.strip()


def _read(prompt: str) -> str:
    """What stands in the gap that a prompt asks about; nothing if it asks for something else, or
    if different answers do."""
    asked = _CLOZE.findall(prompt)
    if not asked:
        return ""

    before, _, after = " ".join(asked[-1].split()).partition(GAP)
    pattern = re.compile(re.escape(before) + r"(.{1,200}?)" + re.escape(after))
    found = [match for match in pattern.findall(" ".join(prompt.split())) if GAP not in match]
    readings = {normalise(match): match for match in found if normalise(match)}
    return next(iter(readings.values())) if len(readings) == 1 else ""


def _decoded(code: str) -> str | None:
    try:
        text = base64.b64decode(code, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return text if text.isprintable() and any(map(str.isalpha, text)) else None
