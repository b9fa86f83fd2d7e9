"""The start of the command ``ssp``: Ctrl-C is a sentence also while modules are imported.

It stands outside of ``ssp_env``, whose first import takes a second."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn


def script() -> NoReturn:
    """Imports the command line, then runs it. Ctrl-C during imports, also later ones, is status
    130."""
    settable = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if settable:
        signal.signal(signal.SIGINT, _stop)
    from ssp_env.cli import script

    if settable:
        signal.signal(signal.SIGINT, _interrupt)
    script()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """As Python's own handler, but for imports: commands import PyTorch and Ray when they begin."""
    importing = frame
    while importing is not None:
        if importing.f_code.co_filename == "<frozen importlib._bootstrap>":
            _stop(number, frame)
        importing = importing.f_back
    signal.default_int_handler(number, frame)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    # An exception would end in whatever is being imported: numpy's start makes its own of any,
    # and PyTorch's ends the process with a signal.
    os.write(2, b"ssp: interrupted\n")
    os._exit(130)
