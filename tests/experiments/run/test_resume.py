"""Runs that end early: Ctrl-C, SIGTERM and kill -9, then --resume, to the same result as without an
interruption; and those whose figures go wrong, which say why."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import SSP, arguments, environment, games, metrics, sets, timeless
from safetensors.torch import load_file

from ssp_agents.engines.transformers_engine import TransformersEngine
from ssp_env.cli import main
from ssp_env.errors import ServiceError
from ssp_experiments.run.rundir import RunDirectory

pytestmark = pytest.mark.usefixtures("cluster")


KILLED = """
import os, signal
from ssp_experiments.run.rundir import RunDirectory
from ssp_env.cli import script

write = RunDirectory.write_games

def written(run, step, *games):
    write(run, step, *games)
    if step == 2:
        os.kill(os.getpid(), signal.SIGKILL)

RunDirectory.write_games = written
script()
"""
"""The command, which is killed between the games and the figures of its second step."""


def check_resumed(
    run: Path, saved: int, whole_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Resumes a run, to the bits of one that was never stopped."""
    assert main(["train", "--resume", "--out", str(run)]) == 0
    assert f"resumed after step {saved}" in capsys.readouterr().err
    assert any(line["reused_games"] for line in metrics(run)[saved + 1 :])
    assert timeless(run) == timeless(whole_run)
    assert games(run) == games(whole_run)
    ours, theirs = (json.loads((r / "summary.json").read_text()) for r in (run, whole_run))
    assert (ours["accuracy"], ours["interval"]) == (theirs["accuracy"], theirs["interval"])


def test_a_killed_run_ends_as_if_it_had_never_stopped(
    policy: Path, whole_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "a run"
    words = arguments(policy, run, "--steps", "4", "--set", "checkpoint_every=1")
    command = [sys.executable, "-c", KILLED, *words]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=400)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (run / "summary.json").exists()
    check_resumed(run, 1, whole_run, capsys)


def test_after_sigterm_the_step_is_done_and_saved(
    policy: Path,
    whole_run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = tmp_path / "a run"
    write = RunDirectory.write_games

    def written(directory: RunDirectory, step: int, *games: Any) -> None:
        write(directory, step, *games)
        for _ in range(2 if step == 2 else 0):  # as from `timeout`
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "write_games", written)
        patch.setattr("ssp_experiments.run.progress.BEAT", 0.1)
        assert main(arguments(policy, run, "--steps", "4", "--set", "checkpoint_every=3")) == 143
    said = capsys.readouterr().err
    assert metrics(run)[-1]["step"] == 2
    assert " tokens so far" in said, "a sign of life where there is no terminal"
    assert f"saved up to step 2. Go on with: ssp train --resume --out '{run}'" in said
    assert not (run / "summary.json").exists()
    check_resumed(run, 2, whole_run, capsys)


@pytest.mark.slow
def test_three_learners_go_on_to_the_same_bits(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From three on, gloo's sums depend on where in a bucket of DDP's a gradient lies."""
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    more = sets("compute.learners=3", "checkpoint_every=2", "checkpoints_kept=null")
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert main(arguments(policy, whole, "--steps", "4", *more)) == 0
    shutil.copytree(whole, run)
    shutil.rmtree(run / "checkpoints" / "step_000004")
    assert main(["train", "--resume", "--out", str(run)]) == 0
    assert timeless(run) == timeless(whole)
    assert games(run) == games(whole)
    ours, theirs = (learner_state(each / "checkpoints" / "step_000004") for each in (run, whole))
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def learner_state(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Weights and moments. Files of equal tensors may differ: safetensors writes what it holds of
    metadata in any order."""
    (file,) = checkpoint.glob("algorithm/learner/*.safetensors")
    return load_file(file)


@pytest.mark.slow
def test_ctrl_c_again_and_again_is_status_130_and_no_dead_end(
    policy: Path, whole_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, said = tmp_path / "run", tmp_path / "stderr"
    command = [SSP, *arguments(policy, run, "--steps", "500", "--set", "checkpoint_every=500")]
    with said.open("w") as errors:  # a pipe that nobody reads would stop the process
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**environment(), "RAY_ADDRESS": "local"},
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    while process.poll() is None:  # the test's own timeout, if it does not end
        if (run / "metrics.jsonl").exists():
            process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    assert process.returncode == 130, said.read_text()
    # Not always the last line: Python itself tells of an interruption that came while it tidied up.
    start = "interrupted before the first checkpoint. Start it over with: ssp train"
    assert start in said.read_text()
    assert metrics(run)[0]["step"] == 0, "what it had done is left alone"

    assert main(["train", "--resume", "--out", str(run), "--steps", "1"]) == 0
    assert "it starts over" in capsys.readouterr().err
    # The last step is evaluated besides.
    same, other = timeless(run), timeless(whole_run)[:2]
    assert same[0] == other[0]
    assert {**same[1], **other[1]} == same[1]


# -- figures that go wrong ---------------------------------------------------------------------


def test_a_run_whose_engine_is_gone_is_stopped_never_a_success_and_can_be_gone_on_with(
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

    run = tmp_path / "run"
    resumed = ["train", "--resume", "--out", str(run), "--set", "patience=null", "--steps"]
    with monkeypatch.context() as patch:
        patch.setattr(TransformersEngine, "step", mortal)
        patience = ("--set", "patience=2", "--set", "checkpoint_every=100")
        assert main(arguments(policy, run, "--steps", "9", *patience)) == 3
        said = capsys.readouterr().err
        assert "ssp: stopped and saved: in each of the last 2 steps, no game was valid" in said
        assert [folder.name for folder in (run / "checkpoints").iterdir()] == ["step_000003"]
        stopped = json.loads((run / "stopped.json").read_text())
        assert (stopped["sign"], stopped["step"]) == ("outage", 3)

        # Nobody stops it now, but what it comes to cannot be measured.
        assert main([*resumed, "4"]) == 2
    said = capsys.readouterr().err
    assert f"it was stopped after step 3: {stopped['cause']}" in said
    assert "1: - (3 void: it is gone for good)" in said
    assert str(run / "checkpoints" / "step_000004" / "policy") in said
    assert not (run / "summary.json").exists()

    # It is mended.
    assert main([*resumed, "5"]) == 0
    assert (run / "summary.json").exists()
    assert not (run / "stopped.json").exists()


# -- what was lost or damaged meanwhile ----------------------------------------------------------


def test_a_lost_file_of_games_and_a_changed_byte_of_the_state_are_told(
    whole_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(whole_run, tmp_path / "run"))
    (run / "games" / "step_000003.jsonl").unlink()
    again = ["train", "--resume", "--out", str(run), "--quiet"]
    assert main(again) == 0
    said = capsys.readouterr().err
    assert f"the games of 1 step, the first of step 3, are gone from {run / 'games'}" in said
    assert "restore them from a copy" in said

    state = run / "checkpoints" / "step_000004" / "algorithm" / "algorithm_state.pkl"
    held = state.read_bytes()
    state.write_bytes(held[:99] + bytes([held[99] ^ 1]) + held[100:])
    assert main(again) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"ssp: {state} is damaged")
    assert said.count("\n") == 1
