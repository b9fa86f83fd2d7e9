"""Where a figure comes from: commit and machine."""

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
    root = Path(__file__).resolve().parents[2]

    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(
            root, "status", "--porcelain", "--untracked-files=no", "--", ".", f":!{RESULTS}"
        )
    except (OSError, subprocess.CalledProcessError):
        return None

    return commit + ("+changes" if changed else "")


def machine() -> str:
    """Processor, usable cores, Python and PyTorch."""
    import torch

    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")

    if cpuinfo.is_file():
        models = [
            line.split(":", 1)[1].strip()
            for line in cpuinfo.read_text().splitlines()
            if line.startswith("model name")
        ]
        name = models[0] if models else name

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()

    return f"{name}, {cores} cores, Python {platform.python_version()}, torch {torch.__version__}"


def _git(root: Path, *arguments: str) -> str:
    run = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
    )
    return run.stdout.strip()
