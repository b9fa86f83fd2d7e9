"""A run that goes wrong is stopped, saved, and says why; going on says it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from runs import arguments, metrics

from agents.engines.transformers_engine import TransformersEngine
from ssp_env.cli import main
from ssp_env.errors import ServiceError


@pytest.mark.usefixtures("cluster")
def test_a_run_without_a_valid_question_is_stopped_and_can_be_gone_on_with(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    hopeless = ("--set", "game.question_chars=[900,1000]", "--set", "patience=2")
    assert main(arguments(policy, run, "--steps", "9", *hopeless)) == 3
    said = capsys.readouterr().err
    assert "ssp: stopped and saved: in each of the last 2 steps, no proposed question was" in said
    assert "What usually helps: " in said
    assert metrics(run)[-1]["step"] == 2
    assert [folder.name for folder in (run / "checkpoints").iterdir()] == ["step_000002"]
    stopped = json.loads((run / "stopped.json").read_text())
    assert (stopped["sign"], stopped["step"]) == ("nothing_valid", 2)
    assert not (run / "summary.json").exists()

    resumed = ["train", "--resume", "--out", str(run), "--steps", "5"]
    assert main([*resumed, "--set", "patience=null"]) == 0
    said = capsys.readouterr().err
    assert "resumed after step 2" in said
    assert f"it was stopped after step 2: {stopped['cause']}" in said
    assert (run / "summary.json").exists()
    assert not (run / "stopped.json").exists()


@pytest.mark.usefixtures("cluster")
def test_a_run_whose_engine_is_gone_is_stopped_and_is_never_a_success(
    policy: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = TransformersEngine.step

    def mortal(engine: TransformersEngine) -> Any:
        if engine.weights_version:
            raise ServiceError("engine", "it is gone for good")
        return step(engine)

    monkeypatch.setattr(TransformersEngine, "step", mortal)
    run = tmp_path / "run"
    patience = ("--set", "patience=2", "--set", "checkpoint_every=100")
    assert main(arguments(policy, run, "--steps", "9", *patience)) == 3
    said = capsys.readouterr().err
    assert "ssp: stopped and saved: in each of the last 2 steps, no game was valid" in said
    assert "(engine: it is gone for good)" in said
    assert [folder.name for folder in (run / "checkpoints").iterdir()] == ["step_000003"]
    assert json.loads((run / "stopped.json").read_text())["sign"] == "outage"

    # Nobody stops it now, but what it comes to cannot be measured.
    resumed = ["train", "--resume", "--out", str(run), "--steps", "4"]
    assert main([*resumed, "--set", "patience=null"]) == 2
    said = capsys.readouterr().err
    assert "1: - (3 void: it is gone for good)" in said
    assert "could be judged. The policy is saved: ssp eval --model" in said
    assert str(run / "checkpoints" / "step_000004" / "policy") in said
    assert not (run / "summary.json").exists()

    assert main([*resumed, "--set", "patience=null"]) == 2
    assert "could be judged. The policy is saved" in capsys.readouterr().err
