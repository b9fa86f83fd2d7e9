"""Silences known, harmless library messages; everything else passes."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

LOGGED = {
    "ray.rllib.algorithms.algorithm_config": "on the new API stack",
    "transformers.integrations.hub_kernels": "is falling back to its reference PyTorch "
    "implementation",
}
"""Loggers, and a part of the one message of each that is dropped."""

NATIVE = (b"has constructor arguments in the object store and max_restarts > 0",)
"""Parts of lines that Ray's C++ code writes past Python.

RLlib creates its env runners this way, and they can be restarted.
"""


class _Drop(logging.Filter):
    """Drops the records that contain a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def filter(self, record: logging.LogRecord) -> bool:
        return self._text not in record.getMessage()


def quiet_libraries() -> None:
    """Call before importing Ray; safe to call again."""
    for name, text in LOGGED.items():
        logger = logging.getLogger(name)
        if not any(isinstance(known, _Drop) for known in logger.filters):
            logger.addFilter(_Drop(text))

    # RLlib ships weights as read-only arrays, and nobody writes to them.
    warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)

    # Otherwise Ray comments on the first setting, and reports usage statistics without the second.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()


@contextmanager
def filtered_stderr() -> Iterator[None]:
    """Holds back what is written to file descriptor 2, then writes all but the known lines."""
    sys.stderr.flush()
    kept = os.dup(2)

    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)

            held.seek(0)
            for line in held:
                if not any(text in line for text in NATIVE):
                    os.write(2, line)
