"""Signs of a run that has gone wrong, read off its figures step by step.

A collapsed policy goes on playing: it proposes nothing valid, earns nothing, learns nothing, and
costs as much as before. So does a run whose engine or search is gone for good: its games are void.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ssp_agents.config import ROLES
from ssp_env.game.outcome import Outage

OUTAGE = "outage"
"""The sign that says nothing of the policy: what a run needs was gone."""

Figures = Mapping[str, float | None]
"""Figures of a step, as ``metrics.jsonl`` has them; ``None`` for one that is not finite."""
MAX_UNSOLVED = 0.5
"""Share of verified questions that no attempt solves: most of these are wrong."""
MAX_OVERLONG = 0.9
"""Share of a role's trajectories that run into the token budget."""


@dataclass(frozen=True)
class Diagnosis:
    """Reason to stop a run, in words: the cause, and what usually helps."""

    sign: str
    """One of ``SIGNS``."""
    step: int
    """The last of the steps that showed it."""
    cause: str
    helps: str

    def __str__(self) -> str:
        return f"{self.cause}. What usually helps: {self.helps}"


_SMALLER_STEPS = (
    "a lower learning.lr, more learning.kl_coeff or warmup_steps, or a lower proposer_weight; the "
    "last good weights are in an earlier checkpoint, if any"
)
SIGNS = {
    OUTAGE: (
        "see that the service named is there and answers, then go on by --resume; an engine that "
        "has died comes back with a new process. Weights that are not numbers need an earlier "
        "checkpoint, or a new run with a lower learning.lr"
    ),
    "not_finite": _SMALLER_STEPS,
    "nothing_valid": (
        "if questions were valid before, the policy has collapsed: " + _SMALLER_STEPS + ". Else "
        "read some games (ssp replay RUN/games/step_000001.jsonl): a policy that breaks the format "
        "needs another prompt set, a model that follows instructions, or ssp imitate first, and "
        "questions that are unverified may need another game.verifier"
    ),
    "nothing_right": (
        "easier questions, a model that finds some of the answers, or prompts whose tags it "
        "writes: ssp eval, and some games (ssp replay RUN/games/step_000001.jsonl), show how "
        "attempts end. If they were right before, the policy has collapsed: " + _SMALLER_STEPS
    ),
    "overlong": (
        "a larger game.max_response_tokens, or a model that ends its turns; if it did before, the "
        "policy has collapsed: " + _SMALLER_STEPS
    ),
    "unsolved": (
        "read some of them (ssp replay RUN/games/...): if they are wrong, game.filters with "
        "unsolved, game.proposer_reward=4p(1-p), or a stronger game.verifier; if they "
        "are too hard, a model that can search, or fewer game.asked_searches"
    ),
}
"""Help for each sign."""


class Monitor:
    """Counts, for each sign, the steps in a row that show it."""

    def __init__(self, patience: int | None = 5) -> None:
        """``patience`` steps in a row have to show the same sign; ``None`` never stops a run."""
        self._patience = patience
        self._in_a_row = dict.fromkeys(SIGNS, 0)

    def __call__(
        self, step: int, figures: Figures, outages: Sequence[Outage] = ()
    ) -> Diagnosis | None:
        """Takes the figures of the next step; a diagnosis if the run should stop after it, which
        quotes the most frequent of the step's outages.

        A step without a sign's figure neither counts nor breaks a row: one whose games an outage
        has voided says nothing of the policy.
        """
        # Signs are counted apart: a step may show some of them and not know of others.
        for sign, seen in _faults(figures).items():
            self._in_a_row[sign] = count = self._in_a_row[sign] + 1 if seen else 0
            if seen and self._patience and count >= self._patience:
                if sign == OUTAGE and outages:
                    named = Counter((outage.service, outage.what) for outage in outages)
                    seen += " ({}: {})".format(*named.most_common(1)[0][0])
                lasted = f"each of the last {count} steps" if count > 1 else "the last step"
                return Diagnosis(sign, step, f"in {lasted}, {seen}", SIGNS[sign])
        return None

    def replay(self, lines: Iterable[Mapping[str, float | None]]) -> None:
        """Takes the lines of ``metrics.jsonl`` that a resumed run has behind it."""
        for line in lines:
            # Step 0 is the base policy, before anything was played.
            if line["step"]:
                self(int(line["step"]), line)


def _faults(figures: Figures) -> dict[str, str]:
    """Fault of a step in words, or "", for each sign that its figures can show."""
    # A line of metrics.jsonl also holds mappings, such as accuracy by group.
    known = {n: v for n, v in figures.items() if isinstance(v, int | float) and math.isfinite(v)}
    faults = {}

    if "void_games" in known:
        void, games = known["void_games"], known["games"]
        lost = void and not known.get("filled_slots")
        what = f"no game was valid, and an outage voided {void:.0f} of {games:.0f}"
        faults[OUTAGE] = what if lost else ""

    if known.get("learner_updates"):
        # ``known`` has finite numbers alone, so a figure that is not finite is missing there.
        finite = {"learner_loss", "learner_grad_norm"} <= known.keys()
        faults["not_finite"] = "" if finite else "the loss or its gradient was not finite"

    if "valid_rate" in known:
        # The three most frequent, the first one first.
        shares = [(s, n) for n, s in known.items() if n.startswith("invalid_")]
        reasons = [f"{n.removeprefix('invalid_')} {s:.0%}" for s, n in sorted(shares)[:-4:-1]]
        what = f"no proposed question was valid ({', '.join(reasons) or 'no reasons known'})"
        faults["nothing_valid"] = "" if known["valid_rate"] else what

    # Where nothing is proposed, this is what says that nobody can learn anything.
    if "given_accuracy" in known and "valid_rate" not in known:
        what = "no attempt at a given question was right"
        faults["nothing_right"] = "" if known["given_accuracy"] else what

    overlong = [(known[f"{r}_overlong"], r) for r in ROLES if f"{r}_overlong" in known]
    if overlong:
        share, role = max(overlong)
        what = f"{share:.0%} of the {role}'s trajectories ran into the token budget"
        faults["overlong"] = what if share > MAX_OVERLONG else ""

    if "unsolved_share" in known:
        share = known["unsolved_share"]
        what = f"no attempt solved {share:.0%} of the verified questions"
        faults["unsolved"] = what if share > MAX_UNSOLVED else ""

    return faults
