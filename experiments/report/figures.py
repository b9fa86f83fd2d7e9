"""Which figures of ``metrics.jsonl`` are drawn together, and what people call them.

A figure that is new finds its chart by its name; one that fits nowhere gets a chart of its own. So
nothing has to be listed twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

NOT_FIGURES = frozenset({"step", "accuracy", "interval", "bounds", "questions", "void_questions"})
"""Parts of a line that are no figures of a step."""
REASON = "invalid_"
"""How the shares of proposals that failed for a reason begin."""


@dataclass(frozen=True)
class Chart:
    """Figures that share a pair of axes."""

    group: str
    """The heading that it stands under."""
    title: str
    unit: str
    """What the vertical axis counts."""
    figures: tuple[str, ...]
    """Names in ``metrics.jsonl``; those of a mapping are joined by a dot."""
    labels: tuple[str, ...]
    """What each of them is called in a legend."""


@dataclass(frozen=True)
class _Kind:
    group: str
    title: str
    unit: str
    names: str
    """A regular expression of whole names."""


_KINDS = (
    _Kind(
        "Accuracy and rewards",
        "What each role is paid",
        "mean reward",
        r"(proposer|solver)_reward.*",
    ),
    _Kind("Accuracy and rewards", "Baselines", "reward", r"(proposer|solver)_baseline"),
    _Kind("Questions", "Proposals that count", "share", r"valid_rate|verified_rate|filled_slots"),
    _Kind("Questions", "Why proposals fail", "share of proposals", r"invalid_.*"),
    _Kind("Questions", "What the world says of them", "share", r"(true|ambiguous)_share"),
    _Kind("Questions", "Questions that repeat others", "share", r"repeated_share"),
    _Kind("Questions", "Hops of accepted questions", "hops", r"question_hops"),
    _Kind("Questions", "Accepted questions by hops", "share", r"share_\d+hop"),
    _Kind("Searches and lengths", "Searches", "calls per trajectory", r".*_searches"),
    _Kind(
        "Searches and lengths", "Length of what is written", "tokens", r"(proposer|solver)_tokens"
    ),
    _Kind("Searches and lengths", "Out of tokens", "share", r"(proposer|solver)_overlong"),
    _Kind("Searches and lengths", "Length of questions", "words", r"question_words"),
    _Kind(
        "Searches and lengths", "Tokens per step", "tokens", r"(policy|all|learner_trained)_tokens"
    ),
    _Kind("Health of learning", "Entropy", "nats", r".*entropy.*"),
    _Kind("Health of learning", "Loss", "weighted sum", r"learner_(.+_)?loss(_.+)?"),
    _Kind("Health of learning", "KL", "nats", r"learner_(.+_)?kl(_.+)?"),
    _Kind("Health of learning", "Gradient norm", "before clipping", r".*grad_norm.*"),
    _Kind("Health of learning", "Engine and learner apart", "nats per token", r".*_gap"),
    _Kind("Health of learning", "Skipped and clipped", "share", r"learner_.*(skipped|clip).*"),
    _Kind("Health of learning", "Advantages", "", r".*advantage.*"),
    _Kind("Health of learning", "", "", r"learner_.*"),
    _Kind("Games and time", "Games per step", "games", r"games|.*_games"),
    _Kind("Games and time", "Attempts hit by an outage", "attempts", r"void_attempts"),
    _Kind("Games and time", "Seconds per step", "seconds", r"seconds\..*"),
    _Kind("Other figures", "", "", r".*"),
)
"""In the order of the page. A figure belongs to the first that its name fits; without a title, each
has a chart of its own."""

_LABELS = {
    "proposer_reward": "proposer",
    "solver_reward": "solver",
    "solver_reward_fresh": "solver, new questions",
    "valid_rate": "valid, of the proposals",
    "verified_rate": "verified, of those that were read",
    "filled_slots": "slots filled",
    "true_share": "ground truth is right",
    "ambiguous_share": "has other right answers",
    "question_hops": "hops",
    "question_words": "words",
    "policy_tokens": "sampled",
    "all_tokens": "sampled, prompted, retrieved",
    "learner_trained_tokens": "trained on",
    "games": "played",
}
_SPOKEN = (REASON, "learner_", "seconds.")
"""Beginnings that a heading says already."""


def figures_of(line: dict[str, Any], names: Iterable[str] = ()) -> dict[str, float | None]:
    """The figures of a line of ``metrics.jsonl``, mappings made flat (``seconds.engine``).

    ``None`` is a figure that was not finite. What is no number is left out.

    Args:
        line: of ``metrics.jsonl``.
        names: figures that other lines have. A reason (``invalid_spoiler``) is only written in
            steps where it occurred; where it did not, but others could have, its share is 0.
    """
    found: dict[str, float | None] = {}
    for name, value in line.items():
        if name not in NOT_FIGURES:
            _flatten(name, value, found)

    if found.get("valid_rate") is not None:
        for name in names:
            if name.startswith(REASON):
                found.setdefault(name, 0.0)
    return found


def charts(names: Iterable[str]) -> list[Chart]:
    """Deals figures to charts, in the order of the page; each figure is in exactly one."""
    by_kind: dict[_Kind, list[str]] = {kind: [] for kind in _KINDS}
    for name in names:
        kind = next(kind for kind in _KINDS if re.fullmatch(kind.names, name))
        by_kind[kind].append(name)
    return [chart for kind, found in by_kind.items() for chart in _of_kind(kind, sorted(found))]


def spoken(name: str) -> str:
    """What a figure is called in a legend."""
    if name in _LABELS:
        return _LABELS[name]
    for beginning in _SPOKEN:
        name = name.removeprefix(beginning)
    if found := re.fullmatch(r"share_(\d+)hop", name):
        return spoken_group(found[1])
    name = re.sub(r"^(proposer|solver)_(tokens|searches|baseline|overlong)$", r"\1", name)
    return re.sub(r"[_.]+", " ", name)


def spoken_group(group: str) -> str:
    """What a group of questions is called: a number of hops, or a benchmark's name."""
    if not group.isdecimal():
        return group
    return f"{group} hop" if group == "1" else f"{group} hops"


def _of_kind(kind: _Kind, names: Sequence[str]) -> list[Chart]:
    if not names:
        return []
    if kind.title:
        labels = tuple(map(spoken, names))
        return [Chart(kind.group, kind.title, kind.unit, tuple(names), labels)]
    return [
        Chart(kind.group, spoken(name).capitalize(), kind.unit, (name,), (spoken(name),))
        for name in names
    ]


def _flatten(name: str, value: Any, found: dict[str, float | None]) -> None:
    if isinstance(value, dict):
        for inner, item in value.items():
            _flatten(f"{name}.{inner}", item, found)
    elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        found[name] = value
