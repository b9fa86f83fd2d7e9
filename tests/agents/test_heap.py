"""What passes free is kept for the next tensor, and given back between passes."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from pathlib import Path

import torch

from ssp_agents.heap import give_back_memory, keep_freed_memory

def megabytes():
    resident = Path("/proc/self/statm").read_text().split()[1]
    return int(resident) * resource.getpagesize() >> 20

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(40):
    torch.ones(48 << 18)  # 48 MiB, beyond what glibc keeps by itself
held, before = megabytes(), faults()
for _ in range(10):
    torch.ones(48 << 18)
cleared = faults() - before
give_back_memory()
print(cleared, held - megabytes())
"""


def figures(mode: str) -> tuple[int, int]:
    """Pages that were cleared for ten tensors of 48 MiB, and MiB that were given back."""
    command = [sys.executable, "-c", SCRIPT, mode]
    cleared, given = subprocess.run(command, check=True, capture_output=True).stdout.split()
    return int(cleared), int(given)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_a_freed_tensor_is_the_memory_of_the_next_one() -> None:
    kept, given_back = figures("keep")
    as_it_is, _ = figures("leave")
    pages = 10 * (48 << 20) // 4096
    assert as_it_is > pages / 2
    assert kept < pages / 10
    assert given_back >= 40
