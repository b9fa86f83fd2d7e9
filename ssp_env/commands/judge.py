"""``ssp judge``: measures a judge on labelled pairs of answers."""

from __future__ import annotations

import json

from rich.console import Console
from rich.text import Text

from ssp_env.errors import DataError, UsageError
from ssp_env.judge.chat import ChatConfig
from ssp_env.judge.judges import JUDGES, Measured, Pair, make_judge, measure
from ssp_env.worlds.files import read_rows


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
    pairs = list(read_rows(file, Pair))
    if not pairs:
        raise DataError(file, "holds no pair")
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
            {"line": pairs[i][0], **pairs[i][1].model_dump(), "judged": measured.judged[i]}
            for i in measured.errors
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
        shown = f"line {line}: {said}: {pair.prediction!r} for {pair.answers!r}"
        console.print(Text(shown), style="yellow")
    if measured.failed:
        console.print(Text(f"{len(measured.failed)} without a verdict: {measured.failed[0]}"))
