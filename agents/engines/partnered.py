"""Two policies at one table: the one that learns, and a frozen partner in the other role."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.engines.base import Engine, Generation, Request
from ssp_env.errors import ConfigError
from ssp_env.tokenizers import HuggingFaceTokenizer


class Partnered:
    """An engine that sends requests to two others, by who writes.

    Weights, their version and their updates are those of the policy that learns.
    """

    def __init__(self, policy: Engine, partner: Engine, plays: Callable[[str], bool]) -> None:
        """
        Args:
            policy: plays the role that learns.
            partner: plays the other one, with the weights that it has.
            plays: whether the policy plays a role, such as
                :meth:`~agents.config.LearningConfig.plays`.
        """
        self._policy, self._partner, self._plays = policy, partner, plays
        self.weights_version = policy.weights_version

    @property
    def running(self) -> int:
        """How many requests have been submitted to either and not finished."""
        return self._policy.running + self._partner.running

    def submit(self, requests: Sequence[Request]) -> None:
        """See :class:`~agents.engines.base.Engine`."""
        self._policy.submit([request for request in requests if self._plays(request.role)])
        self._partner.submit([request for request in requests if not self._plays(request.role)])

    def step(self) -> list[tuple[int, Generation]]:
        """One step of each that has something to do.

        Raises:
            ServiceError: one of them failed. What the other one has finished is lost with it, since
                all that runs is void then.
        """
        busy = [engine for engine in (self._policy, self._partner) if engine.running]
        return [finished for engine in busy for finished in engine.step()]

    def release(self, keys: Iterable[int]) -> None:
        """See :class:`~agents.engines.base.Engine`."""
        both = [*keys]
        self._policy.release(both)
        self._partner.release(both)

    def update_weights(self, state: Mapping[str, Any], version: int) -> None:
        """Gives the policy that learns new weights; the partner keeps its own."""
        self._policy.update_weights(state, version)
        self.weights_version = version

    def weights(self) -> dict[str, Any]:
        """Those of the policy that learns."""
        return self._policy.weights()

    def sleep(self) -> None:
        """See :class:`~agents.engines.base.Engine`."""
        self._policy.sleep()
        self._partner.sleep()

    def wake(self) -> None:
        """See :class:`~agents.engines.base.Engine`."""
        self._policy.wake()
        self._partner.wake()


def check_same_tokens(partner: str | Path, model_dir: str | Path) -> None:
    """Makes sure that one policy can read what the other one writes.

    Raises:
        ConfigError: their tokenizers differ; names ``partner``.
        ModelError: one has no tokenizer.
    """
    theirs, ours = HuggingFaceTokenizer.load(partner), HuggingFaceTokenizer.load(model_dir)
    if theirs.pieces != ours.pieces:
        fix = f"its tokenizer is not that of {model_dir}: both roles write in one trajectory's ids"
        raise ConfigError("partner", str(partner), fix)
