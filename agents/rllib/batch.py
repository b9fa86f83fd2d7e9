"""From training rows to RLlib batches, and balanced shards of them, none of them empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

from agents.columns import columns_of
from agents.rows import Row

MODULE_ID = "llm"
"""The one module; roles are a column. A module missing on one learner would hang all of them."""
LM = "lm."
"""How the module's names of its causal LM's weights begin; other weights are not played with."""


def shard(rows: Sequence[Row], shards: int) -> list[list[Row]]:
    """Deals rows to learners: longest first, each to the shard with the fewest tokens.

    Rows of one text go to one learner, which reads it once. A shard that would stay empty gets a
    row of weight 0, because a learner without rows hangs its peers."""
    dealt: list[list[Row]] = [[] for _ in range(shards)]
    loads = [0] * shards
    texts: dict[tuple[bytes, bytes], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (-len(row.ids), row.game, row.role)):
        texts.setdefault((row.ids.tobytes(), row.mask.tobytes()), []).append(row)

    for equal in texts.values():
        lightest = loads.index(min(loads))
        dealt[lightest].extend(equal)
        loads[lightest] += len(equal[0].ids)

    for part in dealt:
        if not part:
            part.append(replace(min(rows, key=lambda row: len(row.ids)), weight=0.0))

    return dealt


def to_batch(rows: Sequence[Row]) -> MultiAgentBatch:
    """The columns of rows as RLlib wants them."""
    return MultiAgentBatch({MODULE_ID: SampleBatch(columns_of(rows))}, env_steps=len(rows))
