"""LLM policies that learn the game: engines, rollouts, losses, and their use on RLlib.

One training step, in the order in which it happens: ``rllib/algorithm.py`` (the step),
``rllib/runners.py`` and ``rllib/env_runner.py`` (its game batches are handed out and played),
``rollout.py`` (turns and searches), ``rows.py`` (rewards, advantages, weights, shards,
micro-batches), ``rllib/learner.py`` and ``rllib/module.py`` (RLlib's frame), ``update.py``,
``losses.py``, ``scoring.py`` (one optimizer step), ``metrics.py`` (its figures).
"""

import os

# oneDNN keeps a compiled kernel for each shape of matrix that it has seen, a thousand by default.
# Batches of sequences have ever new shapes, so that a process would grow by gigabytes. Both are
# read at the first use of such a kernel.
for _name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_name, "64")
