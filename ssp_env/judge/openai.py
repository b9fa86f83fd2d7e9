"""A judge and a verifier that ask a language model behind an OpenAI-compatible server.

The paper judges with a large instruction-tuned model and verifies with it by default (its
appendices on prompts and on training details).

An outage voids what it hit. A text for which a model that works has no verdict, be it that it
stalls the server, breaks it or confuses it, counts against its writer: otherwise wrong answers
could be voided at will. :meth:`ChatClient.ask` tells the two apart by :data:`CONTROL`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from ssp_env.checks import one_of
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.judge.base import Judge, JudgeTask, Verdict, VerifyTask
from ssp_env.judge.chat import ChatClient, ChatConfig, Message
from ssp_env.types import Document, GroundTruth

__all__ = [
    "ChatClient",
    "ChatConfig",
    "OpenAIJudge",
    "OpenAIVerifier",
    "parse_answer",
    "parse_turn",
    "parse_verdict",
]

CONTROL = VerifyTask(
    "What is the capital of France?",
    GroundTruth("control", "Paris"),
    (Document("control", "Paris", "Paris is the capital of France."),),
)
"""A question that every model which works can judge and answer."""

_VERDICT_LINE = re.compile(r"verdict\s*:\s*(.*?)\s*\.?", re.IGNORECASE)
_ONE_WORD = re.compile(r"[\"']?(correct|incorrect|wrong)[\"']?[.!]?", re.IGNORECASE)
_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
_TURN = re.compile(r"<(search|answer)>((?:(?!<\1>).)*?)</\1>", re.DOTALL)

_FORMS = {
    "solver": ("solve.txt", ("question",)),
    "attempt": ("solve.txt", ("question",)),
    "documents": ("verify.txt", ("question", "documents")),
}
"""Package's own file and placeholders of each form of verification."""


def _described(model: str, prompt: str) -> dict[str, Any]:
    return {"model": model, "prompt": f"prompt {sha256(prompt.encode()).hexdigest()[:12]}"}


class OpenAIJudge:
    """Asks a model whether an answer means the ground truth (the paper's LLM-as-a-judge)."""

    remote = True
    """It waits for a server, so the game may ask it while other work goes on."""

    def __init__(self, client: ChatClient, prompt: str | Path | Traversable | None = None) -> None:
        """
        Args:
            client: the server.
            prompt: file with ``{question}``, ``{answers}`` and ``{prediction}`` that asks for a
                line ``verdict: correct`` or ``verdict: incorrect``, or for the word alone; ``None``
                for the package's own.
        """
        self._client = client
        self._template = _Template(prompt, "judge.txt", ("question", "answers", "prediction"))
        self.model = client.config.model
        self.prompt = self._template.text

    def describe(self) -> dict[str, Any]:
        """Model and digest of the prompt."""
        return _described(self.model, self.prompt)

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        """One result per task, in order. A blank prediction is wrong without a call."""
        asked = [index for index, task in enumerate(tasks) if task.prediction.strip()]
        control = self._prompt(JudgeTask(CONTROL.question, CONTROL.truth.answer, CONTROL.truth))
        prompts = [self._prompt(tasks[index]) for index in asked]

        results: list[Verdict | ServiceError] = [Verdict(False, "no answer")] * len(tasks)
        replies = self._client.ask(prompts, parse_verdict, "judge", control)
        for index, reply in zip(asked, replies, strict=True):
            results[index] = reply
        return results

    def _prompt(self, task: JudgeTask) -> str:
        answers = "\n".join(f"- {_line(wording)}" for wording in task.truth.wordings)
        return self._template.fill(
            question=_line(task.question), answers=answers, prediction=_line(task.prediction)
        )


