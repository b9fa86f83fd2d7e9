"""Numbers of the game that change over the steps of training, such as a budget of searches that
grows.

A schedule is a list of points ``(step, value)``: the setting has this value from that step on, and
its own before the first point. Evaluation always goes by the setting itself.

>>> from ssp_env.game.config import GameConfig
>>> schedules = {"max_searches": [(1, 3), (40, 6)]}
>>> [at_step(GameConfig(), schedules, step).max_searches for step in (1, 39, 40)]
[3, 3, 6]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ssp_env.errors import ConfigError, nearest
from ssp_env.game.config import GameConfig

Value = int | float | tuple[int, int]
Schedules = Mapping[str, Sequence[tuple[int, Value]]]
"""Points by the name of a setting of the game."""
NUMBERS: tuple[str, ...] = tuple(
    name
    for name, field in GameConfig.model_fields.items()
    if isinstance(field.default, int | float | tuple)
    and not isinstance(field.default, bool)
    and name != "tools"
)
"""Settings of the game that a schedule may change: numbers, and pairs of them."""


def at_step(config: GameConfig, schedules: Schedules, step: int) -> GameConfig:
    """The rules of a training step; steps count from 1."""
    passed = {
        name: [value for start, value in points if start <= step]
        for name, points in schedules.items()
    }
    # The latest point that the step has reached; before the first one, the setting itself.
    changes = {name: values[-1] for name, values in passed.items() if values}
    return config.replace(**changes) if changes else config


def all_rules(config: GameConfig, schedules: Schedules) -> Iterator[tuple[int, GameConfig]]:
    """Each step at which a number changes, with the rules from there on.

    Raises:
        ConfigError: a schedule names no number of the game, its steps do not rise, a value is one
            that the setting could not have, or above the setting itself, for which memory is
            planned.
    """
    for name, points in schedules.items():
        _check(name, points, config)
    for step in sorted({step for points in schedules.values() for step, _ in points}):
        with from_step(step, schedules):
            rules = at_step(config, schedules, step)
        yield step, rules


@contextmanager
def from_step(step: int, schedules: Schedules) -> Iterator[None]:
    """What is refused within it is said to be refused from this step on, and by a schedule's name
    where there is one."""
    try:
        yield
    except ConfigError as error:
        name = error.field.removeprefix("game.")
        field = f"learning.schedules.{name}" if name in schedules else error.field
        raise ConfigError(field, error.value, f"from step {step} on: {error.fix}") from None


def idle_points(schedules: Schedules, steps: int) -> Iterator[str]:
    """One line for each schedule that has points behind the last step."""
    for name, points in schedules.items():
        if late := [step for step, _ in points if step > steps]:
            which = ", ".join(map(str, late))
            yield (
                f"learning.schedules.{name} has no effect from step {which} on: the last step is "
                f"{steps}"
            )


def _check(name: str, points: Sequence[tuple[int, Value]], config: GameConfig) -> None:
    field = f"learning.schedules.{name}"
    if name not in NUMBERS:
        raise ConfigError(field, points, f"no number of the game; {nearest(name, NUMBERS)}")
    steps = [step for step, _ in points]
    if not steps or steps != sorted({*steps}):
        fix = "give points as [[step, value], ...], each step once and in their order"
        raise ConfigError(field, points, fix)
    # Memory is planned, and evaluation played, by the setting.
    most = getattr(config, name)
    for _, value in points:
        if isinstance(most, tuple) != isinstance(value, tuple):
            raise ConfigError(field, value, f"give values such as that of game.{name}, {most}")
        if isinstance(most, int) and isinstance(value, int | float) and value > most:
            fix = f"raise game.{name}, which is {most}: memory and evaluation go by it"
            raise ConfigError(field, value, fix)
