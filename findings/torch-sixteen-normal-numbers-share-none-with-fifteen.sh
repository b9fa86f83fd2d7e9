#!/usr/bin/env bash
# torch 2.13.0 on a CPU: normal numbers from one seed, drawn for one row or for several at a time (noise for exploration,
# initial weights, Gaussian policies).
#
# One would guess: a generator is a stream, so that the first numbers of a longer draw are those of a shorter one, and two
# draws of eight are one of sixteen; so it is for uniform and exponential numbers, and for numpy's normal ones.
# Seen: draws of 16 and more are made by another method, in blocks of 16. randn(15) and randn(16) differ from the second
# number on; two draws of 8 are not one of 16, two of 16 are one of 32; 17 numbers share one with 32, for the last 16 are
# drawn anew when they do not fill a block. So the noise of a row depends on how many rows are drawn with it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import torch


def normal(*sizes):
    generator = torch.Generator().manual_seed(0)
    return torch.cat([torch.randn(size, generator=generator) for size in sizes])


def uniform(*sizes):
    generator = torch.Generator().manual_seed(0)
    return torch.cat([torch.rand(size, generator=generator) for size in sizes])


def shared(one, other):
    """How many of the first numbers are equal."""
    return sum(a == b for a, b in zip(one.tolist(), other.tolist()))


print("normal: equal among the first numbers of 15 and 16:", shared(normal(15), normal(16)))
print("normal: of 8 + 8 and 16:", shared(normal(8, 8), normal(16)), "- of 16 + 16 and 32:", shared(normal(16, 16), normal(32)))
print("normal: of 17 and 32:", shared(normal(17), normal(32)))
print("uniform: of 15 and 16:", shared(uniform(15), uniform(16)), "- of 8 + 8 and 16:", shared(uniform(8, 8), uniform(16)))
assert shared(normal(15), normal(16)) <= 1
assert shared(normal(8, 8), normal(16)) <= 1
assert shared(normal(16, 16), normal(32)) == 32
assert shared(normal(17), normal(32)) <= 1
assert shared(uniform(15), uniform(16)) == 15 and shared(uniform(8, 8), uniform(16)) == 16
rng = [np.random.default_rng(0) for _ in range(2)]
assert np.array_equal(np.concatenate([rng[0].standard_normal(8) for _ in range(2)]), rng[1].standard_normal(16))
PY
echo "seen: torch.randn(16) has at most one number in common with torch.randn(15) from the same seed"
