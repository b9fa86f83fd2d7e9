"""Signs of a run that has gone wrong, read off its figures step by step.

A collapsed policy goes on playing: it proposes nothing valid, earns nothing, learns nothing, and
costs as much as before. So does a run whose engine or search is gone for good: its games are void.
This notices, and says why and what usually helps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import PositiveFloat, PositiveInt

from ssp_env.config import Settings
from ssp_env.game.outcome import Outage

OUTAGE = "outage"
"""The sign that says nothing of the policy: what a run needs was gone."""

Figures = Mapping[str, float | None]
"""Figures of a step, as ``metrics.jsonl`` has them; ``None`` for one that is not finite."""


MAX_OVERLONG = 0.9
"""Share of a role's trajectories that run into the token budget."""


class HealthConfig(Settings):
    """When a run is stopped."""

    section: ClassVar[str] = "health"

    patience: PositiveInt | None = 5
    """Steps in a row that have to show the same sign; ``None`` never stops a run."""
    max_engine_gap: PositiveFloat = 0.5
    """Mean distance between the log-probabilities of engine and learner, in nats per token."""


@dataclass(frozen=True)
class Diagnosis:
    """Why a run should stop."""

    sign: str
    """Its name: one of ``SIGNS``."""
    step: int
    """The last of the steps that showed it."""
    cause: str
    """Sentence about what was seen."""
    helps: str
    """Sentence or two about what usually helps."""

    def __str__(self) -> str:
        return f"{self.cause}. What usually helps: {self.helps}"


Look = Callable[[Figures, HealthConfig], str | None]
"""Fault of a step, in words; empty if nothing, ``None`` if the step cannot tell."""


class Monitor:
    """Counts, for each sign, the steps in a row that show it."""

    def __init__(self, config: HealthConfig) -> None:
        self._config = config
        self._rows = dict.fromkeys(SIGNS, 0)
        self._thrived = False

    def __call__(
        self, step: int, figures: Figures, outages: Sequence[Outage] = ()
    ) -> Diagnosis | None:
        """Takes the figures of the next step; a diagnosis if the run should stop after it.

        A step that cannot tell neither counts nor breaks a row: one whose games an outage has
        voided says nothing of the policy.

        Args:
            step: its number.
            figures: what ``metrics.jsonl`` says of it.
            outages: what failed in it; a diagnosis quotes what failed most often.
        """
        for sign, (look, _, _) in SIGNS.items():
            seen = look(figures, self._config)
            if seen is not None:
                self._rows[sign] = self._rows[sign] + 1 if seen else 0

            if seen and self._config.patience and self._rows[sign] >= self._config.patience:
                return self._diagnosis(sign, step, seen + _quoted(sign, outages))

        self._thrived = self._thrived or bool(figures.get("valid_rate"))
        return None

    def replay(self, lines: Iterable[Mapping[str, float | None]]) -> None:
        """Takes the lines of ``metrics.jsonl`` that a resumed run has behind it."""
        for line in lines:
            if line["step"]:
                self(int(line["step"]), line)

    def begin_again(self) -> None:
        """Forgets all signs, though not whether anything was ever valid."""
        self._rows = dict.fromkeys(SIGNS, 0)

    def _diagnosis(self, sign: str, step: int, seen: str) -> Diagnosis:
        _, collapsed, never = SIGNS[sign]
        lasted = f"in each of the last {self._rows[sign]} steps, {seen}"
        return Diagnosis(sign, step, lasted, collapsed if self._thrived else never)


def _not_finite(figures: Figures, config: HealthConfig) -> str | None:
    if not figures.get("learner_updates"):
        return None

    losses = [figures.get(name) for name in ("learner_loss", "learner_grad_norm")]
    broken = any(value is None or not math.isfinite(value) for value in losses)
    return "the loss or its gradient was not finite" if broken else ""


def _outage(figures: Figures, config: HealthConfig) -> str | None:
    void, games = _known(figures, "void_games"), _known(figures, "games")
    if void is None or games is None:
        return None
    if not void or figures.get("filled_slots"):
        return ""
    return f"no game was valid, and an outage voided {void:.0f} of {games:.0f}"


def _quoted(sign: str, outages: Sequence[Outage]) -> str:
    if sign != OUTAGE or not outages:
        return ""
    ((service, what), _), *_ = Counter((o.service, o.what) for o in outages).most_common(1)
    return f" ({service}: {what})"


def _nothing_valid(figures: Figures, config: HealthConfig) -> str | None:
    rate = _known(figures, "valid_rate")
    if rate is None:
        return None
    return f"no proposed question was valid ({_reasons(figures)})" if rate == 0 else ""


def _engine_gap(figures: Figures, config: HealthConfig) -> str | None:
    gap, bound = _known(figures, "engine_gap"), config.max_engine_gap
    if gap is None or gap <= bound:
        return None if gap is None else ""

    apart = f"{gap:.2f} nats per token apart"
    return f"the log-probabilities of engine and learner were {apart} ({bound:g} are allowed)"


def _overlong(figures: Figures, config: HealthConfig) -> str | None:
    known = {role: _known(figures, f"{role}_overlong") for role in ("proposer", "solver")}
    shares = {role: share for role, share in known.items() if share is not None}
    if not shares:
        return None

    role = max(shares, key=shares.__getitem__)
    if shares[role] <= MAX_OVERLONG:
        return ""
    return f"{shares[role]:.0%} of the {role}'s trajectories ran into the token budget"


def _known(figures: Figures, name: str) -> float | None:
    """A figure; ``None`` if the step has none, or it is not a number."""
    value = figures.get(name)
    return None if value is None or math.isnan(value) else value


def _reasons(figures: Figures) -> str:
    shares = sorted(
        (
            (share or 0.0, name.removeprefix("invalid_"))
            for name, share in figures.items()
            if name.startswith("invalid_")
        ),
        reverse=True,
    )
    return ", ".join(f"{name} {share:.0%}" for share, name in shares[:3]) or "no reasons known"


_COLLAPSED = (
    "the policy has collapsed, so start again with a lower learning.lr, more learning.kl_coeff or "
    "a lower learning.proposer_weight; the last good weights are in an earlier checkpoint, if any"
)

_SERVICE = (
    "see that the service named is there and answers, then go on by --resume; an engine that has "
    "died comes back with a new process. Weights that are not numbers need an earlier checkpoint, "
    "or a new run with a lower learning.lr"
)

SIGNS: dict[str, tuple[Look, str, str]] = {
    OUTAGE: (_outage, _SERVICE, _SERVICE),
    "not_finite": (
        _not_finite,
        "lower learning.lr, more learning.warmup_steps, or learning.precision=float32",
        "lower learning.lr, more learning.warmup_steps, or learning.precision=float32",
    ),
    "nothing_valid": (
        _nothing_valid,
        _COLLAPSED,
        "read some games (ssp replay RUN/games/step_000001.jsonl): a policy that breaks the format "
        "needs another prompt set or a model that follows instructions, and questions that are "
        "unverified may need another game.verifier",
    ),
    "engine_gap": (
        _engine_gap,
        "see that engine and learner compute the same policy: learning.precision=float32, another "
        "engine.kind, the same temperature; if the gap grew slowly, a lower learning.lr",
        "see that engine and learner compute the same policy: learning.precision=float32, another "
        "engine.kind, the same temperature",
    ),
    "overlong": (
        _overlong,
        _COLLAPSED,
        "a larger game.max_response_tokens, or a model that ends its turns",
    ),
}
"""Each sign: how to see it, and what helps a run that has had valid questions, and one that never
had any."""
