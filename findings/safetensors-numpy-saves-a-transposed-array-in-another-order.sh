#!/usr/bin/env bash
# safetensors 0.8.0, safetensors.numpy: arrays that are not laid out row by row (a transpose, Fortran order).
#
# One would guess: the array comes back as it was, as with release 0.7.0; or it is refused, as safetensors.torch refuses
# a transposed tensor.
# Seen: the numbers are written in the order in which they lie in memory, under the shape of the array. What comes back
# has the right shape, dtype and set of numbers, in the wrong places; nothing is said. Embeddings kept one column each
# and saved as matrix.T, or a weight turned for another framework, are scrambled. np.ascontiguousarray() before saving
# cures it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check safetensors==0.8.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from safetensors.numpy import load_file, save_file


def back(array):
    save_file({"vectors": array}, "vectors.safetensors")
    return load_file("vectors.safetensors")["vectors"]


rows = np.arange(6, dtype=np.float32).reshape(2, 3)
cases = {"rows": rows, "rows.T": rows.T, "Fortran order": np.asfortranarray(rows)}
same = {}
for name, array in cases.items():
    came = back(array)
    assert came.shape == array.shape and came.dtype == array.dtype
    same[name] = np.array_equal(came, array)
    print(f"{name}: {array.tolist()} came back as {came.tolist()}")
assert same == {"rows": True, "rows.T": False, "Fortran order": False}
assert all(np.array_equal(back(np.ascontiguousarray(array)), array) for array in cases.values())
PY
echo "seen: shape and dtype come back, the numbers in another order"
