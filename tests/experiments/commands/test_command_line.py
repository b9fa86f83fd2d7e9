"""``ssp`` itself: finding commands, help, and mistakes on the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from runs import SSP, environment, ssp

from ssp_env import cli
from ssp_env.errors import SSPError
from ssp_experiments.config import shipped

NAMES = """bootstrap eval export imitate index judge league plan play plot probe questions replay
report search serve submit sweep train view"""
COMMANDS = NAMES.split()


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts one command of the test's own in place of those that are installed."""

    def run(*, number: int = 42, loud: bool = False) -> int:
        """Tells the answer."""
        if number < 0:
            raise SSPError("a number\n  below zero")
        if number == 0:
            raise KeyboardInterrupt
        print(number)
        return 3 if loud else 0

    point = SimpleNamespace(name="answer", load=lambda: run)
    monkeypatch.setattr(cli, "entry_points", lambda group: [point])


def test_installed_command_lists_its_commands_and_each_has_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = ssp("--help", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    named = [line.split()[1] for line in result.stdout.splitlines() if line.startswith("│ ")]
    assert set(COMMANDS) <= set(named)
    for name in COMMANDS:
        assert cli.main([name, "--help"]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"Usage: ssp {name}")
        assert name != "train" or all(preset in shown for preset in shipped("presets"))


@pytest.mark.usefixtures("answer")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["anwser"], 'Did you mean "answer"?'),
        (["answer", "--numbre=3"], "Unknown option: --numbre. Did you mean --number?"),
        (["answer", "--number", "x"], 'Invalid value for --number: unable to convert "x" into int'),
        (["answer", "--number=-1"], "a number below zero"),
    ],
)
def test_mistake_is_one_line_and_status_2(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("ssp: ")
    assert shown.err.count("\n") == 1
    assert says in shown.err


@pytest.mark.usefixtures("answer")
def test_a_command_s_own_status_and_that_of_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["answer", "--number=7", "--loud"]) == 3
    assert cli.main(["answer", "--number", "0"]) == 130
    assert capsys.readouterr() == ("7\n", "ssp: interrupted\n")


def test_a_closed_pipe_ends_the_command_quietly() -> None:
    command = f"set -o pipefail; {SSP} sweep | true"
    result = subprocess.run(["bash", "-c", command], capture_output=True, env=environment())
    assert (result.returncode, result.stderr) == (141, b"")


def test_missing_extra_is_named_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "ssp_experiments.commands.models", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cli.main(["export", "run", "-o", "new"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("ssp: ssp export (torch is missing) needs a package")
    assert said.endswith("run: pip install 'ssp-env[train]'\n")
