"""Figures of a run's questions, by step and by length: repeats, topics, quality of the gate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from ssp_env.errors import MissingExtra
from ssp_env.game.record import GameRecord

ALIKE = 0.9
"""Cosine of two questions' character n-grams (TF-IDF) from which on they are near-duplicates."""
TOPICS = 6
"""Groups that questions are sorted into, at most."""

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

Figures = dict[str, Any]


def written(games: Iterable[tuple[int, GameRecord]]) -> pd.DataFrame:
    """One row per question that a proposer wrote, in the order of play.

    Questions are ``sound`` that are right and have one answer; worlds that do not know the truth
    leave this, ``wrong`` and ``ambiguous`` empty.

    Args:
        games: step and record; questions that were played again from the pool do not count.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    rows = []
    for step, game in games:
        if game.origin != "proposed" or not game.question:
            continue
        known = game.truly_correct is not None
        answers = len(game.right_answers or ())
        row: Figures = {
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


def figures(rows: pd.DataFrame) -> Figures:
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
    found: Figures = {
        "first_step": int(rows["step"].min()),
        "last_step": int(rows["step"].max()),
        "written": len(rows),
        "accepted": len(accepted),
    }
    for name, values in means.items():
        there = values.dropna().astype(float)
        found[name] = float(there.mean()) if len(there) else None
    return found


def by_step(rows: pd.DataFrame, size: int) -> list[Figures]:
    """Figures of every ``size`` steps in which questions were written."""
    return [figures(part) for _, part in rows.groupby((rows["step"] - 1) // size)]


def by_hops(rows: pd.DataFrame) -> dict[int, Figures]:
    """Figures of all questions of each number of hops; none where the world cannot tell."""
    return {int(hops): figures(part) for hops, part in rows.groupby("hops")}


def near_duplicates(texts: Sequence[str]) -> list[bool]:
    """For each text, True if it is nearly one that came before it.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    if not texts:
        return []

    vectorizer = _sklearn("feature_extraction.text").TfidfVectorizer(
        analyzer="char_wb", ngram_range=(3, 5)
    )
    vectors = vectorizer.fit_transform(texts)
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

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    vectorizer = _sklearn("feature_extraction.text").TfidfVectorizer(
        min_df=2, max_df=0.9, token_pattern=r"[^\W\d_]{2,}"
    )
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

    fitted = _sklearn("cluster").KMeans(count, n_init=3, random_state=seed).fit(vectors)
    words = vectorizer.get_feature_names_out()
    groups = [
        (
            [str(words[i]) for i in centre.argsort()[::-1][:4] if centre[i] > 0],
            float((fitted.labels_ == group).mean()),
        )
        for group, centre in enumerate(fitted.cluster_centers_)
    ]
    return sorted(groups, key=lambda group: -group[1])


def _sklearn(module: str) -> Any:
    try:
        return import_module(f"sklearn.{module}")
    except ModuleNotFoundError as error:
        raise MissingExtra("ssp questions", "pip install -e '.[analysis]'") from error
