"""What two policies searched for and read at the same questions: files of ``ssp eval --out``.

    python -m benchmarks.answers_shown base.jsonl trained.jsonl --run runs/mine --out shown.json

An answer is shown where one of its wordings stands in a document that a search found. A query is
the question where both are the same words. ``--run`` adds the attempts of a run, those of six steps
counted together, or as many as ``--every`` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import parser, write
from ssp_env.replay import read_games
from ssp_env.wording.normal import normalise
from ssp_experiments.run.rundir import RunDirectory
from ssp_experiments.stats import compare, share


@dataclass(frozen=True)
class Attempted:
    """What counts of an attempt."""

    question: str | None
    ended: bool
    asks_the_question: bool
    shown: bool
    right: bool


def main() -> None:
    options = parser(__doc__)
    options.add_argument("files", nargs=2, type=Path, help="games of the first and second policy")
    options.add_argument("--run", type=Path, help="run directory")
    options.add_argument("--every", type=int, default=6, help="steps that are counted together")
    settings = options.parse_args()

    first, second = ([*attempts(file)] for file in settings.files)
    if [each.question for each in first] != [each.question for each in second]:
        raise SystemExit("the two files are of other questions")
    pairs = [*zip(first, second, strict=True)]
    both = [(one.right, other.right) for one, other in pairs if one.shown and other.shown]
    shown = [[float(each.shown) for each in policy] for policy in (first, second)]
    read = [[float(pair[policy]) for pair in both] for policy in (0, 1)]
    result: dict[str, Any] = {
        settings.files[0].stem: shares(first),
        settings.files[1].stem: shares(second),
        "shown, question by question": compare(*shown, np.random.default_rng(settings.seed)),
        "shown to both": {
            "questions": len(both),
            "right": [int(sum(policy)) for policy in read],
            **(compare(*read, np.random.default_rng(settings.seed)) if len(both) > 1 else {}),
        },
    }
    if settings.run is not None:
        files = RunDirectory(settings.run).game_files
        for start in range(1, max(files) + 1, settings.every):
            steps = [step for step in range(start, start + settings.every) if step in files]
            played = [each for step in steps for each in attempts(files[step])]
            result[f"steps {steps[0]} to {steps[-1]}"] = shares(played)
    write(settings.out, result)


def attempts(file: Path) -> Iterator[Attempted]:
    """All attempts of a file of games."""
    for game in (each.record for each in read_games(file)):
        wordings = [normalise(each) for each in (game.answer, *game.aliases)]
        for attempt in game.attempts:
            queries = [normalise(search.query) for search in attempt.searches]
            found = [d for search in attempt.searches for d in search.documents]
            text = normalise(" ".join(f"{document.title} {document.text}" for document in found))
            yield Attempted(
                question=game.question,
                ended=attempt.result is not None,
                asks_the_question=queries[:1] == [normalise(game.question or "")],
                shown=any(wording in text for wording in wordings),
                right=bool(attempt.right),
            )


def shares(attempted: Sequence[Attempted]) -> dict[str, Any]:
    """Shares of attempts, with their intervals."""

    def of(counted: Iterable[bool]) -> dict[str, Any]:
        values = [*counted]
        return asdict(share(sum(values), len(values)))

    return {
        "ended in an answer": of(each.ended for each in attempted),
        "first query is the question": of(each.asks_the_question for each in attempted),
        "shown": of(each.shown for each in attempted),
        "right": of(each.right for each in attempted),
        "right where shown": of(each.right for each in attempted if each.shown),
    }


if __name__ == "__main__":
    main()
