#!/usr/bin/env bash
# numpy 2.4.6: Generator.bit_generator.state, which checkpoints save and put back, and Generator.spawn.
#
# One would guess: the state is the whole of a generator; one whose state was put back goes on like the first.
# Seen: draws go on, children do not. How many children were spawned, and from which seed, is kept beside the state and
# is not part of it. A run that saves the state after two children and resumes from the seed gives its next child the
# stream of the FIRST one again; resumed in a generator without a seed, it gets a stream that nobody can repeat. A
# pickle keeps the count. Two generators made from one SeedSequence object draw alike and still spawn unlike.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import pickle

import numpy as np


def child(generator):
    return generator.spawn(1)[0].random()


running = np.random.default_rng(7)
first, second = child(running), child(running)
state, pickled = running.bit_generator.state, pickle.dumps(running)

resumed = np.random.default_rng(7)
resumed.bit_generator.state = state
unseeded = np.random.default_rng()
unseeded.bit_generator.state = state
unpickled = pickle.loads(pickled)

third = child(running)
children = {"state, same seed": child(resumed), "state, no seed": child(unseeded), "pickle": child(unpickled)}
print(f"children so far: {first:.6f}, {second:.6f}; the next: {third:.6f}; resumed by:")
for how, value in children.items():
    print(f"  {how}: {value:.6f}")
assert children["state, same seed"] == first != third
assert children["state, no seed"] not in (first, second, third)
assert children["pickle"] == third
assert running.random() == resumed.random() == unseeded.random() == unpickled.random()

shared = np.random.SeedSequence(7)
one, other = np.random.default_rng(shared), np.random.default_rng(shared)
assert one.random() == other.random() and child(one) != child(other)
PY
echo "seen: the same state, the same draws, other children"