class OpenAIVerifier:
    """Lets a model answer from the documents alone; a judge then compares with the ground truth."""

    remote = True
    """It waits for a server, so the game may ask it while other work goes on."""

    def __init__(
        self,
        client: ChatClient,
        judge: Judge,
        prompt: str | Path | Traversable | None = None,
        form: str | None = None,
        max_searches: int = 10,
    ) -> None:
        """
        Args:
            client: the server of the model that reads.
            judge: decides whether what it read is the ground truth.
            prompt: file that asks for ``<answer>...</answer>``, with ``{question}`` and, in the
                form ``documents``, ``{documents}``; ``None`` for the package's own.
            form: ``solver`` shows a conversation of a solver that has searched for the question;
                ``attempt`` lets the model write searches, which find the documents alone, so that
                it cannot tell verification from solving; ``documents`` shows one message with
                everything in it. When not given, ``solver``, or ``documents`` where there is a
                ``prompt``.
            max_searches: searches of an attempt; one that wants more has no answer.
        """
        form = form or ("solver" if prompt is None else "documents")
        one_of("form", form, tuple(_FORMS))
        self._client, self._judge = client, judge
        self._form, self._max_searches = form, max_searches
        self._template = _Template(prompt, *_FORMS[form])
        self.model = client.config.model
        self.prompt = self._template.text

    def describe(self) -> dict[str, Any]:
        """Model and digest of the prompt."""
        return _described(self.model, self.prompt)

    def verify(self, tasks: Sequence[VerifyTask]) -> list[Verdict | ServiceError]:
        """One result per task. An empty answer is a verdict: the documents do not settle it."""
        if self._form == "attempt":
            answers = self._attempts(tasks)
        else:
            prompts = [self._prompt(task) for task in tasks]
            answers = self._client.ask(prompts, parse_answer, "verifier", self._prompt(CONTROL))

        # Only the tasks that got an answer are judged; the others keep their error.
        read = [
            JudgeTask(task.question, answer, task.truth)
            for task, answer in zip(tasks, answers, strict=True)
            if isinstance(answer, str)
        ]
        verdicts = iter(self._judge.judge(read))
        results: list[Verdict | ServiceError] = []
        for answer in answers:
            result = answer if isinstance(answer, ServiceError) else next(verdicts)
            if isinstance(result, Verdict):
                detail = f"; {result.detail}" if result.detail else ""
                result = Verdict(result.correct, f"read as {answer!r}{detail}")
            results.append(result)
        return results

    def _attempts(self, tasks: Sequence[VerifyTask]) -> list[str | ServiceError]:
        """Answers of the model after searches of its own; each turn of all tasks is one batch."""
        said = [[Message("user", self._template.fill(question=_line(t.question)))] for t in tasks]
        control = [Message("user", self._template.fill(question=CONTROL.question))]
        ended: dict[int, str | ServiceError] = {}

        for left in range(self._max_searches, -1, -1):
            live = [place for place in range(len(tasks)) if place not in ended]
            if not live:
                break
            prompts = [said[place] for place in live]
            turns = self._client.ask(prompts, parse_turn, "verifier", control)

            for place, turn in zip(live, turns, strict=True):
                if isinstance(turn, ServiceError):
                    ended[place] = turn
                    continue
                action, content = turn
                if action == "answer" or not left:
                    ended[place] = content if action == "answer" else ""
                    continue

                search = tasks[place].search
                if search is None:
                    raise UsageError("a verification by attempts needs VerifyTask.search")
                try:
                    said[place] += _search_turn(_line(content), search(content))
                except ServiceError as error:
                    ended[place] = error

        return [ended[place] for place in range(len(tasks))]

    def _prompt(self, task: VerifyTask) -> str | list[Message]:
        shown = task.documents if task.shown is None else task.shown
        question = _line(task.question)
        if self._form == "documents":
            return self._template.fill(question=question, documents=_listed(shown))

        asked = Message("user", self._template.fill(question=question))
        return [asked, *_search_turn(question, shown)]


