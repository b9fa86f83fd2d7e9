#!/usr/bin/env bash
# torch 2.13.0, torch.nn.utils.clip_grad_norm_ with its defaults, where one number of one gradient is infinite (a single
# overflow), followed by a step of Adam.
#
# One would guess: the norm is clipped to the maximum, as for any large gradient; or the call raises; or, as the returned
# norm is inf, nothing is usable and everything turns to NaN.
# Seen: the factor is max / inf = 0. The infinite number becomes 0 * inf = NaN, all others become exactly 0. The step then
# ruins that one weight for good (it is NaN from then on, and so is the loss that uses it), while every other weight only
# coasts on its momentum: a checkpoint of which one number in millions is NaN. error_if_nonfinite=True is not the default.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import torch

weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
adam = torch.optim.Adam(weights, lr=0.1)
weights[0].grad = torch.tensor([1.0, float("inf"), 1.0])
weights[1].grad = torch.ones(3)
norm = torch.nn.utils.clip_grad_norm_(weights, 1.0)
print("norm", norm.item(), "- gradients", [w.grad.tolist() for w in weights])
adam.step()
print("weights", [w.tolist() for w in weights])
assert norm.isinf()
assert weights[0].grad[1].isnan() and weights[0].grad[[0, 2]].eq(0).all() and weights[1].grad.eq(0).all()
assert weights[0][1].isnan() and weights[0][[0, 2]].eq(1).all() and weights[1].eq(1).all()
PY
echo "seen: one gradient of inf becomes NaN, all the others become 0, and the call returns"
