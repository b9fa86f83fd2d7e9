"""``ssp judge``: measures a judge on labelled pairs of answers."""

from __future__ import annotations

from collections import Counter
from json import dumps
from typing import Any

import yaml
from rich.console import Console
from rich.text import Text

from ssp_env.errors import DataError, UsageError
from ssp_env.judge.base import Judge
from ssp_env.judge.chat import ChatClient, ChatConfig
from ssp_env.judge.judges import Pair, measure, open_judge
from ssp_env.judge.openai import OpenAIJudge
from ssp_env.tables import read_rows


def judge(
    file: str,
    /,
    *,
    judge: str = "lenient",
    json: bool = False,
    url: str | None = None,
    model: str | None = None,
    key_env: str | None = None,
    set: list[str] | None = None,
) -> int:
    """Measures a judge on labelled pairs of answers.

    A line of the file: {"question": "Who ...?", "answers": ["George Smith"], "prediction": "George
    P. Smith", "right": true}.

    Each pair that it got wrong is shown with the judge's reason, and how often it gave each reason.

    Exit status: 0, 1 if the judge's model left a pair without a verdict, 2 for a mistake.

    Args:
        file: Labelled pairs: JSON lines, plain or gzip.
        judge: Its name: lenient (default), exact, f1 or openai; or MODULE:NAME, one of your own.
        json: Print one JSON object.
        url: With openai: the API's root, http://127.0.0.1:8000/v1.
        model: With openai: the model to ask.
        key_env: With openai: environment variable with the API key.
        set: With openai: a setting of the call, such as max_tokens=4096, temperature=null or
            extra_body={chat_template_kwargs: {enable_thinking: false}}.
    """
    made = _made(judge, url, model, key_env, set)
    numbered = list(read_rows(file, Pair))
    if not numbered:
        raise DataError(file, "holds no pair")
    lines, pairs = zip(*numbered, strict=True)
    measured = measure(made, pairs)

    right = sum(pair.right for pair in pairs)
    figures = {name: getattr(measured, name) for name in ("precision", "recall", "accuracy")}
    # What the judge said of a pair that it got wrong is the opposite of its label.
    wrong = [
        {"line": lines[at], **pairs[at].model_dump(), "judged": not pairs[at].right}
        | {"reason": measured.details[at]}
        for at in measured.errors
    ]
    # Behind ", as" a reason names the alias that fitted, another one for each pair.
    reasons = Counter(detail.partition(", as ")[0] for detail in measured.details)
    if json:
        failed = [str(error) for error in measured.failed]
        summary = {"judge": judge, "pairs": len(pairs), "right": right, **figures}
        by_rules = {"reasons": dict(reasons.most_common())} if judge == "lenient" else {}
        print(dumps({**summary, **by_rules, "failed": failed, "wrong": wrong}))
        return 1 if failed else 0

    console = Console(soft_wrap=True)
    console.print(f"{judge} on {len(pairs)} pairs, {right} of them right", style="bold")
    for name, value in figures.items():
        console.print(f"{name:<10} {'none' if value is None else f'{value:.3f}'}")
    for each in wrong:
        said = "passes, though wrong" if each["judged"] else "fails, though right"
        shown = f"line {each['line']}: {said}: {each['prediction']!r} for {each['answers']!r}"
        shown += f" ({each['reason']})" if each["reason"] else ""
        console.print(Text(shown), style="yellow")
    if judge == "lenient":
        for reason, count in reasons.most_common():
            console.print(Text(f"{count:>6} {reason}"))
    if measured.failed:
        console.print(Text(f"{len(measured.failed)} without a verdict: {measured.failed[0]}"))
    return 1 if measured.failed else 0


def _made(
    judge: str, url: str | None, model: str | None, key_env: str | None, set: list[str] | None
) -> Judge:
    """The judge of this name; a model behind an API has answered a first call."""
    if judge == "openai":
        if url is None or model is None:
            raise UsageError("--judge openai needs --url and --model")
        more = dict(map(_setting, set or ()))
        chat = ChatConfig(base_url=url, model=model, api_key_env=key_env, **more)
        behind_api = OpenAIJudge(ChatClient(chat))
        behind_api.check()
        return behind_api
    if (url, model, key_env, set) != (None, None, None, None):
        raise UsageError("--url, --model, --key-env and --set go with --judge openai")
    return open_judge(judge)


def _setting(given: str) -> tuple[str, Any]:
    """A name, and a value in YAML, as in ``max_tokens=4096``."""
    name, equals, value = given.partition("=")
    if not equals:
        raise UsageError(f"--set {given}: give a name and a value, such as max_tokens=4096")
    try:
        return name.removeprefix("openai."), yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UsageError(f"--set {given}: give a value in YAML, such as 4096 or null") from error
