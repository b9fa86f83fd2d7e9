"""Ctrl-C, and going on: the same result as without an interruption."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from runs import SSP, arguments, environment, games, metrics, timeless

from ssp_env.commands.cli import main

Run = tuple[Path, str]


def interrupt(run: Path, command: list[str], after: int, again: bool = False) -> tuple[int, str]:
    """Starts a run, sends it Ctrl-C once it has done so many steps; exit status and standard error.

    Args:
        run: its directory.
        command: what starts it.
        after: how many steps; 0 is as soon as the base policy was evaluated.
        again: whether Ctrl-C comes again and again, to the very end.
    """
    said = run.parent / f"{run.name}.stderr"
    with said.open("w") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            # A pipe that nobody reads would stop a process with much to say.
            stderr=errors,
            env={**environment(), "PYTHONFAULTHANDLER": "1"},
            start_new_session=True,
        )
    deadline = time.monotonic() + 300
    sign = run / "games" / f"step_{after:06d}.jsonl" if after else run / "metrics.jsonl"
    while not sign.exists():
        assert process.poll() is None, said.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.02)

    process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + 120
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.send_signal(signal.SIGABRT)
            process.wait()
            pytest.fail(f"it does not end; where its threads are:\n{said.read_text()}")
        time.sleep(0.05)
        if again:
            process.send_signal(signal.SIGINT)

    return process.returncode, said.read_text()


@pytest.fixture(scope="module")
def stopped(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    """A run that was interrupted early: its directory, exit status, and what it said."""
    run = tmp_path_factory.mktemp("runs") / "a run"
    # Many steps, so that the signal comes before the last of them however fast the machine is.
    status, errors = interrupt(run, [SSP, *arguments(policy, run, "--steps", "500")], after=2)
    return run, status, errors


def test_first_ctrl_c_ends_the_run_after_its_step(stopped: tuple[Path, int, str]) -> None:
    run, status, errors = stopped
    assert status == 130, errors
    assert "Traceback" not in errors
    done = metrics(run)[-1]["step"]
    assert f"saved up to step {done}. Go on with: ssp train --resume --out '{run}'" in errors
    assert [folder.name for folder in (run / "checkpoints").iterdir()] == [f"step_{done:06d}"]
    assert not (run / "summary.json").exists()
    # The run lives on in a pool of questions, which the checkpoint has to hold.
    assert done < 6, "the machine was so slow to send the signal that nothing is left to compare"


@pytest.mark.usefixtures("cluster")
def test_ctrl_c_again_and_again_is_status_130_and_no_dead_end(
    policy: Path, whole_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    command = arguments(policy, run, "--steps", "500")
    status, errors = interrupt(run, [SSP, *command], after=0, again=True)
    assert status == 130, errors
    fate = f"{run} holds a run that ended before its first checkpoint; start it over with --resume"
    # Not always the last line: Python itself tells of an interruption that came while it tidied up.
    assert any(line.startswith(f"ssp: interrupted; {fate}") for line in errors.splitlines()), errors
    assert metrics(run)[0]["step"] == 0, "what it had done is left alone"
    assert main(command) == 2
    assert "start it over with --resume" in capsys.readouterr().err

    assert main(["train", "--resume", "--out", str(run), "--steps", "1"]) == 0
    said = capsys.readouterr().err
    assert "the run ended before its first checkpoint: it starts over" in said
    # The last step is evaluated besides.
    same, other = timeless(run), timeless(whole_run[0])[:2]
    assert same[0] == other[0]
    assert {**same[1], **other[1]} == same[1]


def test_libraries_stay_silent(stopped: tuple[Path, int, str]) -> None:
    known = r"loading PyTorch|\s*\d+:\d\d (evaluating|accuracy|starting|step|stopping)|ssp: stopped"
    assert [line for line in stopped[2].splitlines() if not re.match(known, line)] == []


@pytest.mark.usefixtures("cluster")
def test_resumed_run_ends_as_if_it_had_never_stopped(
    stopped: tuple[Path, int, str], whole_run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """It goes on in another process than the one that it was stopped in: this one."""
    run, whole = stopped[0], whole_run[0]
    done = metrics(run)[-1]["step"]
    assert main(["train", "--resume", "--out", str(run), "--steps", "6"]) == 0
    assert f"resumed after step {done}" in capsys.readouterr().err
    assert any(line["reused_games"] for line in metrics(run)[done + 1 :])
    assert timeless(run) == timeless(whole)
    assert games(run) == games(whole)
    ours, theirs = (json.loads((r / "summary.json").read_text()) for r in (run, whole))
    assert (ours["accuracy"], ours["interval"]) == (theirs["accuracy"], theirs["interval"])
