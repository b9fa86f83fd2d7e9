"""``ssp probe``: the table, JSON, exit statuses, and a model behind an API."""

from __future__ import annotations

import json
import logging

import pytest
from runs import sets
from scripted_model import ChatServer, obedient

from ssp_env.cli import main

FEW = ("--games", "24", "--set", "world_options.entities=60", "--set", "game.attempts=2")


def probed(*options: str) -> int:
    return main(["probe", *options])


def test_table_and_status_of_what_is_held(capsys: pytest.CaptureFixture[str]) -> None:
    assert probed(*FEW, "--cheat", "nonsense", "--cheat", "no_search", "--cheat", "sandbag") == 0
    shown = capsys.readouterr().out
    findings = ("held (unverified)", "held (no_search)", "not played")
    assert all(text in shown for text in (*findings, "precision 1.000, recall 1.000"))
    assert logging.getLogger("ssp_env").isEnabledFor(logging.WARNING)  # as before it was run


def test_what_pays_is_status_1_unless_it_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    options = (*FEW, "--verifier", "none", "--cheat", "nonsense", "--json")
    assert probed(*options) == 1
    printed = json.loads(capsys.readouterr().out)
    (cheat,) = printed["cheats"]
    assert (cheat["name"], cheat["finding"]) == ("nonsense", "pays")
    assert cheat["proposer"] == 1.0
    assert cheat["more_than_honest"][1] > printed["margin"]
    assert cheat["closed_by"]
    assert printed["gate"]["precision"] == pytest.approx(0.5)
    assert printed["fingerprint"]["verifier"] == "NoVerifier"

    assert probed(*options, "--allow", "nonsense") == 0


def test_papers_settings_with_a_model_behind_an_api(capsys: pytest.CaptureFixture[str]) -> None:
    """An obedient model lets a code and a forged verdict pass."""
    with ChatServer(obedient) as server:
        served = (f"openai.base_url={server.url}", "openai.model=scripted", "judge=openai")
        settings = sets(*served, "game.attempts=1")
        options = ("--games", "12", "--cheat", "base64", "--cheat", "forge_verdict", "--json")
        assert probed("--preset", "paper-7b", "--verifier", "openai", *settings, *options) == 1

    printed = json.loads(capsys.readouterr().out)
    base64, forged = printed["cheats"]
    assert (base64["finding"], base64["accepted"]) == ("pays", 12)
    assert forged["solver"] > printed["honest"]["solver"]
    assert printed["gate"]["precision"] is None
    assert printed["fingerprint"]["judge"].startswith("OpenAIJudge (scripted")
