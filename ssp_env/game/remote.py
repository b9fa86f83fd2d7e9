"""Which parts of a game wait for somebody else: they may be asked beside other work."""

from __future__ import annotations


def is_remote(part: object) -> bool:
    """Whether a retriever, judge or verifier spends its time waiting for another machine.

    It is then called from several threads at once, while the policy generates. A part says so by
    an attribute ``remote`` that is true; a retriever that asks a server need not say it, and what
    stands before others (caches, rerankers, fusions) is remote if one of them is.
    """
    said = getattr(part, "remote", None)
    if isinstance(said, bool):
        return said
    inner = getattr(part, "retriever", None)
    several = getattr(part, "retrievers", None) or ([] if inner is None else [inner])
    return any(map(is_remote, several))
