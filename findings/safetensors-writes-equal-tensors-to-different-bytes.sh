#!/usr/bin/env bash
# safetensors 0.8.0: metadata of several entries (such as those of PyTorch's distributed checkpoints).
#
# One would guess: the format has sorted headers, so that equal tensors and metadata make equal files; a digest, a cache by
# content or a byte for byte comparison of two checkpoints tells whether the weights are the same.
# It does: tensors are sorted, but the entries of __metadata__ come in a random order, another one in each call. With one
# entry (what transformers writes: {"format": "pt"}) files are equal; with eight, twenty files have twenty digests.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check safetensors==0.8.0 numpy==2.4.6

"$folder/venv/bin/python" - <<'EOF'
from hashlib import sha256

import numpy as np
from safetensors.numpy import load, save

weights = {"embedding": np.arange(6, dtype=np.float32), "bias": np.zeros(2, dtype=np.float32)}
one = {"format": "pt"}
many = {f"{name}_version": "1.0" for name in ("format", "config", "trainer", "shard", "data", "code", "run", "step")}


def digests(metadata: dict[str, str]) -> int:
    return len({sha256(save(weights, metadata=metadata)).hexdigest() for _ in range(20)})


print("files of equal tensors, twenty times; different digests:")
print(f"  one entry of metadata: {digests(one)}; eight entries: {digests(many)}")
copies = [load(save(weights, metadata=many)) for _ in range(2)]
assert all(np.array_equal(copies[0][name], copies[1][name]) for name in weights)
assert digests(one) == 1, "one entry: equal files"
assert digests(many) > 10, "eight entries: a new order each time"
EOF
echo "safetensors 0.8.0 orders metadata at random: equal tensors, different files"
