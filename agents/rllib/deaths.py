"""Tells the death of a learner from any other error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from ssp_env.errors import ServiceError


@contextmanager
def learners_alive(learner_group: Any, learners: int) -> Iterator[None]:
    """Says so when something fails because a learner is dead.

    Args:
        learner_group: RLlib's.
        learners: how many of them are remote.

    Raises:
        ServiceError: service ``learner``.
    """
    try:
        yield
    except Exception as error:
        # Which error it is depends on who noticed: Ray, RLlib, or the other learners.
        if learners and _one_is_dead(learner_group):
            what = "a learner died; go on from the last checkpoint"
            raise ServiceError("learner", what) from error
        raise


def _one_is_dead(learner_group: Any) -> bool:
    for actor in learner_group._worker_manager.actors().values():
        try:
            ray.get(actor.__ray_ready__.remote(), timeout=10.0)
        except RayActorError:
            return True
        except RayError:
            continue  # busy, or failing in some other way
    return False
