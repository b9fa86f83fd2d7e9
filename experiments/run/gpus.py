"""Memory of the GPUs that a run is to use: of this machine, or of a Ray cluster."""

from __future__ import annotations

import os

import torch

_SLIVER = 0.01
"""Share of a GPU that asking takes."""
_PATIENCE = 60.0
"""Seconds that busy nodes have to answer."""


def gpu_memories() -> list[int]:
    """Bytes of each GPU that a run may use, as far as they are known.

    With ``RAY_ADDRESS``, each node of that cluster is asked about its GPUs, in a task of its own;
    the main process need not have any.

    Raises:
        ServiceError: the cluster cannot be reached.
    """
    if os.environ.get("RAY_ADDRESS"):
        return _of_cluster()
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [_memory(i) for i in range(there)]


def _of_cluster() -> list[int]:
    # Ray is imported late: nobody else needs it here.
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from experiments.run.cluster import started_ray

    with started_ray():
        asked = {}
        for node in ray.nodes():
            count = int(node["Resources"].get("GPU", 0)) if node["Alive"] else 0
            if count:
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                task = ray.remote(num_cpus=0, num_gpus=_SLIVER, scheduling_strategy=there)
                asked[task(_first_memory).remote()] = count

        if not asked:
            return []
        answered, busy = ray.wait([*asked], num_returns=len(asked), timeout=_PATIENCE)
        for reference in busy:
            ray.cancel(reference)
        return [size for ref in answered for size in [ray.get(ref)] * asked[ref] if size]


def _first_memory() -> int:
    """Bytes of the GPU that this process was given; 0 if PyTorch does not see it."""
    return _memory(0) if torch.cuda.is_available() else 0


def _memory(number: int) -> int:
    return int(torch.cuda.get_device_properties(number).total_memory)
