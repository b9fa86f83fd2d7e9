"""``ssp`` itself: finding commands, help, and mistakes on the command line."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from runs import environment, ssp

from experiments.commands import EXTRAS
from experiments.config import presets
from ssp_env.commands import cli
from ssp_env.commands.base import Command
from ssp_env.errors import MissingExtra, SSPError

COMMANDS = (
    "bootstrap",
    "eval",
    "export",
    "index",
    "judge",
    "league",
    "plan",
    "play",
    "plot",
    "probe",
    "questions",
    "replay",
    "report",
    "search",
    "serve",
    "sweep",
    "train",
    "view",
)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Command:
    """A command of the test's own, in place of those that are installed."""

    class Point:
        name = "answer"

        def load(self) -> Command:
            return command

    def configure(parser: ArgumentParser) -> None:
        parser.add_argument("--number", type=int, default=42)
        parser.add_argument("--loud", action="store_true")

    def run(arguments: Namespace) -> int:
        if arguments.number < 0:
            raise SSPError("a number\n  below zero")
        if arguments.number == 0:
            raise KeyboardInterrupt
        print(arguments.number)
        return 0

    command = Command("answer", "tell the answer", configure, run)
    monkeypatch.setattr(cli, "entry_points", lambda group: [Point()])
    return command


def test_the_installed_command_lists_its_commands(tmp_path: Path) -> None:
    result = ssp("--help", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "usage: ssp COMMAND [options]"
    assert [line.split()[0] for line in lines if line.startswith("  ")] == list(COMMANDS)
    assert max(map(len, lines)) <= 80


def test_help_is_what_no_arguments_get(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["-h"], ["--help"]):
        assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert shown == shown[: len(shown) // 3] * 3


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: ssp {name}")
    assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    (point,) = (point for point in entry_points(group=cli.GROUP) if point.name == name)
    parser = ArgumentParser()
    point.load().configure(parser)
    assert [action.dest for action in parser._actions if not action.help] == []


def test_help_names_every_preset(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in presets())


@pytest.mark.usefixtures("answer")
def test_command_gets_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["answer"]) == cli.main(["answer", "--number=7"]) == 0
    assert capsys.readouterr().out == "42\n7\n"


@pytest.mark.usefixtures("answer")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["anwser"], "unknown command 'anwser': did you mean 'answer'?"),
        (["xyz"], "unknown command 'xyz': known: answer"),
        (
            ["answer", "--numbre", "3"],
            "ssp answer does not take '--numbre': did you mean '--number'?",
        ),
        (["answer", "--numbre=3"], "ssp answer does not take '--numbre': did you mean '--number'?"),
        # An abbreviation would change its meaning with the next option that is added.
        (
            ["answer", "--num", "3"],
            "ssp answer does not take '--num': did you mean '--number' or '--loud'?",
        ),
        (["answer", "what"], "ssp answer does not take 'what': known: --help, --loud, --number"),
        (
            ["answer", "--number", "x"],
            "argument --number: invalid int value: 'x' (ssp answer --help lists all options)",
        ),
        (
            ["answer", "--number"],
            "argument --number: expected one argument (ssp answer --help lists all options)",
        ),
        (["answer", "--number=-1"], "a number below zero"),
    ],
)
def test_mistake_is_one_line_and_status_2(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    assert capsys.readouterr() == ("", f"ssp: {says}\n")


@pytest.mark.usefixtures("answer")
def test_ctrl_c_is_status_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["answer", "--number", "0"]) == 130
    assert capsys.readouterr() == ("", "ssp: interrupted\n")


# -- what is not installed ---------------------------------------------------------------------


def without(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command where a module is not installed."""
    code = (
        f"import sys; sys.modules[{module!r}] = None; from ssp_env.commands.cli import main; "
        f"sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=400)


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        (("train",), "torch", "train"),
        (("train",), "ray", "train"),
        (("plot", "x"), "matplotlib", "plot"),
    ],
)
def test_missing_extra_is_named_with_how_to_install_it(
    command: tuple[str, ...], module: str, extra: str
) -> None:
    result = without(module, *command)
    assert result.returncode == 2, result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith(
        f"ssp: ssp {command[0]} ({module} is missing) needs a package that is not installed"
    )
    assert last.endswith(f"run: pip install -e '.[{extra}]'")
    assert "Traceback" not in result.stderr


def test_overview_needs_no_extra() -> None:
    assert ssp("--help").stdout == without("torch", "--help").stdout


def test_missing_module_of_our_own_is_no_matter_of_installation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "experiments" not in EXTRAS
    monkeypatch.setitem(sys.modules, "experiments.commands.plot", None)
    with pytest.raises(ModuleNotFoundError) as raised:
        cli.main(["plot", "x"])
    assert not isinstance(raised.value, MissingExtra)
