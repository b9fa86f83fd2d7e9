#!/usr/bin/env bash
# torch 2.13.0 (float32): the group-relative advantage (r - mean) / (std + eps) of GRPO, where all rewards of a group are
# equal, such as a partial score of 0.7 for each of eight answers.
#
# One would guess: the mean of eight times 0.7 is 0.7 and their deviation 0, so the advantages are 0, whatever eps is;
# eps is there to avoid 0 / 0.
# Seen: for 0, 1 and 0.5 that is so. For 0.7 the mean is rounded, and mean and deviation are wrong by the same 6e-8: with
# eps = 1e-8 every answer of the group gets .81, all with one sign, as if the whole group had done better than itself. With
# eps = 1e-6 it is .056, with 1e-4 .0006. It depends on the number of answers: four times 0.7 give 0. In float64 it stays
# below 1e-7. A test for "std == 0" does not find such a group; max == min does.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import torch


def advantages(reward, answers, eps, dtype=torch.float32):
    rewards = torch.full((answers,), reward, dtype=dtype)
    return ((rewards - rewards.mean()) / (rewards.std() + eps)).tolist()


for reward, answers in ((1.0, 8), (0.5, 8), (0.7, 4), (0.7, 8), (0.3, 8), (0.1, 8)):
    row = {eps: round(advantages(reward, answers, eps)[0], 4) for eps in (1e-8, 1e-6, 1e-4)}
    print(f"{answers} rewards of {reward}: advantage by eps {row}")
assert advantages(1.0, 8, 1e-8) == advantages(0.5, 8, 1e-8) == [0.0] * 8
assert advantages(0.7, 4, 1e-8) == [0.0] * 4
assert all(0.7 < each < 0.9 for each in advantages(0.7, 8, 1e-8))
assert all(-0.5 < each < -0.4 for each in advantages(0.1, 8, 1e-8))
assert 0.05 < advantages(0.7, 8, 1e-6)[0] < 0.06
assert all(abs(advantages(0.7, n, 1e-8, torch.float64)[0]) < 1e-7 for n in range(2, 100))
equal = torch.full((8,), 0.7)
assert equal.std() != 0 and equal.max() == equal.min()
PY
echo "seen: eight equal rewards of 0.7 have an advantage of .81 each with eps = 1e-8"
