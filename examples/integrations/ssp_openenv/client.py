"""A client of the environment server."""

from __future__ import annotations

from typing import Any

from openenv.core import EnvClient
from openenv.core.client_types import StepResult

from .models import SspAction, SspObservation, SspState


class SspEnv(EnvClient[SspAction, SspObservation, SspState]):
    """A session of its own: ``reset(seed=3, split="proposer")``, then ``step(SspAction(...))``."""

    def _step_payload(self, action: SspAction) -> dict[str, Any]:
        return {"text": action.text}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[SspObservation]:
        ends: dict[str, Any] = {"done": payload.get("done", False), "reward": payload.get("reward")}
        observation = SspObservation(**{**payload["observation"], **ends})
        return StepResult(observation=observation, metadata=observation.metadata, **ends)

    def _parse_state(self, payload: dict[str, Any]) -> SspState:
        return SspState(**payload)
