"""Where a figure comes from: what stands beside every result."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from experiments.run.provenance import git_commit, machine


def origin(name: str) -> dict[str, str]:
    """The command of this process, the date, the commit and the machine.

    Args:
        name: of the benchmark, as in ``python -m benchmarks.NAME``.
    """
    return {
        "command": " ".join([f"python -m benchmarks.{name}", *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "git_commit": git_commit(),
        "machine": machine(),
    }
