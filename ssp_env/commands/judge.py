"""``ssp judge``: measures a judge on labelled pairs of answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from ssp_env.errors import DataError, UsageError
from ssp_env.judge.chat import ChatConfig
from ssp_env.judge.judges import JUDGES, make_judge
from ssp_env.judge.measure import Measured, Pair, measure
from ssp_env.search.corpus import read_jsonl


def judge(
    file: str,
    /,
    *,
    judge: str = JUDGES[0],
    json: bool = False,
    url: str | None = None,
    model: str | None = None,
    key_env: str | None = None,
) -> int:
    """Measure a judge on labelled pairs of answers.

    A line of the file: {"question": "Who ...?", "answers": ["George Smith"], "prediction": "George
    P. Smith", "right": true}.

    Exit status: 0, 1 if the judge's model left a pair without a verdict, 2 for a mistake.

    Args:
        file: labelled pairs: JSON lines, plain or gzip.
        judge: which judge: lenient (default), exact, f1 or openai.
        json: print one JSON object.
        url: with openai: the API's root, http://127.0.0.1:8000/v1.
        model: with openai: the model to ask.
        key_env: with openai: environment variable with the API key.
    """
    made = make_judge(judge, _chat(judge, url, model, key_env))
    pairs = _read_pairs(file)
    measured = measure(made, [pair for _, pair in pairs])

    show = _print_json if json else _show
    show(judge, pairs, measured)
    return 1 if measured.failed else 0


def _chat(judge: str, url: str | None, model: str | None, key_env: str | None) -> ChatConfig | None:
    if judge != "openai":
        for name, given in (("--url", url), ("--model", model), ("--key-env", key_env)):
            if given is not None:
                raise UsageError(f"{name} goes with --judge openai")
        return None
    if url is None or model is None:
        raise UsageError("--judge openai needs --url and --model")
    return ChatConfig(base_url=url, model=model, api_key_env=key_env)


def _read_pairs(path: str | Path) -> list[tuple[int, Pair]]:
    """Labelled pairs with their lines.

    Raises:
        DataError: no such file, no pair in it, or a line that is none (names file and line).
    """
    pairs = [(line, _pair(path, line, row)) for line, row in read_jsonl(path)]
    if not pairs:
        raise DataError(path, "holds no pair")
    return pairs


def _pair(path: str | Path, line: int, row: dict[str, Any]) -> Pair:
    for name, kind, said in (
        ("question", str, "a string"),
        ("answers", list, "a list of strings"),
        ("prediction", str, "a string"),
        ("right", bool, "true or false"),
    ):
        if name not in row:
            raise DataError(path, f"lacks {name!r}, which is {said}", line)
        if not isinstance(row[name], kind):
            raise DataError(path, f"{name!r} has to be {said}, not {row[name]!r}", line)
    answers = row["answers"]
    if not answers or not all(isinstance(answer, str) for answer in answers):
        raise DataError(path, "'answers' has to be a list of one string or more", line)
    return Pair(row["question"], tuple(answers), row["prediction"], row["right"])


def _print_json(name: str, pairs: list[tuple[int, Pair]], measured: Measured) -> None:
    summary = {
        "judge": name,
        "pairs": len(pairs),
        "right": sum(measured.right),
        "precision": measured.precision,
        "recall": measured.recall,
        "accuracy": measured.accuracy,
        "failed": [str(error) for error in measured.failed],
        "wrong": [
            {
                "line": pairs[at][0],
                "question": pairs[at][1].question,
                "answers": list(pairs[at][1].answers),
                "prediction": pairs[at][1].prediction,
                "right": pairs[at][1].right,
                "judged": measured.judged[at],
            }
            for at in measured.errors
        ],
    }
    print(json.dumps(summary, ensure_ascii=True))


def _show(name: str, pairs: list[tuple[int, Pair]], measured: Measured) -> None:
    """Prints the figures, then the pairs on which the judge disagrees with people."""
    console = Console(soft_wrap=True)
    right = sum(measured.right)
    console.print(f"{name} on {len(pairs)} pairs, {right} of them right", style="bold")
    for figure in ("precision", "recall", "accuracy"):
        value = getattr(measured, figure)
        console.print(f"{figure:<10} {'none' if value is None else f'{value:.3f}'}")
    for at in measured.errors:
        line, pair = pairs[at]
        said = "passes, though wrong" if measured.judged[at] else "fails, though right"
        shown = f"line {line}: {said}: {pair.prediction!r} for {list(pair.answers)!r}"
        console.print(Text(shown), style="yellow")
    if measured.failed:
        console.print(Text(f"{len(measured.failed)} without a verdict: {measured.failed[0]}"))
