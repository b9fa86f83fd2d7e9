"""What the questions of a run were like, window by window: repeats, topics, and how good the gate
was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from ssp_env.errors import MissingExtra
from ssp_env.game.record import GameRecord

ALIKE = 0.9
"""Cosine of two questions' character n-grams (TF-IDF) from which on they are near-duplicates."""
TOPICS = 6
"""Groups that questions are sorted into, at most."""


@dataclass(frozen=True)
class Window:
    """Questions that were written in some successive steps; shares of nothing are ``None``."""

    first_step: int
    last_step: int
    written: int
    """Proposals that came with a question."""
    accepted: int
    repeated: float | None
    """Share of the written ones that are word for word one written before, in any window."""
    alike: float | None
    """Share that are near-duplicates of one written before, repeats included."""
    precision: float | None
    """Of the questions that verification accepted, the share that is right and has one answer."""
    recall: float | None
    """Of the questions that are right and have one answer, the share that it accepted."""
    ambiguous: float | None
    """Of the accepted ones, the share with several right answers."""
    wrong: float | None
    """Of the accepted ones, the share whose ground truth is no right answer."""
    hops: float | None
    """Mean over the accepted ones."""
    solve_rate: float | None
    """Mean over the accepted ones."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def windows(
    games: Iterable[tuple[int, GameRecord]], size: int
) -> tuple[list[Window], dict[int, Window]]:
    """Figures of every ``size`` steps, and of every number of hops.

    Precision and recall are of verification alone, over the questions that it read, in worlds that
    know the truth; elsewhere they are ``None``.

    Args:
        games: step and record, in the order of play.
        size: steps per window.

    Returns:
        Windows of steps, in order; and, by number of hops, one of all questions of so many, over
        the steps in which such were asked. There are none of these where the world cannot tell.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    written = [(step, game) for step, game in games if game.origin == "proposed" and game.question]
    texts = [game.question or "" for _, game in written]
    repeated, alike = _repeats(texts), near_duplicates(texts)

    def window(inside: Sequence[int], steps: tuple[int, int]) -> Window:
        return _window(
            steps,
            [written[i][1] for i in inside],
            _share(repeated[i] for i in inside),
            _share(alike[i] for i in inside),
        )

    by_step = []
    for number in sorted({(step - 1) // size for step, _ in written}):
        inside = [i for i, (step, _) in enumerate(written) if (step - 1) // size == number]
        by_step.append(window(inside, (number * size + 1, written[inside[-1]][0])))

    by_hops = {}
    for hops in sorted({game.hops for _, game in written if game.hops is not None}):
        inside = [i for i, (_, game) in enumerate(written) if game.hops == hops]
        by_hops[hops] = window(inside, (written[inside[0]][0], written[inside[-1]][0]))

    return by_step, by_hops


def _window(
    steps: tuple[int, int],
    games: Sequence[GameRecord],
    repeated: float | None,
    alike: float | None,
) -> Window:
    accepted = [game for game in games if game.outcome == "valid"]
    known = [game for game in accepted if game.truly_correct is not None]

    read = [g for g in games if g.verification is not None and g.truly_correct is not None]
    passed = [game for game in read if game.verification and game.verification.correct]
    sound = [game for game in read if _sound(game)]

    return Window(
        *steps,
        written=len(games),
        accepted=len(accepted),
        repeated=repeated,
        alike=alike,
        precision=_share(_sound(game) for game in passed),
        recall=_share(bool(g.verification and g.verification.correct) for g in sound),
        ambiguous=_share(len(game.right_answers or ()) > 1 for game in known),
        wrong=_share(not game.truly_correct for game in known),
        hops=_mean(game.hops for game in accepted),
        solve_rate=_mean(game.solve_rate for game in accepted),
    )


def _sound(game: GameRecord) -> bool:
    """Whether the ground truth is the question's one right answer."""
    return bool(game.truly_correct) and len(game.right_answers or ()) == 1


def _repeats(texts: Sequence[str]) -> list[bool]:
    seen: set[str] = set()
    again = []
    for text in texts:
        again.append(text in seen)
        seen.add(text)
    return again


def near_duplicates(texts: Sequence[str]) -> list[bool]:
    """Whether each text is nearly one that came before it.

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
    found = [False] * len(texts)
    for start in range(0, len(texts), 1024):
        cosines = vectors[start : start + 1024] @ vectors.T
        for row, column, value in zip(*cosines.nonzero(), cosines.data, strict=True):
            if column < start + row and value >= ALIKE:
                found[start + row] = True
    return found


def topics(texts: Sequence[str], seed: int = 0) -> list[tuple[list[str], float]]:
    """The subjects of some questions: the words that tell each group, and its share.

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
        # No word is in two questions and not in nearly all: there are no subjects to tell.
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
    from importlib import import_module

    try:
        return import_module(f"sklearn.{module}")
    except ModuleNotFoundError as error:
        raise MissingExtra("ssp questions", "pip install -e '.[analysis]'") from error


def _share(values: Iterable[bool]) -> float | None:
    return _mean(float(value) for value in values)


def _mean(values: Iterable[float | None]) -> float | None:
    there = [float(value) for value in values if value is not None]
    return fmean(there) if there else None
