"""Which runs are of one arm, so that a mean over them says something, and what an arm is called."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from experiments.run.rundir import CHANGEABLE

ELSEWHERE = tuple(n for n in CHANGEABLE if n.startswith(("compute.", "search.", "openai.")))
"""Settings that only say by which machines and services a run is played."""


def arms(settings: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Groups the runs that differ in nothing but their seed, by their place.

    Machines and services (:data:`ELSEWHERE`) do not count. No arm has a seed twice: the second run
    of a seed begins another arm, together with the second runs of other seeds.

    Args:
        settings: of each run, by dotted name.
    """
    found: dict[tuple[str, int], list[int]] = {}
    times: Counter[tuple[str, Any]] = Counter()
    for place, values in enumerate(settings):
        same = {n: v for n, v in values.items() if n != "seed" and n not in ELSEWHERE}
        kind = json.dumps(same, sort_keys=True, default=str)
        seed = (kind, values.get("seed"))
        found.setdefault((kind, times[seed]), []).append(place)
        times[seed] += 1
    return list(found.values())


def arm_names(groups: Sequence[Sequence[int]], keys: Sequence[str]) -> list[str]:
    """What each arm is called in a legend: a run's own name, or what those of its runs share.

    Args:
        groups: of :func:`arms`.
        keys: the runs' names.
    """
    names = [_shared([keys[place] for place in members]) for members in groups]
    twice = {name for name, times in Counter(names).items() if times > 1 or not name}
    return [
        ", ".join(keys[place] for place in members) if name in twice else name
        for name, members in zip(names, groups, strict=True)
    ]


def _shared(keys: Sequence[str]) -> str:
    """How names begin, without the word "seed"; ``self-play-seed0`` and ``1`` are self-play."""
    if len(keys) == 1:
        return keys[0]
    shared = keys[0]
    for key in keys[1:]:
        while not key.startswith(shared):
            shared = shared[:-1]
    return re.sub(r"[-_.]*(seed)?[-_=.]*\d*$", "", shared)
