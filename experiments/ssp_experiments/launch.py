"""The start of the command ``ssp``: Ctrl-C is a sentence also while modules are imported.

It stands outside of ``ssp_env``, whose first import takes a second."""

from __future__ import annotations

import os
import signal
from typing import NoReturn


def script() -> NoReturn:
    """Imports the command line, then runs it. Ctrl-C until then is status 130."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    from ssp_env.cli import script

    signal.signal(signal.SIGINT, before)
    script()


def _stop(number: int, frame: object) -> NoReturn:
    # An exception would end in whatever is being imported: numpy's start makes its own of any.
    os.write(2, b"ssp: interrupted\n")
    os._exit(130)
