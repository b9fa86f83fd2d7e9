#!/usr/bin/env bash
# torch 2.13.0: the clipped surrogate of PPO and GRPO, min(ratio A, clip(ratio) A) with ratio = exp(new - old), at a token
# whose log-probability has risen by 100 nats (sampled as all but impossible, as happens behind a truncated distribution).
#
# One would guess: the ratio is clipped, so the loss is finite and the token's gradient is 0; that is what clipping is for.
# Seen: the loss is finite (-1.2), and the gradient is NaN. exp overflows to infinity, the minimum takes the clipped side
# and sends 0 back to the other, and 0 times infinity is NaN. From a rise of 89 nats on, one such token makes every weight
# NaN at the next step, while all that is logged of the loss looks right. Clamping the difference before exp keeps it 0;
# clamping the ratio after it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import torch


def surrogate(rise, most=None):
    """Loss and gradient of one token with advantage 1."""
    logprob = torch.tensor(float(rise), requires_grad=True)
    ratio = torch.exp(logprob if most is None else logprob.clamp(max=most))
    loss = -torch.minimum(ratio, ratio.clamp(0.8, 1.2))
    loss.backward()
    return loss.item(), logprob.grad.item()


for rise in (0.1, 1.0, 88.0, 89.0, 100.0):
    print(f"risen by {rise} nats: loss and gradient {surrogate(rise)}; with the difference clamped at 20: {surrogate(rise, 20.0)}")
near = torch.tensor(surrogate(100.0))
assert torch.allclose(near[0], torch.tensor(-1.2)) and near[1].isnan()
assert surrogate(88.0)[1] == 0.0
assert surrogate(100.0, 20.0)[1] == 0.0
PY
echo "seen: a finite loss of -1.2 with a gradient that is NaN"
