#!/usr/bin/env bash
# torch 2.13.0 on a CPU, Linux with glibc (here 2.36).
#
# One would guess: the memory of a tensor that is freed serves the next one of its size, as on a GPU, where PyTorch keeps
# what it has.
# Seen: so it is for 20 MiB. Of each result of 48 MiB the system clears every page anew: 12,288 page faults an addition,
# since glibc, which PyTorch asks on a CPU, never keeps blocks above 32 MiB. glibc's MALLOC_MMAP_MAX_=0, with a large
# MALLOC_TRIM_THRESHOLD_, keeps the memory: then there is hardly a fault. An update of a model gains little by that, since
# what it keeps for the backward pass is new memory in any case.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$folder"
cat > faults.py <<'PY'
import resource
import sys

import torch


def faults(mebibytes):
    """Pages that the system clears for an addition whose result has this size; mean of ten."""
    summand = torch.ones(mebibytes << 18)
    for _ in range(40):
        summand + summand
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        summand + summand
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 10


print(faults(int(sys.argv[1])))
PY
python="$folder/venv/bin/python"
export OMP_NUM_THREADS=1
small=$("$python" faults.py 20)
large=$("$python" faults.py 48)
kept=$(MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647 "$python" faults.py 48)
echo "page faults an addition: 20 MiB $small, 48 MiB $large, 48 MiB where glibc may keep it $kept"
[ "$small" -lt 100 ]
[ "$large" -ge 12288 ]
[ "$kept" -lt 1200 ]
echo "seen: a result of 48 MiB is cleared page by page each time, one of 20 MiB never"
