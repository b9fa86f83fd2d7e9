"""From training rows to RLlib batches: padded columns, and balanced shards, none of them empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

from agents.rows import ROLE_IDS, Row

MODULE_ID = "llm"
"""The one module; roles are a column. A module missing on one learner would hang all of them."""


def shard(rows: Sequence[Row], shards: int) -> list[list[Row]]:
    """Deals rows to learners: longest first, each to the shard with the fewest tokens.

    A shard that would stay empty gets a row of weight 0, because a learner without rows hangs its
    peers."""
    dealt: list[list[Row]] = [[] for _ in range(shards)]
    loads = [0] * shards
    for row in sorted(rows, key=lambda row: (-len(row.ids), row.game, row.role)):
        lightest = loads.index(min(loads))
        dealt[lightest].append(row)
        loads[lightest] += len(row.ids)

    for part in dealt:
        if not part:
            part.append(replace(min(rows, key=lambda row: len(row.ids)), weight=0.0))

    return dealt


def to_batch(rows: Sequence[Row]) -> MultiAgentBatch:
    """Columns of equal first dimension; ids, mask and logprobs are padded on the right."""
    longest = max(len(row.ids) for row in rows)
    columns: dict[str, np.ndarray] = {
        "ids": np.zeros((len(rows), longest), dtype=np.int64),
        "loss_mask": np.zeros((len(rows), longest), dtype=np.float32),
        "behaviour_logprobs": np.zeros((len(rows), longest), dtype=np.float32),
        "lengths": np.array([len(row.ids) for row in rows], dtype=np.int64),
        "role": np.array([ROLE_IDS[row.role] for row in rows], dtype=np.int64),
        "advantages": np.array([row.advantage for row in rows], dtype=np.float32),
        "weights": np.array([row.weight for row in rows], dtype=np.float32),
    }

    for i, row in enumerate(rows):
        columns["ids"][i, : len(row.ids)] = row.ids
        columns["loss_mask"][i, : len(row.mask)] = row.mask
        columns["behaviour_logprobs"][i, : len(row.logprobs)] = row.logprobs

    return MultiAgentBatch({MODULE_ID: SampleBatch(columns)}, env_steps=len(rows))
