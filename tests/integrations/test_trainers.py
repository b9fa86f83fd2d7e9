"""TRL, verl and SkyRL make the same loss and gradient of the same games, set as ours is."""

from __future__ import annotations

import os
from typing import Any

import pytest

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
pytest.importorskip("torch", reason="PyTorch is not installed; run: make integrations")

from benchmarks.trainers import OBJECTIVES, installed, measure

PAIRS = [(name, partner) for name, one in OBJECTIVES.items() for partner in one.partners]
VERSIONS = installed()
if not VERSIONS:
    pytest.skip("no trainer is installed; run: make integrations", allow_module_level=True)


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return measure(seed=2)


@pytest.mark.parametrize(("objective", "partner"), PAIRS)
def test_a_trainer_set_alike_is_ours(
    measured: dict[str, Any], objective: str, partner: str
) -> None:
    if partner not in VERSIONS:
        pytest.skip(f"{partner} is not installed")
    apart = measured["set_alike"][objective]["distances"][partner]
    assert apart["loss"] < 1e-6
    assert apart["gradient"] < 1e-6
    assert apart.get("advantages", 0.0) < 1e-6
    assert apart.get("pass", 0.0) < 1e-5, "its own pass over the same tokens"


def test_the_games_tell_objectives_apart(measured: dict[str, Any]) -> None:
    """Ratios reach both bounds, and other settings give other losses."""
    assert measured["ratios"]["least"] < 0.5
    assert measured["ratios"]["most"] > 3.0, "beyond our cap, and where verl holds losses"
    norms = [round(one["gradient_norm"], 5) for one in measured["set_alike"].values()]
    assert len(set(norms)) == len(norms)


def test_masks_are_ours_and_defaults_are_not(measured: dict[str, Any]) -> None:
    table = measured["by_default"]
    assert {one["tokens"] for one in table.values()} == {measured["tokens"]}
    assert all(table[partner]["cosine"] < 0.99 for partner in VERSIONS)
