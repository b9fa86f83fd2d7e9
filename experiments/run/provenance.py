"""Commit and machine that a figure comes from."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

RESULTS = "benchmarks/results"


def git_commit() -> str | None:
    """The checkout's commit, with ``+changes`` if files differ; ``None`` outside a checkout.

    Results of benchmarks are ignored, because no benchmark reads what another wrote.
    """
    git = ["git", "-C", str(Path(__file__).resolve().parents[2])]
    changes = ["status", "--porcelain", "--untracked-files=no", "--", ".", f":!{RESULTS}"]
    try:
        commit, changed = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout
            for words in (["rev-parse", "HEAD"], changes)
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.strip() + ("+changes" if changed.strip() else "")


def machine() -> str:
    """Processor, usable cores, Python and PyTorch."""
    import torch

    name, cpuinfo = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = [line.partition(":") for line in cpuinfo.read_text().splitlines()]
        name = next((value.strip() for key, _, value in lines if "model name" in key), name)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores, Python {platform.python_version()}, torch {torch.__version__}"
