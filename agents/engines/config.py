"""Which engine plays, and how its log-probabilities are held against the learner's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec

from ssp_env.checks import at_least, one_of
from ssp_env.errors import ConfigError, MissingExtra
from ssp_env.settings import check_types

ENGINES = ("transformers", "vllm")
VLLM = "pip install -e '.[gpu]'"
"""What brings the second."""


@dataclass(frozen=True)
class EngineConfig:
    """The engine of env runners."""

    kind: str = "transformers"
    """``transformers``, or ``vllm``, which needs its package."""
    memory: float = 0.4
    """Share of a GPU's memory that vLLM may fill."""
    check_every: int = 50
    """Steps between two comparisons with the learner; the first step of a run has one too."""
    max_gap: float = 0.05
    """Mean distance of log-probabilities, in nats, beyond which a run ends."""

    def __post_init__(self) -> None:
        check_types(self, "engine")
        one_of("engine.kind", self.kind, ENGINES)
        at_least(self, "engine", 1, "check_every")
        if not 0 < self.memory < 1:
            raise ConfigError("engine.memory", self.memory, "give a share between 0 and 1")
        if not (self.max_gap > 0 and math.isfinite(self.max_gap)):
            raise ConfigError("engine.max_gap", self.max_gap, "give a finite number above 0")


def check_package(engine: str) -> None:
    """Makes sure that an engine's package is there, without loading it.

    Raises:
        MissingExtra: vLLM is asked for and not installed.
    """
    if engine == "vllm" and find_spec("vllm") is None:
        raise MissingExtra("compute.engine=vllm", VLLM)
