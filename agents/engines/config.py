"""Choice of the engine that plays, and how its log-probabilities are held against the learner's."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat

from ssp_env.config import Settings
from ssp_env.errors import MissingExtra

VLLM = "pip install -e '.[gpu]'"
"""Command that installs the second."""


class EngineConfig(Settings):
    """The engine of env runners, and how far it may be from the learner."""

    section: ClassVar[str] = "engine"

    kind: Literal["transformers", "vllm"] = "transformers"
    """``transformers``, or ``vllm``, which needs its package."""
    memory: Annotated[float, Field(gt=0, lt=1)] = 0.4
    """Share of a GPU's memory that vLLM may fill."""
    max_gap: PositiveFloat = 0.05
    """Mean distance of log-probabilities, in nats, beyond which a run ends."""


def check_package(engine: str) -> None:
    """Makes sure that an engine's package is there, without loading it.

    Raises:
        MissingExtra: vLLM is asked for and not installed.
    """
    if engine == "vllm" and find_spec("vllm") is None:
        raise MissingExtra("engine.kind=vllm", VLLM)
