"""Trials over Ray Tune: side by side on what the machine or the cluster has.

Tune deals trials to processes and ends those that fall behind. What became of a trial stands in its
run directory alone, so a sweep needs none of Tune's own records to go on.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from experiments.config import ComputeConfig
from experiments.run.process import quiet_libraries, telling
from experiments.sweeps.definition import Halving
from experiments.sweeps.directory import SweepDirectory
from experiments.sweeps.live import Board
from experiments.sweeps.plan import Trial
from experiments.sweeps.results import read_outcomes
from experiments.sweeps.trial import play
from ssp_env.settings import plain

# Read by Tune when it is imported, or in the processes that it starts.
ENVIRONMENT = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # so that paths mean what they mean here
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # run directories hold all figures
    "RAY_AIR_NEW_OUTPUT": "0",  # the other one greets even when it is told to be silent
}
METRIC = "accuracy"
"""On held-out questions, the mean over their groups."""


def tune_trials(
    trials: Sequence[Trial],
    directory: SweepDirectory,
    board: Board,
    *,
    halving: Halving | None = None,
    keep_checkpoints: bool = False,
    parallel: int | None = None,
) -> int:
    """Plays trials to their ends.

    Args:
        trials: those that are to be played or gone on with.
        directory: of the sweep.
        board: is told how they fare.
        halving: ends those that fall behind.
        keep_checkpoints: whether finished trials keep checkpoints.
        parallel: how many at a time, at most; else as many as there is room for.

    Returns:
        How many failed.

    Raises:
        ServiceError: Ray did not start.
        KeyboardInterrupt: after Ctrl-C; every trial can be gone on with.
    """
    quiet_libraries()
    os.environ.update({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})

    with telling(board.stop) as listen:
        errors = _tune(trials, directory, board, listen, halving, keep_checkpoints, parallel)
    if any(directory.state(trial) in ("waiting", "begun") for trial in trials) and not errors:
        raise KeyboardInterrupt
    return errors


def _tune(
    trials: Sequence[Trial],
    directory: SweepDirectory,
    board: Board,
    listen: Callable[[], None],
    halving: Halving | None,
    keep_checkpoints: bool,
    parallel: int | None,
) -> int:
    """Starts Ray, and lets Tune play; how many trials failed."""
    from ray import tune

    from experiments.run.cluster import started_ray, store

    # It would print all of each error; the board has a line of it, and a file the rest.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)

    watcher = _watcher(trials, directory, board, listen)
    settings = tune.TuneConfig(
        metric=METRIC,
        mode="max",
        reuse_actors=True,  # PyTorch takes seconds to load
        max_concurrent_trials=parallel,
        scheduler=scheduler(halving, trials) if halving else None,
    )
    actors = max(_actors(trial.config.compute) for trial in trials)
    given = [_given(trial, directory, keep_checkpoints) for trial in trials]
    with started_ray(**store(actors)), _scratch() as scratch:
        results = tune.Tuner(
            tune.with_resources(_trainable, resources),
            param_space={"trial": tune.grid_search(given)},
            tune_config=settings,
            run_config=tune.RunConfig(
                name="sweep", storage_path=scratch, verbose=0, callbacks=[watcher]
            ),
        ).fit()
    return len(results.errors)


def _given(trial: Trial, directory: SweepDirectory, keep_checkpoints: bool) -> dict[str, Any]:
    """What a process is told of its trial."""
    return {
        "name": trial.name,
        "arm": trial.arm,
        "seed": trial.seed,
        "config": plain(trial.config),
        "out": str(directory.run(trial).path.absolute()),
        "keep_checkpoints": keep_checkpoints,
    }


def _trainable(config: dict[str, Any]) -> None:
    from ray import tune

    given = config["trial"]
    play(given["config"], Path(given["out"]), given["keep_checkpoints"], tune.report)


def resources(config: dict[str, Any]) -> Any:
    """What a trial takes of the machine: a process that plays and learns, and those that help."""
    from ray import tune

    compute = ComputeConfig(**config["trial"]["config"]["compute"])
    main: dict[str, float] = {"CPU": compute.threads}
    gpus = 0.0
    gpus += 0 if compute.env_runners else compute.gpus_per_env_runner
    gpus += 0 if compute.learners else compute.gpus_per_learner
    if gpus:
        main["GPU"] = gpus

    runner = {"CPU": compute.threads, "GPU": compute.gpus_per_env_runner}
    # As RLlib asks for them: a learner with GPUs has one CPU.
    cpus = 1 if compute.gpus_per_learner else compute.threads
    learner = {"CPU": cpus, "GPU": compute.gpus_per_learner}
    bundles = [main, *[runner] * compute.env_runners, *[learner] * compute.learners]
    return tune.PlacementGroupFactory(
        [{name: amount for name, amount in bundle.items() if amount} for bundle in bundles]
    )


def _actors(compute: ComputeConfig) -> int:
    return compute.env_runners + compute.learners


def scheduler(halving: Halving, trials: Sequence[Trial]) -> Any:
    from ray.tune.schedulers import AsyncHyperBandScheduler

    return AsyncHyperBandScheduler(
        time_attr="step",
        grace_period=halving.first,
        reduction_factor=halving.keep,
        # It would end a trial at its last step, before the run has written its summary.
        max_t=max(trial.config.steps for trial in trials) + 1,
    )


def _watcher(
    trials: Sequence[Trial],
    directory: SweepDirectory,
    board: Board,
    listen: Callable[[], None],
) -> Any:
    """A Tune callback that hands on what happens. Its base class is imported late.

    Args:
        trials, directory, board: as for :func:`tune_trials`.
        listen: called when Tune has put its own handler of Ctrl-C in place.
    """
    from ray import tune

    by_name = {trial.name: trial for trial in trials}
    playing: set[str] = set()

    class Watcher(tune.Callback):  # type: ignore[misc]
        """Tells the board."""

        def __reduce__(self) -> tuple[Any, ...]:
            # Tune saves itself, for a restart that nobody makes; a screen cannot be saved.
            return tune.Callback, ()

        def setup(self, *given: Any, **info: Any) -> None:
            listen()  # by now, Tune handles Ctrl-C: it ends the run at its next turn

        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            directory.failure(_ours(trial)).unlink(missing_ok=True)
            playing.add(_ours(trial).name)
            directory.note_playing(playing)
            board.begin(_ours(trial))

        def on_trial_result(
            self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any
        ) -> None:
            board.step(_ours(trial), result)

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            ours = _ours(trial)
            playing.discard(ours.name)
            if directory.state(ours) == "begun":
                directory.end_early(ours)
            board.end(read_outcomes(directory, [ours])[0])

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            ours, error = _ours(trial), _error(trial)
            playing.discard(ours.name)
            directory.fail(ours, error)
            board.fail(ours, error.strip().splitlines()[-1])

    def _ours(trial: Any) -> Trial:
        return by_name[trial.config["trial"]["name"]]

    return Watcher()


def _error(trial: Any) -> str:
    """What Tune has written about a trial's error, which may be on its way to somewhere else."""
    file = trial.error_file
    return Path(file).read_text(encoding="utf-8") if file else "its process died, or was killed"


@contextmanager
def _scratch() -> Iterator[str]:
    """A folder for Tune's own records, which nobody needs afterwards."""
    folder = mkdtemp(prefix="ssp_sweep_")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
