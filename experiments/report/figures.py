"""Figures of ``metrics.jsonl`` and the charts that they are drawn in.

A figure that is new finds its chart by its name; one that fits nowhere gets a chart of its own. So
nothing has to be listed twice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import pandas as pd

NOT_FIGURES = frozenset({"accuracy", "interval", "questions", "void_questions"})
"""Parts of a line that are no figures of a step."""
REASON = "invalid_"
"""Beginning of the shares of proposals that failed for a reason."""


class Chart(NamedTuple):
    """Figures that share a pair of axes."""

    group: str
    """Heading that it stands under."""
    title: str
    unit: str
    """Unit of the vertical axis."""
    figures: tuple[str, ...]
    """Names in ``metrics.jsonl``; those of a mapping are joined by a dot."""


REWARDS, QUESTIONS, LENGTHS = "Accuracy and rewards", "Questions", "Searches and lengths"
HEALTH, TIME = "Health of learning", "Games and time"
KINDS = (
    (REWARDS, "What each role is paid", "mean reward", r"(proposer|solver)_reward.*"),
    (QUESTIONS, "Proposals that count", "share", r"valid_rate|verified_rate|filled_slots"),
    (QUESTIONS, "Why proposals fail", "share of proposals", r"invalid_.*"),
    (QUESTIONS, "What the world says of them", "share", r"(true|ambiguous)_share"),
    (QUESTIONS, "Questions that repeat others", "share", r"repeated_share"),
    (QUESTIONS, "Hops of accepted questions", "hops", r"question_hops"),
    (QUESTIONS, "Accepted questions by hops", "share", r"share_\d+hop"),
    (LENGTHS, "Searches", "calls per trajectory", r".*_searches"),
    (LENGTHS, "Length of what is written", "tokens", r"(proposer|solver)_tokens"),
    (LENGTHS, "Out of tokens", "share", r"(proposer|solver)_overlong"),
    (LENGTHS, "Length of questions", "words", r"question_words"),
    (LENGTHS, "Tokens per step", "tokens", r"(policy|all|learner_trained)_tokens"),
    (HEALTH, "Entropy", "nats", r".*entropy.*"),
    (HEALTH, "Loss", "weighted sum", r"learner_(.+_)?loss(_.+)?"),
    (HEALTH, "KL", "nats", r"learner_(.+_)?kl(_.+)?"),
    (HEALTH, "Gradient norm", "before clipping", r".*grad_norm.*"),
    (HEALTH, "Engine and learner apart", "nats per token", r".*_gap"),
    (HEALTH, "Skipped and clipped", "share", r"learner_.*(skipped|clip).*"),
    (HEALTH, "Advantages", "", r".*advantage.*"),
    (HEALTH, "", "", r"learner_.*"),
    (TIME, "Games per step", "games", r"games|.*_games"),
    (TIME, "Attempts hit by an outage", "attempts", r"void_attempts"),
    (TIME, "Seconds per step", "seconds", r"seconds\..*"),
    ("Other figures", "", "", r".*"),
)
"""Heading, title, unit and the names that fit, in the order of the page. A figure belongs to the
first; without a title, each has a chart of its own."""

LABELS = {
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


def figures_of(lines: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Figures by step, mappings made flat (``seconds.engine``); NaN where there is none, or where
    it was not finite.

    A reason (``invalid_spoiler``) is only written in steps where it occurred: in the others that
    proposed anything, its share is 0.
    """
    kept = [{n: v for n, v in line.items() if n not in NOT_FIGURES} for line in lines]
    frame = pd.json_normalize(kept).set_index("step").apply(pd.to_numeric, errors="coerce")
    if "valid_rate" in frame:
        reasons = [name for name in frame if name.startswith(REASON)]
        proposed = frame["valid_rate"].notna()
        frame.loc[proposed, reasons] = frame.loc[proposed, reasons].fillna(0.0)
    return frame.dropna(axis="columns", how="all")


def charts(names: Iterable[str]) -> list[Chart]:
    """Deals figures to charts, in the order of the page; each figure is in exactly one."""
    left, dealt = sorted({*names}), []
    for group, title, unit, pattern in KINDS:
        found = [name for name in left if re.fullmatch(pattern, name)]
        left = [name for name in left if name not in found]
        if found and title:
            dealt.append(Chart(group, title, unit, tuple(found)))
        else:
            dealt += [Chart(group, spoken(name).capitalize(), unit, (name,)) for name in found]
    return dealt


def spoken(name: str) -> str:
    """The words for a figure in a legend."""
    if name in LABELS:
        return LABELS[name]
    if found := re.fullmatch(r"share_(\d+)hop", name):
        return spoken_group(found[1])
    name = re.sub(rf"^({REASON}|learner_|seconds\.)", "", name)  # its heading says that
    name = re.sub(r"^(proposer|solver)_(tokens|searches|baseline|overlong)$", r"\1", name)
    return re.sub(r"[_.]+", " ", name)


def spoken_group(group: str) -> str:
    """The words for a group of questions: a number of hops, or a benchmark's name."""
    if not group.isdecimal():
        return group
    return f"{group} hop" if group == "1" else f"{group} hops"
