"""A judge and a verifier that ask a language model behind an OpenAI-compatible server.

The paper judges with a large instruction-tuned model and verifies with it by default (its
appendices on prompts and on training details). An outage or a reply that holds no verdict is an
error of that task, never a verdict."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path

from ssp_env.checks import one_of
from ssp_env.errors import ServiceError, TransientServiceError, UsageError
from ssp_env.judge.base import Judge, JudgeTask, Verdict, VerifyTask
from ssp_env.judge.chat import ChatClient, ChatConfig, Message
from ssp_env.judge.template import Template, block, line, unescape
from ssp_env.types import Document

__all__ = [
    "ChatClient",
    "ChatConfig",
    "OpenAIJudge",
    "OpenAIVerifier",
    "parse_answer",
    "parse_turn",
    "parse_verdict",
]

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


class OpenAIJudge:
    """Asks a model whether an answer means the ground truth (the paper's LLM-as-a-judge)."""

    remote = True
    """It waits for a server, so the game may ask it beside other work."""

    def __init__(self, client: ChatClient, prompt: str | Path | Traversable | None = None) -> None:
        """
        Args:
            client: the server.
            prompt: file with ``{question}``, ``{answers}`` and ``{prediction}`` that asks for a
                line ``verdict: correct`` or ``verdict: incorrect``, or for the word alone; ``None``
                for the package's own.

        Raises:
            ConfigError: the file cannot be read or lacks a placeholder.
        """
        self._client = client
        self._template = Template(prompt, "judge.txt", ("question", "answers", "prediction"))

    @property
    def model(self) -> str:
        """Name of the model that judges."""
        return self._client.config.model

    @property
    def prompt(self) -> str:
        """The text of its prompt."""
        return self._template.text

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        """One result per task, in order. A blank prediction is wrong without a call."""
        asked = [index for index, task in enumerate(tasks) if task.prediction.strip()]

        results: list[Verdict | ServiceError] = [Verdict(False, "no answer")] * len(tasks)
        replies = self._client.ask(
            [self._prompt(tasks[index]) for index in asked], parse_verdict, "judge"
        )

        for index, reply in zip(asked, replies, strict=True):
            results[index] = reply
        return results

    def _prompt(self, task: JudgeTask) -> str:
        answers = "\n".join(f"- {line(wording)}" for wording in task.truth.wordings)
        return self._template.fill(
            question=line(task.question), answers=answers, prediction=line(task.prediction)
        )


class OpenAIVerifier:
    """Lets a model answer from the documents alone; a judge then compares with the ground truth."""

    remote = True
    """It waits for a server, so the game may ask it beside other work."""

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

        Raises:
            ConfigError: the file cannot be read or lacks a placeholder, or there is no such form.
        """
        form = form or ("solver" if prompt is None else "documents")
        one_of("form", form, tuple(_FORMS))
        self._client = client
        self._judge = judge
        self._form = form
        self._max_searches = max_searches
        self._template = Template(prompt, *_FORMS[form])

    @property
    def model(self) -> str:
        """Name of the model that verifies."""
        return self._client.config.model

    @property
    def prompt(self) -> str:
        """The text of its prompt."""
        return self._template.text

    def verify(self, tasks: Sequence[VerifyTask]) -> list[Verdict | ServiceError]:
        """One result per task, in order.

        An empty answer is a verdict: the documents do not settle the question.
        """
        answers = self._attempts(tasks) if self._form == "attempt" else self._readings(tasks)

        read = [
            JudgeTask(task.question, answer, task.truth)
            for task, answer in zip(tasks, answers, strict=True)
            if isinstance(answer, str)
        ]

        # Only the tasks that got an answer are judged; the others keep their error.
        verdicts = iter(zip(read, self._judge.judge(read), strict=True))
        return [
            answer if isinstance(answer, ServiceError) else _with_answer(*next(verdicts))
            for answer in answers
        ]

    def _readings(self, tasks: Sequence[VerifyTask]) -> list[str | ServiceError]:
        """What the model answers from documents that it is given."""
        prompts = [self._prompt(task) for task in tasks]
        return self._client.ask(prompts, parse_answer, "verifier")

    def _attempts(self, tasks: Sequence[VerifyTask]) -> list[str | ServiceError]:
        """What the model answers after searches of its own; each turn of all tasks is one batch."""
        said = [[Message("user", self._template.fill(question=line(t.question)))] for t in tasks]
        ended: dict[int, str | ServiceError] = {}

        for left in range(self._max_searches, -1, -1):
            live = [place for place in range(len(tasks)) if place not in ended]
            if not live:
                break
            turns = self._client.ask([said[place] for place in live], parse_turn, "verifier")

            for place, turn in zip(live, turns, strict=True):
                if isinstance(turn, ServiceError):
                    ended[place] = turn
                elif turn.action == "answer" or not left:
                    ended[place] = turn.content if turn.action == "answer" else ""
                else:
                    try:
                        said[place] += _searched(tasks[place], turn.content)
                    except ServiceError as error:
                        ended[place] = error

        return [ended[place] for place in range(len(tasks))]

    def _prompt(self, task: VerifyTask) -> str | list[Message]:
        shown = task.documents if task.shown is None else task.shown
        question = line(task.question)
        if self._form == "documents":
            return self._template.fill(question=question, documents=_listed(shown))

        asked = Message("user", self._template.fill(question=question))
        return [asked, *_search_turn(question, shown)]


def parse_verdict(reply: str) -> Verdict:
    """The verdict of a reply: its one line ``verdict: correct`` or ``verdict: incorrect``.

    Without one, a single line that is nothing but ``Correct``, ``Incorrect`` or ``Wrong`` will do:
    the paper's prompt asks for that word. Case, emphasis (``*``, ``_``, backticks) and a full stop
    do not count. What a reasoning model writes before ``</think>`` is passed over.

    Raises:
        TransientServiceError: no such line, several, or one with another word.
    """
    lines = (re.sub(r"[*_`]", "", text).strip() for text in _after_thinking(reply).splitlines())

    said = list(lines)
    found = [match[1].lower() for match in map(_VERDICT_LINE.fullmatch, said) if match]

    if not found:
        alone = [match[1].lower() for match in map(_ONE_WORD.fullmatch, said) if match]
        found = ["incorrect" if word == "wrong" else word for word in alone]

    # Several verdicts, even equal ones, mean that the model did not follow the format.
    if found == ["correct"] or found == ["incorrect"]:
        return Verdict(found == ["correct"], _tail(reply))

    what = f"a reply without one clear verdict: {_tail(reply)!r}"
    raise TransientServiceError("judge", what, fault="unclear")


def parse_answer(reply: str) -> str:
    """The content of the last answer tags of a reply, which may be empty.

    Raises:
        TransientServiceError: no complete answer tags.
    """
    found = _ANSWER.findall(_after_thinking(reply))
    if not found:
        what = f"a reply without answer tags: {_tail(reply)!r}"
        raise TransientServiceError("verifier", what, fault="unclear")

    return unescape(found[-1].strip())


@dataclass(frozen=True, slots=True)
class Turn:
    """What a reply does first."""

    action: str
    """``search`` or ``answer``."""
    content: str


def parse_turn(reply: str) -> Turn:
    """The first complete search or answer of a reply.

    Raises:
        TransientServiceError: neither.
    """
    found = _TURN.search(_after_thinking(reply))
    if found is None:
        what = f"a reply without search or answer tags: {_tail(reply)!r}"
        raise TransientServiceError("verifier", what, fault="unclear")

    return Turn(found[1], unescape(found[2].strip()))


def _after_thinking(reply: str) -> str:
    before, mark, after = reply.partition("</think>")
    return after if mark else before


def _tail(reply: str) -> str:
    return reply.strip()[-200:]


def _searched(task: VerifyTask, query: str) -> list[Message]:
    """
    Raises:
        ServiceError: the search failed.
        UsageError: nobody can search for this task.
    """
    if task.search is None:
        raise UsageError("a verification by attempts searches: its tasks need VerifyTask.search")
    return _search_turn(line(query), task.search(query))


def _search_turn(query: str, documents: Sequence[Document]) -> list[Message]:
    """A search and what it found, as a conversation goes on."""
    return [
        Message("assistant", f"<search>{query}</search>"),
        Message("user", f"<information>\n{_listed(documents)}\n</information>"),
    ]


def _listed(documents: Sequence[Document]) -> str:
    return "\n".join(_show(document) for document in documents)


def _show(document: Document) -> str:
    return f"<document>\n{line(document.title)}\n{block(document.text)}\n</document>"


def _with_answer(task: JudgeTask, result: Verdict | ServiceError) -> Verdict | ServiceError:
    if isinstance(result, ServiceError):
        return result

    return Verdict(
        result.correct,
        f"read as {task.prediction!r}" + (f"; {result.detail}" if result.detail else ""),
    )
