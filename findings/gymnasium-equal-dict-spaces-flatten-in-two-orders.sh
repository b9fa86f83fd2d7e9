#!/usr/bin/env bash
# gymnasium 1.2.2: a Dict space of the same parts, written as Dict({...}) or with keywords, Dict(...).
#
# One would guess: two spaces that are equal flatten an observation to the same vector, and with the same seed sample
# the same.
# Seen: a dict that is given is sorted by its keys; keywords, and an OrderedDict, keep the order in which they are
# written. Equality does not look at the order. So the two spaces are equal, each contains the other's samples, their
# flattened spaces are equal too, but the vectors hold the parts in another order. A policy that is trained on one and
# played on the other sees its features exchanged, and a check that compares the spaces passes. Samples differ as well.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check gymnasium==1.2.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, flatten, flatten_space


def part():
    return Box(0.0, 1.0, (1,), np.float32)


trained = Dict({"searches_left": part(), "confidence": part()})
played = Dict(searches_left=part(), confidence=part())
observation = {"searches_left": np.array([0.25], np.float32), "confidence": np.array([0.5], np.float32)}
assert trained == played and flatten_space(trained) == flatten_space(played)
assert observation in trained and observation in played


class Game(gym.Env):
    action_space = gym.spaces.Discrete(2)

    def __init__(self, space):
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return observation, {}


first, second = (flatten(space, observation).tolist() for space in (trained, played))
print("equal spaces, one observation:", first, second)
assert first == [0.5, 0.25] and second == [0.25, 0.5]

wrapped = [gym.wrappers.FlattenObservation(Game(space)) for space in (trained, played)]
assert wrapped[0].observation_space == wrapped[1].observation_space
assert [env.reset()[0].tolist() for env in wrapped] == [first, second]

samples = []
for space in (trained, played):
    space.seed(0)
    samples.append({key: float(value[0]) for key, value in sorted(space.sample().items())})
print("seed 0:", *samples)
assert samples[0] != samples[1]
PY
echo "seen: two equal Dict spaces flatten one observation to [0.5, 0.25] and to [0.25, 0.5]"
