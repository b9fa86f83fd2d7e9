"""``ssp questions``: the questions of a run, as a data set (the ledger) and in figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from json import dumps
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfVectorizer

from experiments.report.runs import step_files
from experiments.run.rundir import RunDirectory
from ssp_env.disk import replacing
from ssp_env.errors import ConfigError, RunError
from ssp_env.game.record import GameRecord
from ssp_env.replay import read_games

ALIKE = 0.9
"""Cosine of two questions' character n-grams (TF-IDF) from which on they are near-duplicates."""
TOPICS = 6
"""Groups that questions are sorted into, at most."""
COLUMNS = 8
"""Columns of a run's table where nobody says how many steps each has."""
MEANINGS = {
    "written": "questions written",
    "accepted": "accepted",
    "repeated": "written before",
    "alike": "or nearly so",
    "precision": "precision of the gate",
    "recall": "recall of the gate",
    "ambiguous": "accepted: ambiguous",
    "wrong": "accepted: wrong",
    "hops": "accepted: hops",
    "solve_rate": "accepted: solve rate",
}
"""Figures of some questions, in words."""

KNOWN = {"question", "hops", "truly_correct", "right_answers"}
"""Fields of a record that are the same in all games about a question."""
PLAYED: dict[str, Any] = {
    "outcome": True,
    "reason": True,
    "solve_rate": True,
    "proposer_reward": True,
    "verification": True,
    "noise": {"__all__": {"document": {"id"}, "origin": True}},
    "weights_version": True,
}
"""Fields of a record that differ from game to game."""
RECORD = TypeAdapter(GameRecord)

Entry = dict[str, Any]
Played = tuple[int, GameRecord]
"""A game and its step."""


