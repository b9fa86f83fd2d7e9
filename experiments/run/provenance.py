"""Where a figure comes from: commit and machine."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

RESULTS = "benchmarks/results"
PLAYS = ("ssp_env", "agents", "experiments/run", "experiments/config.py")
"""What decides which games a run with given settings plays."""
CHANGED = "+changes"


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

    return commit + (CHANGED if changed else "")


def other_code(one: str | None, other: str | None) -> str:
    """Why runs of two commits need not be the same; empty if the code that plays is.

    Args:
        one: as :func:`git_commit` has it, of a run.
        other: the same, of another one.
    """
    for commit in (one, other):
        if commit is None:
            return "the commit that played it is not known"
        if commit.endswith(CHANGED):
            return f"at {_short(commit)}, files were changed that are in no commit"
    if one == other:
        return ""

    apart = f"between {_short(one)}, which played it, and {_short(other)}"
    root = Path(__file__).resolve().parents[2]
    try:
        changed = _git(root, "diff", "--name-only", str(one), str(other), "--", *PLAYS)
    except (OSError, subprocess.CalledProcessError):
        return f"what changed {apart}, is not known here"
    return f"{changed.splitlines()[0]} changed {apart}" if changed else ""


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


def _short(commit: str | None) -> str:
    return (commit or "").removesuffix(CHANGED)[:7]


def _git(root: Path, *arguments: str) -> str:
    run = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
    )
    return run.stdout.strip()
