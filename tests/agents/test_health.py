"""When a run is stopped, and when it is not."""

from __future__ import annotations

from typing import Any

import pytest

from ssp_agents.health import Diagnosis, Monitor
from ssp_env.game.outcome import Outage

WELL: dict[str, float | None] = {
    "games": 8.0,
    "void_games": 0.0,
    "filled_slots": 0.4,
    "valid_rate": 0.4,
    "learner_updates": 1.0,
    "learner_loss": 0.1,
    "learner_grad_norm": 0.3,
    "proposer_overlong": 0.1,
    "solver_overlong": 0.2,
}
NAN = float("nan")
ALL_VOID = {"void_games": 8.0, "filled_slots": 0.0, "valid_rate": None, "learner_updates": 0.0}
ILL: list[tuple[str, dict[str, Any], str]] = [
    ("outage", ALL_VOID, "an outage voided 8 of 8 (engine: no memory)"),
    ("nothing_valid", {"valid_rate": 0.0, "invalid_format": 0.75}, "format 75%"),
    ("nothing_right", {"valid_rate": None, "given_accuracy": 0.0}, "no attempt at a given"),
    ("not_finite", {"learner_loss": NAN}, "not finite"),
    ("overlong", {"solver_overlong": 1.0}, "100% of the solver's"),
    ("unsolved", {"unsolved_share": 0.8}, "80% of the verified questions"),
]


def stops_at(steps: list[dict[str, Any]], patience: int | None = 3) -> Diagnosis | None:
    """The diagnosis of a run that goes through these steps, if it is stopped in the last."""
    monitor, gone = Monitor(patience), Outage("engine", "no memory")
    for step, figures in enumerate(steps, 1):
        found = monitor(step, WELL | figures, [Outage("search", "HTTP 500"), gone, gone])
        if found is not None:
            assert step == len(steps), f"stopped too early, at step {step}"
            return found
    return None


@pytest.mark.parametrize(("sign", "figures", "says"), ILL)
def test_a_sign_that_lasts_stops_the_run(sign: str, figures: dict[str, Any], says: str) -> None:
    found = stops_at([{}] + [figures] * 3)
    assert found is not None
    assert (found.sign, found.step) == (sign, 4)
    assert says in found.cause
    assert found.helps in str(found)


def test_a_sign_that_passes_does_not() -> None:
    ill = {"valid_rate": 0.0}
    assert stops_at([ill] * 2 + [{}] + [ill] * 2) is None
    assert stops_at([ill] * 20, patience=None) is None
    # A step whose games were all voided neither counts nor helps.
    silent = dict.fromkeys(WELL, NAN) | {"learner_updates": 0.0}
    assert stops_at([ill, silent, silent, silent]) is None
    assert stops_at([ill, silent, ill, silent, ill]) is not None


def test_a_resumed_run_counts_on() -> None:
    ill = WELL | {"valid_rate": 0.0}
    monitor = Monitor(patience=3)
    monitor.replay([{"step": 0, "accuracy": {}}, {"step": 1, **ill}, {"step": 2, **ill}])
    assert monitor(3, ill) is not None
