#!/usr/bin/env bash
# gymnasium 1.2.2, wrappers.vector.RecordEpisodeStatistics over a vector environment that resets in the step that ends an
# episode (AutoresetMode.SAME_STEP, as older gym and stable-baselines3 do).
#
# One would guess: the return and length of an episode are the sum of its rewards and their number, in every mode.
# Seen: right for the first episode of each environment. After an end, the wrapper takes the next step for a reset (which
# it is in the mode NEXT_STEP) and sets its sums to zero; in SAME_STEP that is the first step of the new episode. So every
# later episode lacks its first reward and one step: a game of one step has return 0 and length 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check gymnasium==1.2.2 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics


class Game(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(10)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, steps):
        self.steps = steps

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return 0, {}

    def step(self, action):
        self.step_number += 1
        return self.step_number, 1.0, self.step_number == self.steps, False, {}


def episodes(mode, steps):
    env = RecordEpisodeStatistics(SyncVectorEnv([lambda: Game(steps)], autoreset_mode=mode))
    env.reset(seed=0)
    infos = [env.step(np.array([0]))[-1] for _ in range(12)]
    return [(float(info["episode"]["r"][0]), int(info["episode"]["l"][0])) for info in infos if "episode" in info][:3]


for steps in (3, 1):
    same, following = episodes(AutoresetMode.SAME_STEP, steps), episodes(AutoresetMode.NEXT_STEP, steps)
    print(f"games of {steps} steps, (return, length): SAME_STEP {same}, NEXT_STEP {following}")
    assert following == [(steps, steps)] * 3
    assert same == [(steps, steps)] + [(steps - 1, steps - 1)] * 2
PY
echo "seen: from the second episode on, every episode is one step and one reward short"
