#!/usr/bin/env bash
# numpy 2.4.6, default_rng of a list, such as [seed, worker] or [seed, step, game].
#
# One would guess: different lists are different seeds.
# Seen: a list of up to four words of 32 bits is filled up with zeros, so noughts at its end do not count: the first
# worker, at its first step, draws what a generator of the bare seed draws, number by number. Where the main process
# deals the questions from default_rng(seed), worker 0 has the same luck as the dealer. And an integer from 2**32 on is
# cut into words of 32 bits, the lowest first: [1, 2] is one seed with 2 * 2**32 + 1, and a 64-bit hash takes two
# places. What is given as spawn_key instead is kept apart, zeros too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np


def drawn(seed):
    return np.random.default_rng(seed).integers(1000, size=5).tolist()


for seed in (7, [7, 0], [7, 0, 0], [7, 1], [1, 2], 2 * 2**32 + 1):
    print(f"{seed!s:12}", drawn(seed))
assert drawn(7) == drawn([7]) == drawn([7, 0]) == drawn([7, 0, 0]) == drawn([7, 0, 0, 0])
assert drawn(7) != drawn([7, 1])
assert drawn(7) != drawn([0, 7])
assert drawn([1, 2]) == drawn(2 * 2**32 + 1)
assert drawn([2**32 + 7, 3]) == drawn([7, 1, 3])

keyed = [drawn(np.random.SeedSequence(7, spawn_key=key)) for key in ((), (0,), (0, 0), (1,))]
assert all(keyed[i] != keyed[j] for i in range(4) for j in range(i))
PY
echo "seen: [7], [7, 0] and [7, 0, 0] are one seed, and so are [1, 2] and 2 * 2**32 + 1"
