"""Python's garbage collector, beside large libraries."""

from __future__ import annotations

import gc


def spare_libraries() -> bool:
    """Keeps the collector from what is there by now, which stays as long as the process plays.

    PyTorch, transformers and RLlib leave half a million objects behind, and the collector would
    go through all of them now and then. That takes as long as a fair part of a tiny step.

    Returns:
        Whether nobody else had kept anything from it, so that :func:`gc.unfreeze` undoes this.
    """
    alone = gc.get_freeze_count() == 0
    gc.collect()
    gc.freeze()
    return alone
