"""How the process of a command ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit
import sys

from ssp_env import cli


class Kept:
    def __del__(self):
        print("dismantled")


def main():
    global kept
    kept = Kept()
    atexit.register(print, "registered", end="")
    {ending}


cli.main = main
cli.script()
"""


@pytest.mark.parametrize(
    ("ending", "status", "error"),
    [
        ("return 3", 3, ""),
        ("raise SystemExit('no')", 1, "no"),
        ("raise ValueError('a bug')", 1, "ValueError: a bug"),
    ],
)
def test_what_is_registered_is_done_and_nothing_dismantled(
    ending: str, status: int, error: str
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(ending=ending)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.stdout == "registered"
    assert result.returncode == status
    assert result.stderr.strip().endswith(error)
    assert bool(result.stderr) == bool(error)


def test_output_that_cannot_be_written_is_no_success() -> None:
    program = PROGRAM.format(ending="atexit.unregister(print), print('a table')")
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-c", program],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
        )
    assert result.returncode
    assert "No space left on device" in result.stderr