def parse_verdict(reply: str) -> Verdict:
    """The verdict of a reply: its one line ``verdict: correct`` or ``verdict: incorrect``.

    Without one, a single line that is nothing but ``Correct``, ``Incorrect`` or ``Wrong`` will do:
    the paper's prompt asks for that word. Case, emphasis (``*``, ``_``, backticks) and a full stop
    do not count. What a reasoning model writes before ``</think>`` is passed over. Anything else
    is a ``ServiceError`` that blames the text."""
    said = [re.sub(r"[*_`]", "", text).strip() for text in _after_thinking(reply).splitlines()]
    found = [match[1].lower() for match in map(_VERDICT_LINE.fullmatch, said) if match]
    if not found:
        alone = [match[1].lower() for match in map(_ONE_WORD.fullmatch, said) if match]
        found = ["incorrect" if word == "wrong" else word for word in alone]

    # Several verdicts, even equal ones, mean that the model did not follow the format.
    if found not in (["correct"], ["incorrect"]):
        what = f"a reply without one clear verdict: {_tail(reply)!r}"
        raise ServiceError("judge", what, fault="text")
    return Verdict(found == ["correct"], _tail(reply))


def parse_answer(reply: str) -> str:
    """The content of the last answer tags of a reply, which may be empty."""
    found = _ANSWER.findall(_after_thinking(reply))
    if not found:
        what = f"a reply without answer tags: {_tail(reply)!r}"
        raise ServiceError("verifier", what, fault="text")
    return _unescape(found[-1].strip())


def parse_turn(reply: str) -> tuple[str, str]:
    """The first complete action of a reply, ``search`` or ``answer``, and its content."""
    found = _TURN.search(_after_thinking(reply))
    if found is None:
        what = f"a reply without search or answer tags: {_tail(reply)!r}"
        raise ServiceError("verifier", what, fault="text")
    return found[1], _unescape(found[2].strip())


def _after_thinking(reply: str) -> str:
    before, mark, after = reply.partition("</think>")
    return after if mark else before


def _tail(reply: str) -> str:
    return reply.strip()[-200:]


def _search_turn(query: str, documents: Sequence[Document]) -> list[Message]:
    """A search and what it found, as a conversation continues with them."""
    return [
        Message("assistant", f"<search>{query}</search>"),
        Message("user", f"<information>\n{_listed(documents)}\n</information>"),
    ]


def _listed(documents: Sequence[Document]) -> str:
    return "\n".join(
        f"<document>\n{_line(each.title)}\n{_block(each.text)}\n</document>" for each in documents
    )


class _Template:
    """A prompt with placeholders such as ``{question}``; all other braces are plain text."""

    def __init__(
        self, path: str | Path | Traversable | None, default: str, placeholders: Sequence[str]
    ) -> None:
        """``default`` is the package's own file, for a ``path`` of ``None``."""
        if path is None:
            path = files("ssp_env.judge").joinpath("prompts", default)
        source = Path(path) if isinstance(path, str) else path
        try:
            self.text = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            fix = f"give a readable UTF-8 text file ({error})"
            raise ConfigError("prompt", str(source), fix) from error

        missing = [f"{{{name}}}" for name in placeholders if f"{{{name}}}" not in self.text]
        if missing:
            fix = f"put {' and '.join(missing)} into this template"
            raise ConfigError("prompt", str(source), fix)
        self._placeholders = re.compile("{(" + "|".join(map(re.escape, placeholders)) + ")}")

    def fill(self, **values: str) -> str:
        """The prompt with every placeholder replaced, in one pass: braces in values stay."""
        return self._placeholders.sub(lambda hole: values[hole[1]], self.text)


def _line(text: str) -> str:
    """Outside text as a single line that can neither open nor close a tag."""
    return " ".join(_block(text).split())


def _block(text: str) -> str:
    """Outside text that can neither open nor close a tag; line breaks stay.

    Only angle brackets are escaped: an ampersand is harmless, and a reader would copy its escape
    into an answer. Half a surrogate pair, which no server would take, becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("<", "&lt;").replace(">", "&gt;")


def _unescape(text: str) -> str:
    """Undoes the escapes of :func:`_block` in a reply that quotes its prompt."""
    return text.replace("&lt;", "<").replace("&gt;", ">")
