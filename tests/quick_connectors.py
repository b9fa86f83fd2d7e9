"""Lets RLlib build learners and env runners in a fifth of the time that it takes within pytest."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace


def quicken_connectors() -> None:
    """Gives RLlib's connectors the caller that they ask for, and not the whole stack.

    Each of the dozen connectors of a learner takes ``inspect.stack()[1].frame``, which looks up the
    source of every frame. The deep stacks of pytest make that a third of a second per learner.
    """
    from ray.rllib.connectors import connector_v2

    def stack() -> list[SimpleNamespace]:
        frames = sys._getframe(1), sys._getframe(2)
        return [SimpleNamespace(frame=frame) for frame in frames]

    connector_v2.inspect = SimpleNamespace(**{**vars(inspect), "stack": stack})
