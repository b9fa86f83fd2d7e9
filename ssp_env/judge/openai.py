"""A judge and a verifier that ask a language model behind an OpenAI-compatible server.

The paper judges with a large instruction-tuned model and verifies with it by default (its
appendices on prompts and on training details).

An outage voids what it hit. A text for which a working model has no verdict, because it
stalls, breaks or confuses it, counts against its writer: otherwise wrong answers
could be voided at will. :meth:`ChatClient.ask` tells the two apart by :data:`CONTROL`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from ssp_env.errors import ConfigError, ServiceError, UsageError, one_of
from ssp_env.judge.base import Judge, JudgeTask, Verdict, VerifyTask
from ssp_env.judge.chat import ChatClient, Message
from ssp_env.judge.replies import parse_answer, parse_turn, parse_verdict
from ssp_env.types import Document, GroundTruth

CONTROL = VerifyTask(
    "What is the capital of France?",
    GroundTruth("control", "Paris"),
    (Document("control", "Paris", "Paris is the capital of France."),),
)
"""A question that every model which works can judge and answer."""

_PROMPTS = Path(__file__).parent / "prompts"


class _ByModel:
    remote = True
    """It waits for a server, so the game may ask it while other work goes on."""

    def __init__(self, client: ChatClient, prompt: Traversable | Path | str, *holes: str) -> None:
        """Reads a prompt that has these placeholders; all other braces in it are plain text."""
        self._client, self.model = client, client.config.model
        prompt = Path(prompt) if isinstance(prompt, str) else prompt
        try:
            self.prompt = prompt.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            fix = f"give a readable UTF-8 text file ({error})"
            raise ConfigError("prompt", str(prompt), fix) from error

        missing = [f"{{{name}}}" for name in holes if f"{{{name}}}" not in self.prompt]
        if missing:
            fix = f"put {' and '.join(missing)} into this template"
            raise ConfigError("prompt", str(prompt), fix)

    def describe(self) -> dict[str, Any]:
        digest = sha256(self.prompt.encode()).hexdigest()[:12]
        config, plain = self._client.config, {"model": self.model, "prompt": f"prompt {digest}"}
        others = ("max_tokens", "temperature", "extra_body")
        changed = {
            name: getattr(config, name) for name in others if name in config.model_fields_set
        }
        return plain | {name: f"{name} {value}" for name, value in changed.items()}

    def _fill(self, **values: str) -> str:
        """The prompt with every placeholder replaced, in one pass: braces in values stay."""
        return re.sub(f"{{({'|'.join(values)})}}", lambda hole: values[hole[1]], self.prompt)


class OpenAIJudge(_ByModel):
    """Asks a model whether an answer means the ground truth (the paper's LLM-as-a-judge)."""

    def __init__(self, client: ChatClient, prompt: Traversable | Path | str | None = None) -> None:
        """``prompt`` is a file with ``{question}``, ``{answers}`` and ``{prediction}`` that asks
        for a line ``verdict: correct`` or ``verdict: incorrect``, or for the word alone; ``None``
        takes the package's own."""
        prompt = prompt or _PROMPTS / "judge.txt"
        super().__init__(client, prompt, "question", "answers", "prediction")

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

    def check(self) -> None:
        """Asks the control question once. Raises a ``ConfigError`` that names the setting to
        change, or the ``ServiceError`` of a model that has no verdict."""
        task = JudgeTask(CONTROL.question, CONTROL.truth.answer, CONTROL.truth)
        self._client.check(self._prompt(task), parse_verdict, "judge")

    def _prompt(self, task: JudgeTask) -> str:
        answers = "\n".join(f"- {_line(wording)}" for wording in task.truth.wordings)
        return self._fill(
            question=_line(task.question), answers=answers, prediction=_line(task.prediction)
        )


class OpenAIVerifier(_ByModel):
    """Lets a model answer from the documents alone; a judge then compares with the ground truth."""

    def __init__(
        self,
        client: ChatClient,
        judge: Judge,
        prompt: Traversable | Path | str | None = None,
        form: str | None = None,
        max_searches: int = 10,
    ) -> None:
        """
        Args:
            client: the server of the model that reads.
            judge: decides whether what it read is the ground truth.
            prompt: file that asks for ``<answer>...</answer>``, with ``{question}`` and, in the
                form ``documents``, ``{documents}``; ``None`` for the package's own.
            form: as ``game.verification_prompt``; when not given, ``solver``, or ``documents``
                where there is a ``prompt``.
            max_searches: searches of an attempt; one that wants more has no answer.
        """
        form = form or ("solver" if prompt is None else "documents")
        one_of("form", form, ("solver", "attempt", "documents"))
        self._judge, self._form, self._max_searches = judge, form, max_searches
        if form == "documents":
            super().__init__(client, prompt or _PROMPTS / "verify.txt", "question", "documents")
        else:
            super().__init__(client, prompt or _PROMPTS / "solve.txt", "question")

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

    def check(self) -> None:
        """Asks the control question once, as :meth:`OpenAIJudge.check` does."""
        if self._form == "attempt":
            asked: str | Sequence[Message] = self._fill(question=CONTROL.question)
            self._client.check(asked, parse_turn, "verifier")
        else:
            self._client.check(self._prompt(CONTROL), parse_answer, "verifier")

    def _attempts(self, tasks: Sequence[VerifyTask]) -> list[str | ServiceError]:
        """Answers of the model after searches of its own; each turn of all tasks is one batch."""
        said = [[_user(self._fill(question=_line(task.question)))] for task in tasks]
        control = [_user(self._fill(question=CONTROL.question))]
        ended: dict[int, str | ServiceError] = {}

        # One turn more than there are searches: the last one has to answer.
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
                search = tasks[place].search
                if action == "answer" or not left:
                    ended[place] = content if action == "answer" else ""
                elif search is None:
                    raise UsageError("a verification by attempts needs VerifyTask.search")
                else:
                    try:
                        said[place] += _search_turn(_line(content), search(content))
                    except ServiceError as error:
                        ended[place] = error

        return [ended[place] for place in range(len(tasks))]

    def _prompt(self, task: VerifyTask) -> str | list[Message]:
        shown = task.documents if task.shown is None else task.shown
        question = _line(task.question)
        if self._form == "documents":
            return self._fill(question=question, documents=_listed(shown))

        asked = _user(self._fill(question=question))
        return [asked, *_search_turn(question, shown)]


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _search_turn(query: str, documents: Sequence[Document]) -> list[Message]:
    """A search and what it found, as a conversation continues with them."""
    return [
        {"role": "assistant", "content": f"<search>{query}</search>"},
        _user(f"<information>\n{_listed(documents)}\n</information>"),
    ]


def _listed(documents: Sequence[Document]) -> str:
    return "\n".join(
        f"<document>\n{_line(each.title)}\n{_block(each.text)}\n</document>" for each in documents
    )


def _line(text: str) -> str:
    """Outside text as a single line that can neither open nor close a tag."""
    return " ".join(_block(text).split())


def _block(text: str) -> str:
    """Outside text that can neither open nor close a tag; line breaks stay.

    Only angle brackets are escaped: an ampersand is harmless, and a reader would copy its escape
    into an answer. Half a surrogate pair, which no server would take, becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("<", "&lt;").replace(">", "&gt;")
