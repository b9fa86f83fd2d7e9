"""What two policies searched for and read at the same questions: files of ``ssp eval --out``.

    python -m benchmarks.answers_shown base.jsonl trained.jsonl --out answers_shown.json

An answer is shown where one of its wordings stands in a document that a search found. A query is
the question where both are the same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import parser, write
from ssp_env.game.record import GameRecord
from ssp_env.replay import read_games
from ssp_env.wording.normal import normalise
from ssp_experiments.stats import compare, share


def main() -> None:
    options = parser(__doc__)
    options.add_argument("files", nargs=2, type=Path, help="games of the first and second policy")
    settings = options.parse_args()

    first, second = ([game.record for game in read_games(file)] for file in settings.files)
    if [game.question for game in first] != [game.question for game in second]:
        raise SystemExit("the two files are of other questions")
    result: dict[str, Any] = {
        file.stem: shares(games)
        for file, games in zip(settings.files, (first, second), strict=True)
    }
    rng = np.random.default_rng(settings.seed)
    pairs = [*map(is_shown, first)], [*map(is_shown, second)]
    result["shown, question by question"] = compare(*pairs, rng)
    write(settings.out, result)


def shares(games: Sequence[GameRecord]) -> dict[str, Any]:
    """Shares with their intervals, of the first attempt at each question."""
    shown = [game for game in games if is_shown(game)]
    counted = {
        "ended in an answer": (sum(g.attempts[0].result is not None for g in games), len(games)),
        "first query is the question": (sum(map(asks_the_question, games)), len(games)),
        "shown": (len(shown), len(games)),
        "right": (sum(map(is_right, games)), len(games)),
        "right where shown": (sum(map(is_right, shown)), len(shown)),
    }
    return {name: asdict(share(*counts)) for name, counts in counted.items()}


def is_shown(game: GameRecord) -> bool:
    found = [d for search in game.attempts[0].searches for d in search.documents]
    text = normalise(" ".join(f"{document.title} {document.text}" for document in found))
    return any(normalise(wording) in text for wording in (game.answer, *game.aliases))


def asks_the_question(game: GameRecord) -> bool:
    queries = [search.query for search in game.attempts[0].searches]
    return bool(queries) and normalise(queries[0]) == normalise(game.question or "")


def is_right(game: GameRecord) -> bool:
    return bool(game.attempts[0].right)


if __name__ == "__main__":
    main()
