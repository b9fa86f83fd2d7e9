"""Ctrl-C at any moment of the first seconds of a command."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from runs import environment

START = "import signal; print('begun', flush=True); from ssp_experiments.launch import script"


@pytest.mark.parametrize("seconds", [0.1, 0.2, 0.4, 0.8, 1.2, 1.6])
def test_ctrl_c_while_modules_are_imported_is_a_sentence(seconds: float) -> None:
    command = [sys.executable, "-c", f"{START}; script()", "eval", "--per-group", "1"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "ssp: interrupted"
    assert "Traceback" not in said


CATCHING = """
import sys

class Catching:
    def find_spec(self, name, *others):
        if name == "{module}":
            try:
                signal.raise_signal(signal.SIGINT)
            except BaseException as error:
                raise ImportError("something else") from error

sys.meta_path.insert(0, Catching())
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
"""An import that turns Ctrl-C into an error of its own."""


def test_ctrl_c_is_not_lost_in_an_import_that_catches_it() -> None:
    """As that of numpy's compiled part, which makes an ImportError of any exception."""
    command = [sys.executable, "-c", START + CATCHING.format(module="ssp_env.cli") + "script()"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert (result.returncode, result.stderr) == (130, "ssp: interrupted\n")


COMMAND = """
import ssp_env.cli

def run():
    {what}

ssp_env.cli.script = run
script()
"""


@pytest.mark.parametrize(
    ("what", "status", "said"),
    [
        ("import torch", 130, "ssp: interrupted"),
        ("signal.raise_signal(signal.SIGINT)", -signal.SIGINT, "KeyboardInterrupt"),
    ],
)
def test_ctrl_c_in_a_command(what: str, status: int, said: str) -> None:
    """What PyTorch does with an exception during its import ends in an abort. Outside of imports, a
    command gets Python's exception, which it may handle."""
    code = START + CATCHING.format(module="torch") + COMMAND.format(what=what)
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert (result.returncode, result.stderr.splitlines()[-1]) == (status, said)
