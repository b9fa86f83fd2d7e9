"""What a run will need of its GPUs, from its settings alone."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import torch

from agents.models import autocast_dtype
from agents.planning.fit import check_fit
from agents.planning.plan import FLOAT, HALF, Job, Layout, Plan, Planner
from experiments.config import RunConfig
from experiments.run.gpus import gpu_memories
from ssp_env.errors import ModelError

UNCHECKED = (
    "no GPU could be asked how much memory it has, so nobody knows whether this run fits: "
    "`ssp plan --preset %s --memory GIB`, with the other settings of this run, says so"
)

_log = logging.getLogger(__name__)


def job_of(config: RunConfig) -> Job:
    """What a plan needs to know of a run.

    Where learners have GPUs, these are taken for ones that multiply in bfloat16.
    """
    compute = config.compute
    on_gpu = compute.gpus_per_learner > 0
    layout = Layout(
        env_runners=compute.env_runners,
        learners=compute.learners,
        gpus_per_env_runner=compute.gpus_per_env_runner,
        gpus_per_learner=compute.gpus_per_learner,
        sharding=compute.sharding,
    )
    precision = config.learning.precision
    if on_gpu and precision == "auto":
        precision = "bfloat16"

    return Job(
        game=config.game,
        learning=config.learning,
        layout=layout,
        autocast=autocast_dtype(precision, torch.device("cpu")),
        engine_bytes=HALF if compute.gpus_per_env_runner > 0 else FLOAT,
        vllm=config.engine.kind == "vllm",
        engine_memory=config.engine.memory,
        overlap=compute.overlap,
        attention="sdpa" if on_gpu else "eager",
    )


def planner_of(directory: Path) -> Planner:
    """Counts for the policy of a model directory, of which only ``config.json`` is read.

    Raises:
        ModelError: it holds none, or not that of a causal LM.
    """
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    try:
        config: Any = AutoConfig.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{directory / 'config.json'} cannot be used: {error}") from error

    if config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ModelError(f"the model in {directory} ({config.model_type}) is not a causal LM")
    return Planner(config)


def check_memory(config: RunConfig) -> Plan | None:
    """Makes sure that a run fits on its GPUs, of this machine or of its Ray cluster.

    Returns:
        Its plan; ``None`` if it uses no GPU, or if none could be asked, which is then logged.

    Raises:
        ConfigError: it does not fit; names the setting to change.
        ServiceError: the cluster cannot be reached.
    """
    job = job_of(config)
    if not job.layout.gpus:
        return None

    memories = gpu_memories()
    if not memories:
        _log.warning(UNCHECKED, config.preset)
        return None

    # A cluster may get more GPUs than it has now.
    gpus = max(len(memories), math.ceil(job.layout.gpus))
    return check_fit(planner_of(config.model_dir), job, min(memories), gpus)
