"""The speed benchmark measures what it says: every figure is there, and it refuses a script that
plays badly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.env_speed import check, spread, targets
from benchmarks.peer_worker import MOVES, PEERS
from benchmarks.peers import NOT_MEASURED, PINS, Peers, pins_here
from ssp_env.game.outcome import Outcome

ROOT = Path(__file__).parents[2]
TINY = [
    "--repetitions=1",
    "--seconds=0.01",
    "--longest=2048",
    "--resets=20",
    "--live-games=2",
    "--no-peers",
]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run with tiny counts writes."""
    out = tmp_path_factory.mktemp("speed") / "env_speed.json"
    command = [sys.executable, "-m", "benchmarks.env_speed", "--out", str(out), *TINY]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_every_figure_is_there_with_its_source(document: dict[str, Any]) -> None:
    assert document["command"].startswith("python -m benchmarks.env_speed --out ")
    assert {"date", "git_commit", "machine", "cores", "repetitions", "workload"} <= set(document)
    assert set(document["rates"]) == {
        "aec_raw",
        "aec",
        "turns_batch_64",
        "turns_batch_8",
        "turns_whole_games_64",
    }
    assert all(rate["min"] > 0 and rate["unit"] for rate in document["rates"].values())
    assert document["workload"]["documents_per_observation"] == 3
    assert (
        document["workload"]["tokens_per_observation"]
        > document["workload"]["tokens_per_search_turn"]
        > 50
    )


def test_growth_is_measured_for_both_doors_and_all_texts(document: dict[str, Any]) -> None:
    assert document["growth"]["edges"] == [1024, 2048]
    for door in ("aec", "feed"):
        assert set(document["growth"][door]) == {"plain", "brackets", "tags", "turns"}
        for kind in document["growth"][door].values():
            assert kind["ratio_to_first"][0] == 1.0
            assert len(kind["microseconds_per_token"]) == 2


def test_memory_is_measured_over_resets_and_of_live_games(document: dict[str, Any]) -> None:
    assert document["resets"]["resets"] == 20
    assert document["resets"]["max_bytes"] >= document["resets"]["start_bytes"] > 1_000_000
    for door in ("live_aec_game", "live_round_game"):
        assert document[door]["tokens"] == 4096
        # The ids alone take a byte each at the very least.
        assert document[door]["allocated_bytes"] > 4096


def test_targets_say_what_was_wanted_and_whether_it_was_met(document: dict[str, Any]) -> None:
    slow = {name: {**rate, "median": 10} for name, rate in document["rates"].items()}
    tictactoe = {"pettingzoo_tictactoe_raw": {"median": 20}}
    found = targets({**document, "rates": {**slow, **tictactoe}})
    assert found["aec_steps"] == {"at_least": 50_000, "measured": 10, "met": False}
    assert found["aec_raw_over_pettingzoo_tictactoe_raw"] == {
        "at_least": 1.0,
        "measured": 0.5,
        "met": False,
    }
    assert "aec_raw_over_pettingzoo_tictactoe_raw" not in document["targets"]


def test_a_script_that_plays_badly_is_refused() -> None:
    check(Outcome.VALID)
    with pytest.raises(RuntimeError, match="invalid"):
        check(Outcome.INVALID)


def test_spread_is_the_median_between_least_and_most() -> None:
    assert spread([5.0, 1.0, 2.0]) == {"median": 2, "min": 1, "max": 5}


def test_every_peer_is_pinned_and_every_other_one_has_a_reason() -> None:
    assert {package for package, _ in PEERS.values()} == set(PINS)
    assert all("==" in wanted for pins in PINS.values() for wanted in pins)
    assert all(entry["reason"] for entry in NOT_MEASURED.values())


def test_a_peer_that_did_not_install_is_listed_with_pips_reason(tmp_path: Path) -> None:
    kept = {"pins": pins_here(), "failed": {"textarena": "ERROR: no wheel"}}
    (tmp_path / "pins.json").write_text(json.dumps(kept))
    peers = Peers(tmp_path)
    assert peers.left_out()["textarena"] == {"reason": "ERROR: no wheel"}
    assert set(peers.names()) == {
        name for name, (package, _) in PEERS.items() if package != "textarena"
    }


def test_the_scripted_tictactoe_is_a_draw_of_nine_moves() -> None:
    lines = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]
    for player in (set(MOVES[0::2]), set(MOVES[1::2])):
        assert not any(player.issuperset(line) for line in lines)
    assert sorted(MOVES) == list(range(9))
