"""A long-running process: Ctrl-C and SIGTERM, silence of its libraries, its commit and machine."""

from __future__ import annotations

import logging
import math
import os
import platform
import shlex
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

LOGGED = {
    "ray.rllib.algorithms.algorithm_config": "on the new API stack",
    "transformers.integrations.hub_kernels": "falling back to its reference PyTorch implementation",
}
"""Loggers, and a part of the one message of each that is dropped."""


def raise_interruption(signum: int, frame: Any) -> None:
    """Signal handler that interrupts at once: SIGTERM, as sent by SLURM, Kubernetes and ``docker
    stop``, like Ctrl-C. The exception holds the signal's number."""
    raise KeyboardInterrupt(signum)


@contextmanager
def handling(handler: Any, *signals: signal.Signals) -> Iterator[None]:
    """Has a signal handler in place, for SIGINT and SIGTERM unless others are named."""
    # Only the main thread may choose one; in the thread of a sweep's trial nothing changes.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    chosen = signals or (signal.SIGINT, signal.SIGTERM)
    before = {each: signal.signal(each, handler) for each in chosen}
    try:
        yield
    finally:
        for each, old in before.items():
            signal.signal(each, old)


@contextmanager
def interruptible(note: Callable[[], object]) -> Iterator[list[KeyboardInterrupt]]:
    """Remembers the first Ctrl-C or SIGTERM in the list that it yields; another one, more than a
    tenth of a second later, interrupts at once.

    ``note`` is called at the first, in its own thread, because the signal may arrive in the middle
    of a print.
    """
    seen: list[KeyboardInterrupt] = []
    first = math.inf

    def remember(signum: int, frame: Any) -> None:
        nonlocal first
        # `timeout` sends its signal twice: to the process, and to its group.
        if time.monotonic() - first > 0.1:
            raise_interruption(signum, frame)
        if not seen:
            first = time.monotonic()
            seen.append(KeyboardInterrupt(signum))
            threading.Thread(target=note, daemon=True).start()

    with handling(remember):
        yield seen


def uninterrupted() -> Any:
    """Context of a second or two of work that would leave a mess if stopped halfway."""
    return handling(signal.SIG_IGN)


# -- silence -----------------------------------------------------------------------------------


def _lacks(text: str, record: logging.LogRecord) -> bool:
    return text not in record.getMessage()


@cache
def quiet_libraries() -> None:
    """Drops known, harmless messages. Call before importing Ray."""
    for name, text in LOGGED.items():
        logging.getLogger(name).addFilter(partial(_lacks, text))

    # RLlib ships weights as read-only arrays, and nobody writes to them.
    warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)

    # Otherwise Ray comments on the first setting, and reports usage statistics without the second.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()


# -- where a figure comes from -----------------------------------------------------------------


def git_commit() -> str | None:
    """The checkout's commit, with ``+changes`` if files differ; ``None`` outside a checkout.

    Results of benchmarks are ignored, because no benchmark reads what another wrote.
    """
    git = ["git", "-C", str(Path(__file__).resolve().parents[3])]
    changes = ["status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results"]
    try:
        commit, changed = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout
            for words in (["rev-parse", "HEAD"], changes)
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.strip() + ("+changes" if changed.strip() else "")


def provenance() -> dict[str, str]:
    """The command that makes a result, the date, the commit and the machine."""
    return {
        "command": shlex.join(["ssp", *sys.argv[1:]]),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "git_commit": git_commit() or "unknown",
        "machine": machine(),
    }


def machine() -> str:
    """Processor, usable cores, GPUs, Python and PyTorch."""
    import torch

    name, cpuinfo = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = [line.partition(":") for line in cpuinfo.read_text().splitlines()]
        name = next((value.strip() for key, _, value in lines if "model name" in key), name)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return ", ".join([name, f"{cores} cores", *gpus, versions])
