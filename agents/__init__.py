"""LLM policies that learn the game: engines, rollouts, losses, and their use on RLlib."""

import os

# oneDNN keeps a compiled kernel for each shape of matrix that it has seen, a thousand by default.
# Batches of sequences have ever new shapes, so that a process would grow by gigabytes. Both are
# read at the first use of such a kernel.
for _name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_name, "64")
