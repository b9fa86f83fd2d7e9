"""What a model has to read so that given sequences can go on: each common beginning once, and rows
of like length side by side."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

MOST_TOKENS = 1 << 13
"""Tokens, padding included, in a pass of several rows: more would take memory and no less time."""


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """Tokens ``ids[start:end]``, read by one row in one pass behind ``ids[:start]``."""

    ids: tuple[int, ...]
    """A whole sequence, of which this is a piece: the first of those that begin with it."""
    start: int
    end: int
    behind: Piece | None = None
    """Piece whose row it goes on from; ``None``: what was known of the sequence."""

    @property
    def width(self) -> int:
        return self.end - self.start

    @property
    def depth(self) -> int:
        """Passes that have to come before."""
        return 0 if self.behind is None else 1 + self.behind.depth


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common beginning.

    >>> common([5, 6, 7], [5, 6, 8, 9])
    2
    """
    unequal = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(unequal, min(len(one), len(other)))


class Beginnings:
    """Sequences that have been read, to find the one that begins most like another."""

    def __init__(self, known: Sequence[list[int]]) -> None:
        self._order = sorted(range(len(known)), key=known.__getitem__)
        self._sorted = [known[i] for i in self._order]

    def closest(self, ids: Sequence[int]) -> tuple[int, int]:
        """Number of the sequence with the longest common beginning, and how long that is; (-1, 0)
        where none begins alike.

        >>> Beginnings([[1, 2, 3], [1, 2, 4, 5], [9]]).closest([1, 2, 4, 7])
        (1, 3)
        """
        # In the order of the alphabet, nothing has more in common with it than its neighbours.
        place, best = bisect_left(self._sorted, [*ids]), (-1, 0)
        for near in (place - 1, place):
            if 0 <= near < len(self._sorted):
                size = common(self._sorted[near], ids)
                best = max(best, (self._order[near], size), key=lambda match: match[1])
        return best


def pieces(sequences: Mapping[tuple[int, ...], int], least: int) -> list[Piece]:
    """Pieces to read, parents first, of sequences whose first so many tokens are known.

    The last token of each is read in a piece that ends with it. A common beginning is a piece of
    its own if that saves at least ``least`` tokens.

    >>> for piece in pieces({(1, 2, 3, 4): 0, (1, 2, 3, 5, 6): 0, (7,): 0}, least=3):
    ...     print(piece.ids[piece.start : piece.end], piece.depth)
    (1, 2, 3) 0
    (4,) 1
    (5, 6) 1
    (7,) 0
    """
    cut: list[Piece] = []

    # Sequences are a tree: where some part, what they have in common so far is read once, if
    # that pays, and each part goes on from there.
    def branch(group: list[tuple[int, ...]], behind: Piece | None) -> None:
        # Sorted sequences that have all that was read before in common.
        first, last = group[0], group[-1]
        start = sequences[first] if behind is None else behind.end
        if len(group) == 1:
            cut.append(Piece(first, start, len(first), behind))
            return

        # What the first and the last of sorted sequences have in common, all others share.
        alike = common(first, last)
        shared = min(alike, len(first) - 1)  # something is left to read for each
        # A common piece goes on from a single row, so all of the group have to be known equally
        # far. Of n sequences, it saves n - 1 the tokens from ``start`` to ``shared``.
        level = behind is not None or {sequences[ids] for ids in group} == {start}
        if level and (len(group) - 1) * (shared - start) >= least:
            behind = Piece(first, start, shared, behind)
            cut.append(behind)
        for part in _parted(group, alike):
            branch(part, behind)

    if sequences:
        branch(sorted(sequences), None)
    return cut


def _parted(group: list[tuple[int, ...]], alike: int) -> Iterator[list[tuple[int, ...]]]:
    """Sorted sequences that begin with so many common tokens, parted by the next one."""
    for _, part in groupby(group, lambda ids: ids[alike : alike + 1]):
        yield [*part]


def passes(wanted: Sequence[Piece], cost: int) -> list[list[Piece]]:
    """The pieces in passes, parents first. Rows of a pass are padded to the widest, so pieces are
    grouped by width: so that the tokens are fewest, padding and ``cost`` for each pass included.

    >>> lengths = [100, 98, 20, 19, 97]
    >>> wide = [Piece((0,) * length, 0, length) for length in lengths]
    >>> [[piece.width for piece in part] for part in passes(wide, cost=64)]
    [[100, 98, 97], [20, 19]]
    """
    groups = []
    for depth in range(1 + max((piece.depth for piece in wanted), default=-1)):
        level = [piece for piece in wanted if piece.depth == depth]
        level.sort(key=attrgetter("width"), reverse=True)

        # costs[i]: of the first i pieces; starts[i]: where the last pass of these begins.
        costs, starts = [0], [0]
        # costs[end] = min over start of costs[start] + (end - start) width[start] + cost, because
        # the widest of level[start:end] is its first.
        for end in range(1, len(level) + 1):
            choices: list[tuple[int, int]] = []
            for start in range(end - 1, -1, -1):
                tokens = (end - start) * level[start].width
                # Further starts have more tokens still. A single piece has a pass at any width.
                if tokens > MOST_TOKENS and choices:
                    break
                choices.append((costs[start] + tokens + cost, start))
            costs.append(min(choices)[0])
            starts.append(min(choices)[1])

        # The cheapest cut, from the last pass back to the first.
        parts: list[list[Piece]] = []
        while level:
            parts.append(level[starts[len(level)] :])
            level = level[: starts[len(level)]]
        groups += parts[::-1]
    return groups
