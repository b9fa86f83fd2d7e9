"""A run whose roles have a policy each: resumed, evaluated, exported, and a player of a league."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from runs import SETTINGS, arguments, sets, timeless
from safetensors.torch import load_file

from ssp_env.cli import main
from ssp_experiments.config import make_config
from ssp_experiments.evaluation import players_of
from ssp_experiments.run.checks import open_run

pytestmark = pytest.mark.usefixtures("cluster")

SEPARATE = (*SETTINGS, "learning.policies=separate", "learning.lora_rank=2", "learning.lr=1e-3")


def test_two_adapters_from_a_run_to_a_league(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, resumed = tmp_path / "run", tmp_path / "resumed"
    quiet = ("--quiet", "--set", "checkpoint_every=1", "--steps")
    assert main(arguments(policy, run, *quiet, "2", settings=SEPARATE)) == 0
    assert main(arguments(policy, resumed, *quiet, "1", settings=SEPARATE)) == 0
    assert main(["train", "--resume", "--out", str(resumed), "--steps", "2", "--quiet"]) == 0
    assert timeless(resumed)[2] == timeless(run)[2]

    last = Path("checkpoints", "step_000002")
    names, held = ("policy", "proposer"), {}
    for name in names:
        held[name], again = (
            load_file(place / last / name / "model.safetensors") for place in (run, resumed)
        )
        assert all(held[name][n].equal(again[n]) for n in again), "to the bit"
        exported = tmp_path / name
        role = "solver" if name == "policy" else name
        capsys.readouterr()
        assert main(["export", str(run), "--role", role, "--out", str(exported)]) == 0
        assert f"a model directory, the {role}'s policy: " in capsys.readouterr().err
        assert f"step 2, {role}\n" in (exported / "README.md").read_text()
        written = load_file(exported / "model.safetensors")
        assert all(written[n].equal(held[name][n]) for n in written)
    assert any(not held["policy"][n].equal(held["proposer"][n]) for n in held["policy"])

    shutil.copytree(run / last / "policy", tmp_path / "shared" / "policy")
    asked = ["export", str(tmp_path / "shared"), "--role", "proposer", "--out", "nowhere"]
    assert main(asked) == 2
    assert "one policy plays both roles there" in capsys.readouterr().err

    # Either is a model directory, with the settings of its run.
    capsys.readouterr()
    assert main(["eval", *(str(run / last / name) for name in names), "--json"]) == 0
    solver, proposer = json.loads(capsys.readouterr().out)["evaluations"]
    assert solver["fingerprint"] == proposer["fingerprint"]

    # Where both are, each plays its role; a copy of the solver's alone plays both.
    config = make_config({"model": str(run / last / "policy")})
    rules, _ = open_run(config)
    assert {*players_of(config, rules).engines} == {"proposer", "solver"}
    players = [str(run), f"alone={tmp_path / 'policy'}"]
    out = tmp_path / "league"
    assert main(["league", *players, "--answers", "4", "--out", str(out), *sets(*SETTINGS)]) == 0
    players = json.loads((out / "league.json").read_text())["players"]
    assert [player["name"] for player in players][-2:] == ["run step 2", "alone"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere", "there is no model directory nowhere"),
        ("mine.gguf", "mine.gguf is a GGUF file, which only the setting model"),
    ],
)
def test_a_proposer_that_is_not_there_is_refused_by_its_setting(
    name: str,
    says: str,
    policy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.gguf").touch()
    settings = (*SEPARATE, f"learning.proposer_model={name}")
    assert main(arguments(policy, tmp_path / "run", settings=settings)) == 2
    assert f"learning.proposer_model = '{name}': {says}" in capsys.readouterr().err


def test_a_role_that_does_not_learn_needs_no_policy_of_its_own(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(policy, tmp_path / "run", "--solver-only", settings=SEPARATE)) == 2
    assert "name another as learning.partner" in capsys.readouterr().err
