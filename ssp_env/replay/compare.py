"""Where two games differ: by trajectory, token and field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from ssp_env.game.record import GameRecord, TrajectoryRecord

_NOT_COMPARED = frozenset(
    {"trajectories", "hops", "truly_correct", "right_answers", "weights_version"}
    | {"first_slot", "question_group"}
)
"""What a replay takes from the record or cannot know, and what is compared on its own."""
_LONGEST = 80


@dataclass(frozen=True)
class Difference:
    """One thing that came out another way than it was saved."""

    where: str
    """``game``, or a trajectory: ``proposer``, ``verifier``, ``closed_book``, ``solver 1`` ..."""
    field: str
    """What differs, such as ``ids``, ``searches[0].query`` or ``verdict.correct``."""
    saved: Any
    replayed: Any
    token: int | None = None
    """Position in the trajectory, where the field is one of tokens."""

    def __str__(self) -> str:
        place = self.where if self.token is None else f"{self.where}, token {self.token}"
        return (
            f"{place}: {self.field}: saved {_shown(self.saved)}, replayed {_shown(self.replayed)}"
        )


def differences(saved: GameRecord, replayed: GameRecord) -> list[Difference]:
    """Every field that differs, trajectories first; of tokens, only the first that does."""
    return [*_plays(saved, replayed), *_game(saved, replayed)]


def _plays(saved: GameRecord, replayed: GameRecord) -> Iterator[Difference]:
    then, now = saved.named(), replayed.named()

    for name in [*then, *(name for name in now if name not in then)]:
        if name in then and name in now:
            yield from _trajectory(name, then[name], now[name])
        else:
            before, after = ("played" if name in plays else "absent" for plays in (then, now))
            yield Difference(name, "trajectory", before, after)


def _game(saved: GameRecord, replayed: GameRecord) -> Iterator[Difference]:
    for f in fields(GameRecord):
        if f.name not in _NOT_COMPARED:
            yield from _walk("game", f.name, getattr(saved, f.name), getattr(replayed, f.name))


def _trajectory(name: str, then: TrajectoryRecord, now: TrajectoryRecord) -> Iterator[Difference]:
    yield from _tokens(name, "ids", then.ids, now.ids)

    mask = list(then.mask), list(now.mask)
    common = min(map(len, mask))
    yield from _tokens(name, "mask", mask[0][:common], mask[1][:common])

    if then.mask == now.mask:
        own = [i for i, mine in enumerate(then.mask) if mine]
        for difference in _tokens(name, "logprobs", then.logprobs, now.logprobs):
            assert difference.token is not None
            place = own[difference.token]
            yield Difference(name, "logprobs", difference.saved, difference.replayed, place)

    for field in ("role", "searches", "ending", "result", "verdict", "reward", "outage"):
        yield from _walk(name, field, getattr(then, field), getattr(now, field))


def _tokens(name: str, field: str, then: Sequence[Any], now: Sequence[Any]) -> Iterator[Difference]:
    """The first place where two sequences differ; ``None`` stands for their end."""
    if not _same(then, now):
        pairs = enumerate(zip([*then, None], [*now, None], strict=False))
        at, (before, after) = next((i, pair) for i, pair in pairs if not _same(*pair))
        yield Difference(name, field, before, after, at)


def _walk(where: str, field: str, then: Any, now: Any) -> Iterator[Difference]:
    if is_dataclass(then) and type(then) is type(now):
        for f in fields(then):
            yield from _walk(
                where, f"{field}.{f.name}", getattr(then, f.name), getattr(now, f.name)
            )
    elif isinstance(then, tuple) and isinstance(now, tuple):
        for i, (before, after) in enumerate(zip(then, now, strict=False)):
            yield from _walk(where, f"{field}[{i}]", before, after)
        if len(then) != len(now):
            yield Difference(where, f"number of {field}", len(then), len(now))
    elif not _same(then, now):
        yield Difference(where, field, then, now)


def _same(then: Any, now: Any) -> bool:
    # repr distinguishes 0.0 from -0.0, and NaN equals itself.
    return bool(then == now) or repr(then) == repr(now)


def _shown(value: Any) -> str:
    text = str(value) if isinstance(value, float | int) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
