"""``ssp judge``: measures a judge on labelled pairs of answers."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from ssp_env.commands.base import Command
from ssp_env.errors import DataError, UsageError
from ssp_env.judge.chat import ChatConfig
from ssp_env.judge.judges import JUDGES, make_judge
from ssp_env.judge.measure import Measured, Pair, measure
from ssp_env.search.corpus import read_jsonl

_EPILOG = """a line of the file: {"question": "Who ...?", "answers": ["George Smith"],
"prediction": "George P. Smith", "right": true}
exit status: 0, 1 if the judge's model left a pair without a verdict, 2 for a mistake"""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="labelled pairs: JSON lines, plain or gzip")
    parser.add_argument(
        "--judge", default=JUDGES[0], metavar="NAME",
        help=f"which judge: {', '.join(JUDGES)} (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--url", metavar="URL", help="with openai: the API's root, http://127.0.0.1:8000/v1"
    )
    parser.add_argument("--model", metavar="NAME", help="with openai: the model to ask")
    parser.add_argument(
        "--key-env", metavar="VAR", help="with openai: environment variable with the API key"
    )
    parser.epilog = _EPILOG


def _run(arguments: Namespace) -> int:
    judge = make_judge(arguments.judge, _chat(arguments))
    pairs = _read_pairs(arguments.file)
    measured = measure(judge, [pair for _, pair in pairs])

    if arguments.json:
        print(json.dumps(_summary(arguments.judge, pairs, measured), ensure_ascii=True))
    else:
        _show(Console(soft_wrap=True), arguments.judge, pairs, measured)
    return 1 if measured.failed else 0


def _chat(arguments: Namespace) -> ChatConfig | None:
    named = [name for name in ("url", "model", "key_env") if getattr(arguments, name) is not None]
    if arguments.judge != "openai":
        if named:
            raise UsageError(f"--{named[0].replace('_', '-')} goes with --judge openai")
        return None
    if arguments.url is None or arguments.model is None:
        raise UsageError("--judge openai needs --url and --model")
    return ChatConfig(base_url=arguments.url, model=arguments.model, api_key_env=arguments.key_env)


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


def _summary(name: str, pairs: list[tuple[int, Pair]], measured: Measured) -> dict[str, Any]:
    return {
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


def _show(console: Console, name: str, pairs: list[tuple[int, Pair]], measured: Measured) -> None:
    """Prints the figures, then the pairs on which the judge disagrees with people."""
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


COMMAND = Command(
    name="judge",
    help="measure a judge on labelled pairs of answers",
    configure=_configure,
    run=_run,
)
