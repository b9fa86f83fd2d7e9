"""From a sweep to its trials, each an ordinary run; and whether they can be played."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents.config import LearningConfig
from experiments.config import RunConfig, assign, load_preset, make_config
from experiments.run.checks import check_learning, check_model_directory
from experiments.run.rundir import CHANGEABLE, flat
from experiments.sweeps.definition import Sweep
from experiments.sweeps.source import Source
from ssp_env.errors import ConfigError, DataError, ModelError, RunError, nearest
from ssp_env.settings import plain

SILENT = ("checkpoint_every", "checkpoints_kept", "record_tokens")
"""Settings that change neither games nor times: no arm differs by them."""


@dataclass(frozen=True)
class Trial:
    """One run of a sweep."""

    arm: str
    seed: int
    name: str
    """Its directory."""
    settings: dict[str, Any]
    """What makes its arm differ, by dotted name."""
    config: RunConfig
    """All of its settings."""

    def __str__(self) -> str:
        return f"{self.arm}, seed {self.seed}"


def choose(sweep: Sweep, arms: Sequence[str] | None) -> Sweep:
    """The sweep with these of its arms alone.

    Raises:
        ConfigError: an arm is not there, or the baseline would be missing.
    """
    if not arms:
        return sweep

    known = sweep.all_arms()
    for arm in arms:
        if arm not in known:
            raise ConfigError("--arms", arm, nearest(arm, known))
    baseline = sweep.compared_with
    if baseline not in arms:
        raise ConfigError(
            "--arms", list(arms), f"the others are compared with {baseline!r}: add it"
        )

    chosen = {arm: settings for arm, settings in known.items() if arm in arms}
    paper = sweep.paper
    if paper is not None:
        paper = replace(paper, rows={arm: row for arm, row in paper.rows.items() if arm in arms})
    return replace(sweep, arms=chosen, grid={}, baseline=baseline, paper=paper)


def extend(
    held: Sweep, defined: Sweep, arms: Sequence[str] | None, seeds: Sequence[int] | None
) -> Sweep:
    """A sweep that has begun, with further arms and seeds, in the order of its definition.

    It loses none, and its own arms keep their settings.

    Args:
        held: as it was begun, perhaps with some arms and seeds alone.
        defined: all of it.
        arms: that it is to have.
        seeds: the same.

    Raises:
        ConfigError: an arm is in neither, the two are not the same sweep, or a trial that is there
            would have another directory.
    """
    wanted = {*held.seeds, *(seeds or ())}
    order = dict.fromkeys([*defined.seeds, *held.seeds, *(seeds or ())])
    held = replace(held, seeds=tuple(seed for seed in order if seed in wanted))

    ours, theirs = held.all_arms(), defined.all_arms()
    if not {*(arms or ())} - {*ours}:
        return held
    for arm in arms or ():
        if arm not in ours and arm not in theirs:
            raise ConfigError("--arms", arm, nearest(arm, {**theirs, **ours}))
    for arm, settings in ours.items():
        if plain(theirs.get(arm)) != plain(settings):
            fix = (
                f"the sweep that was begun has another arm {arm!r} than its file; use another --out"
            )
            raise ConfigError("--arms", list(arms or ()), fix)

    made = choose(defined, [*ours, *(arms or ())])
    before, after = _folder_names(list(ours)), _folder_names(list(made.arms))
    if any(after[arm] != folder for arm, folder in before.items()):
        fix = "these arms cannot be added, since directories would change; choose another --out"
        raise ConfigError("--arms", list(arms or ()), fix)
    return replace(held, arms=made.arms, grid={}, baseline=made.baseline, paper=made.paper)


def check_settings(held: Sequence[Trial], changed: Sequence[Trial]) -> None:
    """Makes sure that trials stay what they are when a sweep is gone on with.

    Args:
        held: all trials as they were begun.
        changed: the same, with what the command line says of them.

    Raises:
        RunError: a setting differs that a run cannot change, or the number of steps.
    """
    for theirs, ours in zip(held, changed, strict=True):
        one, other = flat(plain(theirs.config)), flat(plain(ours.config))
        names = {*one, *other} - ({*CHANGEABLE} - {"steps"})
        differing = sorted(name for name in names if one.get(name) != other.get(name))
        if differing:
            raise RunError(
                f"the sweep was begun with other settings ({', '.join(differing)}); leave them as "
                "they were, or choose another --out"
            )


def overridden(planned: Sequence[Trial], changes: Mapping[str, Any]) -> Iterator[str]:
    """What to say of settings of all runs that arms have a value of their own for.

    Args:
        planned: the trials.
        changes: settings that the command line names, by dotted name.
    """
    arms = {trial.arm: trial.settings for trial in planned}
    for name, value in changes.items():
        others = [arm for arm, settings in arms.items() if name not in settings]
        if len(others) < len(arms):
            where = (
                f"only in {', '.join(others)}: the other arms" if others else "nowhere: all arms"
            )
            yield f"{name} = {value} counts {where} have a value of their own"


def missing_models(planned: Sequence[Trial]) -> Iterator[str]:
    """What to say of arms whose policies are not there yet."""
    for arm, config in {trial.arm: trial.config for trial in planned}.items():
        if config.model:
            try:
                check_model_directory(Path(config.model))
            except ModelError as error:
                yield f"{arm} cannot be played yet: {error}"


def unequal_answers(planned: Sequence[Trial]) -> str | None:
    """What to say if arms that propose in groups get another number of answers than the others.

    An arm with five proposals about each answer needs a batch five times as large as one with a
    single one. Where all have groups of one size, batches that differ are what is compared.
    """
    configs = {trial.arm: trial.config for trial in planned}
    answers = {
        arm: config.learning.batch_size // config.game.proposals for arm, config in configs.items()
    }
    groups = {config.game.proposals for config in configs.values()}
    if len(groups) == 1 or len({*answers.values()}) == 1:
        return None

    each = ", ".join(f"{arm} {count}" for arm, count in answers.items())
    return (
        f"Arms get unequal numbers of answers per step: {each} (learning.batch_size by "
        "game.proposals)."
    )


def trials(sweep: Sweep, source: Source | None = None) -> list[Trial]:
    """All runs of a sweep, seed by seed, so that the first seed of all arms is there first.

    Args:
        sweep: whose runs.
        source: its file, for errors.

    Raises:
        DataError: a setting of the file that is not known or cannot work, or two arms that are the
            same; with the line.
        ConfigError: the same, of what does not stand in a file.
    """
    arms = sweep.all_arms()
    made = {arm: _config(sweep, source, arm, settings) for arm, settings in arms.items()}
    _check_differences(made, source)

    names = _folder_names(list(arms))
    return [
        Trial(arm, seed, f"{names[arm]}-seed{seed}", settings, replace(made[arm], seed=seed))
        for seed in sweep.seeds
        for arm, settings in arms.items()
    ]


def check_trials(planned: Sequence[Trial], source: Source | None = None) -> None:
    """Opens all that the trials need, as a run does before it starts; this loads PyTorch.

    Raises:
        SSPError: a trial cannot be played, or its arm has a setting without effect.
    """
    from experiments.run.checks import check
    from ssp_env.game.parts import idle_settings

    # Seeds change nothing of what is checked.
    for trial in {trial.arm: trial for trial in reversed(planned)}.values():
        with _told(source, trial.arm):
            check_learning(trial.config)
            rules, _ = check(trial.config)
            for line in [*idle_settings(rules), *_idle_learning(trial.config.learning)]:
                name = line.split(" ", 1)[0]
                if name in trial.settings:
                    fix = f"the arm {trial.arm!r} cannot differ by it: {line}"
                    raise ConfigError(name, trial.settings[name], fix)


def _config(sweep: Sweep, source: Source | None, arm: str, settings: dict[str, Any]) -> RunConfig:
    """All settings of an arm, with the first seed."""
    with _told(source, arm):
        values = load_preset(sweep.preset)
        for name, value in {**flat(sweep.set), **settings}.items():
            if name == "seed":
                raise ConfigError(name, value, "seeds are a dimension of their own: give seeds")
            assign(values, name, value)
        return make_config({**values, "seed": sweep.seeds[0]})


def _idle_learning(learning: LearningConfig) -> Iterator[str]:
    """One line for each setting of learning that changes nothing, with the reason."""
    if learning.strategy != "periodic_reset":
        yield f"learning.reset_every has no effect: learning.strategy is {learning.strategy}"
    if learning.strategy in ("dummy", "resample"):
        why = f"learning.strategy is {learning.strategy}, which plays no earlier question"
        yield f"learning.examples has no effect: {why}"

    for role in {"proposer", "solver"} - {*learning.learning_roles}:
        names = [f"{role}_algorithm", f"{role}_aggregation"]
        for name in [*names, *(("proposer_weight",) if role == "proposer" else ())]:
            yield f"learning.{name} has no effect: the {role} does not learn"


@contextmanager
def _told(source: Source | None, arm: str) -> Iterator[None]:
    """Says of an error about a setting in which line of the file it is given.

    Raises:
        DataError: for a :class:`~ssp_env.errors.ConfigError`, where the file has that setting.
    """
    try:
        yield
    except ConfigError as error:
        line = None if source is None else _line(source, arm, error.field)
        if source is None or line is None:
            raise
        raise DataError(source.path, str(error), line) from None


def _line(source: Source, arm: str, setting: str) -> int | None:
    """Where a setting is given: by the arm, by the grid, or for all runs."""
    if setting in ("preset", "arms"):
        return source.line([setting, arm])

    parts = setting.split(".")
    nested = [parts[:depth] for depth in range(len(parts), 0, -1)]
    places = [
        [*above, *keys]
        for above in (["arms", arm], ["grid"], ["set"])
        for keys in [[setting], *nested]
    ]
    return next((line for keys in places if (line := source.at(keys)) is not None), None)


def _check_differences(made: dict[str, RunConfig], source: Source | None) -> None:
    """
    Raises:
        DataError: two arms are the same runs.
    """
    seen: dict[str, str] = {}
    for arm, config in made.items():
        values = {k: v for k, v in flat(plain(config)).items() if k not in SILENT}
        same = seen.setdefault(json.dumps(values, sort_keys=True, default=str), arm)
        if same != arm:
            with _told(source, arm):
                fix = f"it can have no effect: it plays the same runs as {same!r}"
                raise ConfigError("arms", arm, fix)


def _folder_names(arms: Sequence[str]) -> dict[str, str]:
    """A name for each arm that every file system takes."""
    found: dict[str, str] = {}
    for number, arm in enumerate(arms):
        name = re.sub(r"[^a-z0-9.=+]+", "-", arm.lower()).strip("-.")
        found[arm] = name if name and name not in found.values() else f"arm-{number}-{name}"
    return found