def run(directory: str, *, out: str | None, all: bool, window: int | None, json: bool) -> int:
    """Writes the ledger, if asked to, and prints the figures."""
    if window is not None and window < 1:
        raise ConfigError("--window", window, "must be at least 1")

    games = list(games_of(directory))
    entries = ledger(games, directory)
    kept = [entry for entry in entries if all or entry["accepted"]]
    accepted = sum(entry["accepted"] for entry in entries)

    steps, asked = max((step for step, _ in games), default=1), written(games)
    windows = by_step(asked, window or -(-steps // COLUMNS))
    lengths = by_hops(asked)
    subjects = topics([entry["question"] for entry in kept])

    if out:
        with replacing(Path(out)) as file:
            file.writelines(dumps(entry, ensure_ascii=False) + "\n" for entry in kept)

    if json:
        data = {
            "run": directory,
            "questions": len(entries),
            "accepted": accepted,
            "windows": windows,
            "hops": lengths,
            "topics": [{"words": words, "share": share} for words, share in subjects],
        }
        print(dumps(data, indent=2))
        return 0

    _show("by step", {f"{each['first_step']}-{each['last_step']}": each for each in windows})
    _show("by length", {f"{n} hop{'s'[: n != 1]}": each for n, each in lengths.items()})
    print(f"{len(entries)} different questions, {accepted} of them accepted")
    for words, share in subjects:
        print(f"  {share:4.0%}  {', '.join(words)}")
    if out:
        print(f"{len(kept)} questions are in {out}")
    return 0


def _show(title: str, columns: dict[str, Entry]) -> None:
    if not columns:
        return
    table = Table("", title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="right")
    for name, meaning in MEANINGS.items():
        values = (column[name] for column in columns.values())
        shown = ("-" if v is None else str(v) if isinstance(v, int) else f"{v:.2f}" for v in values)
        table.add_row(meaning, *shown)
    Console(highlight=False).print(table)


# -- the ledger --------------------------------------------------------------------------------


def games_of(run: str | Path) -> Iterator[Played]:
    """Step and record of every game of a run, in the order of play; void games are left out.

    A run in progress is read as far as it is.

    Raises:
        RunError: the directory holds no games of a run.
        DataError: a file of games is damaged; names file, line and field.
    """
    files = step_files(RunDirectory(run).games)
    if not files:
        raise RunError(f"{run} holds no games of a run (games/step_000001.jsonl is missing)")
    for step, file in files.items():
        for saved in read_games(file):
            if saved.record.outcome != "void":
                yield step, saved.record


def ledger(games: Iterable[Played], run: str | Path) -> list[Entry]:
    """Every question of some games, in the order in which they were first written.

    A question that was written twice, or played again from the pool, is one entry. It holds what is
    known of the question; ``accepted``, True if any of its games was valid; ``solve_rate``, the
    mean over its valid games; its path when it was first written (``searches``, and ``evidence``,
    passages in full); ``games``, what became of it each time; and ``provenance``, where it was
    first written. All entries have the same fields, so that
    ``datasets.load_dataset("json", data_files=...)`` reads a file of them.

    Args:
        games: step and record, in the order of play; see :func:`games_of`.
        run: the directory of their run, for its name.
    """
    name = Path(run).resolve().name
    entries: dict[tuple[str, str], Entry] = {}
    for step, game in games:
        if not game.question:
            continue
        place = {"step": step, "slot": game.slot}
        proposer = game.named().get("proposer")
        searches = proposer.searches if proposer is not None else ()
        found = {document.id: document for search in searches for document in search.documents}
        first: Entry = {
            **RECORD.dump_python(game, mode="json", include=KNOWN),
            "answer": game.answer,
            "aliases": list(game.aliases),
            "accepted": False,
            "solve_rate": None,
            "searches": [
                {"query": search.query, "found": [document.id for document in search.documents]}
                for search in searches
            ],
            "evidence": [
                {"id": each, "title": found[each].title, "text": found[each].text}
                for each in game.evidence
                if each in found
            ],
            "games": [],
            "provenance": {"run": name, **place, "weights_version": game.weights_version},
        }
        attempts = [
            {
                "answer": attempt.result,
                "correct": attempt.verdict.correct if attempt.verdict else None,
                "searches": len(attempt.searches),
            }
            for attempt in game.attempts
        ]
        played = RECORD.dump_python(game, mode="json", include=PLAYED)
        entry = entries.setdefault((game.question, game.start.truth.id), first)
        entry["games"].append({**place, "origin": game.origin, **played, "attempts": attempts})

    for entry in entries.values():
        rates = [played["solve_rate"] for played in entry["games"] if played["outcome"] == "valid"]
        entry["accepted"] = bool(rates)
        entry["solve_rate"] = sum(rates) / len(rates) if rates else None
    return list(entries.values())


# -- figures -----------------------------------------------------------------------------------


def written(games: Iterable[Played]) -> pd.DataFrame:
    """One row per question that a proposer wrote, in the order of play.

    Questions are ``sound`` that are right and have one answer; worlds that do not know the truth
    leave this, ``wrong`` and ``ambiguous`` empty.

    Args:
        games: step and record; questions that were played again from the pool do not count.
    """
    rows = []
    for step, game in games:
        if game.origin != "proposed" or not game.question:
            continue
        known = game.truly_correct is not None
        answers = len(game.right_answers or ())
        row = {
            "step": step,
            "question": game.question,
            "accepted": game.outcome == "valid",
            "hops": game.hops,
            "solve_rate": game.solve_rate,
            "verified": None if game.verification is None else game.verification.correct,
            "sound": bool(game.truly_correct) and answers == 1 if known else None,
            "ambiguous": answers > 1 if known else None,
            "wrong": not game.truly_correct if known else None,
        }
        rows.append(row)

    names = ["step", "question", "accepted", "hops", "solve_rate", "verified", "sound"]
    frame = pd.DataFrame(rows, columns=[*names, "ambiguous", "wrong"])
    # Word for word, and nearly, one that was written before.
    frame["repeated"] = frame["question"].duplicated()
    frame["alike"] = near_duplicates(list(frame["question"]))
    return frame


def figures(rows: pd.DataFrame) -> Entry:
    """Figures of some questions; ``None`` stands for the share of nothing.

    Precision and recall are of verification alone, over the questions that it read.
    """
    accepted = rows[rows["accepted"]]
    read = rows[rows["verified"].notna() & rows["sound"].notna()]
    # An "object" column of booleans and gaps has no mean of its own.
    means = {
        "repeated": rows["repeated"],
        "alike": rows["alike"],
        "precision": read.loc[read["verified"] == True, "sound"],  # noqa: E712
        "recall": read.loc[read["sound"] == True, "verified"],  # noqa: E712
        "ambiguous": accepted["ambiguous"],
        "wrong": accepted["wrong"],
        "hops": accepted["hops"],
        "solve_rate": accepted["solve_rate"],
    }
    found: Entry = {
        "first_step": int(rows["step"].min()),
        "last_step": int(rows["step"].max()),
        "written": len(rows),
        "accepted": len(accepted),
    }
    for name, values in means.items():
        there = values.dropna().astype(float)
        found[name] = float(there.mean()) if len(there) else None
    return found


def by_step(rows: pd.DataFrame, size: int) -> list[Entry]:
    """Figures of every ``size`` steps in which questions were written."""
    return [figures(part) for _, part in rows.groupby((rows["step"] - 1) // size)]


def by_hops(rows: pd.DataFrame) -> dict[int, Entry]:
    """Figures of all questions of each number of hops; none where the world cannot tell."""
    return {int(hops): figures(part) for hops, part in rows.groupby("hops")}


def near_duplicates(texts: Sequence[str]) -> list[bool]:
    """For each text, True if it is nearly one that came before it."""
    if not texts:
        return []

    vectors = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5)).fit_transform(texts)
    # Of each pair the later one is the duplicate: the lower triangle, without the diagonal.
    found = np.zeros(len(texts), dtype=bool)
    for start in range(0, len(texts), 1024):
        cosines = (vectors[start : start + 1024] @ vectors.T).tocoo()
        later = cosines.row + start
        found[later[(cosines.col < later) & (cosines.data >= ALIKE)]] = True
    return [bool(each) for each in found]


def topics(texts: Sequence[str], seed: int = 0) -> list[tuple[list[str], float]]:
    """The subjects of some questions: the most typical words of each group, and its share.

    Args:
        texts: questions, each once.
        seed: of the clustering.
    """
    vectorizer = TfidfVectorizer(min_df=2, max_df=0.9, token_pattern=r"[^\W\d_]{2,}")
    try:
        vectors = vectorizer.fit_transform(texts)
    except ValueError:
        # No word is in two questions and not in nearly all, so there are no subjects.
        return []

    # A group of fewer than five questions is not a subject, and equal questions are one point.
    points = {(tuple(row.indices), tuple(row.data)) for row in vectors}
    count = min(TOPICS, len(texts) // 5, len(points))
    if count < 2:
        return []

    fitted = KMeans(count, n_init=3, random_state=seed).fit(vectors)
    words = vectorizer.get_feature_names_out()
    groups = [
        (
            [str(words[i]) for i in centre.argsort()[::-1][:4] if centre[i] > 0],
            float((fitted.labels_ == group).mean()),
        )
        for group, centre in enumerate(fitted.cluster_centers_)
    ]
    return sorted(groups, key=lambda group: -group[1])
