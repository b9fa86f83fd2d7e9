"""When a run is stopped, and when it is not."""

from __future__ import annotations

from typing import Any

import pytest

from agents.health import Diagnosis, Monitor
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
JUDGE_GONE = {"void_games": 3.0, "filled_slots": 0.0, "valid_rate": 0.0, "invalid_format": 1.0}
ILL: list[tuple[str, dict[str, Any], str]] = [
    ("outage", ALL_VOID, "no game was valid, and an outage voided 8 of 8"),
    ("outage", JUDGE_GONE, "an outage voided 3 of 8"),
    ("nothing_valid", {"valid_rate": 0.0, "invalid_format": 0.75}, "format 75%"),
    ("not_finite", {"learner_loss": NAN}, "not finite"),
    ("not_finite", {"learner_grad_norm": None}, "not finite"),
    ("overlong", {"solver_overlong": 1.0}, "100% of the solver's"),
]


def stops_at(steps: list[dict[str, Any]], **changes: Any) -> Diagnosis | None:
    """The diagnosis of a run that goes through these steps, if it is stopped in the last."""
    monitor = Monitor(**changes)
    for step, figures in enumerate(steps, 1):
        found = monitor(step, WELL | figures)
        if found is not None:
            assert step == len(steps), f"stopped too early, at step {step}"
            return found
    return None


@pytest.mark.parametrize(("sign", "figures", "says"), ILL)
def test_a_sign_that_lasts_stops_the_run(sign: str, figures: dict[str, Any], says: str) -> None:
    found = stops_at([{}] + [figures] * 3, patience=3)
    assert found is not None
    assert (found.sign, found.step) == (sign, 4)
    assert says in found.cause
    assert "last 3 steps" in found.cause
    assert found.helps in str(found)


def test_a_sign_that_passes_does_not() -> None:
    figures = {"valid_rate": 0.0}
    assert stops_at([figures] * 2 + [{}] + [figures] * 2, patience=3) is None
    assert stops_at([figures] * 20, patience=None) is None


def test_a_step_that_cannot_tell_neither_counts_nor_helps() -> None:
    """All games of it were voided by an outage."""
    silent = dict.fromkeys(WELL, NAN) | {"learner_updates": 0.0}
    ill = {"valid_rate": 0.0}
    assert stops_at([ill, silent, silent, silent], patience=3) is None
    assert stops_at([ill, silent, ill, silent, ill], patience=3) is not None

    monitor = Monitor(patience=1)
    assert monitor(1, {"learner_updates": 0.0}) is None


def test_an_outage_is_quoted() -> None:
    monitor, gone = Monitor(patience=2), Outage("engine", "vLLM failed: no memory")
    assert monitor(1, WELL | ALL_VOID, [gone]) is None
    found = monitor(2, WELL | ALL_VOID, [Outage("search", "HTTP 500"), gone, gone])
    assert found is not None
    assert "voided 8 of 8 (engine: vLLM failed: no memory)" in found.cause


def test_a_resumed_run_counts_on() -> None:
    lines = [{"step": 0, "accuracy": {}}] + [
        {"step": step, **WELL, "valid_rate": 0.0} for step in (1, 2)
    ]
    monitor = Monitor(patience=3)
    monitor.replay(lines)
    assert monitor(3, WELL | {"valid_rate": 0.0}) is not None
