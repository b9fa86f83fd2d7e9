"""Trials over Ray Tune: side by side on one machine or on a cluster.

Tune gives trials to processes. A trial is an ordinary run with checkpoints of its own, so its run
directory alone decides where it resumes, with added seeds too, and Tune's records are not kept.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from ssp_agents.health import OUTAGE
from ssp_env.disk import write_atomically
from ssp_env.errors import UnhealthyRun
from ssp_experiments.config import make_config
from ssp_experiments.options import SweepOptions
from ssp_experiments.run.process import handling, quiet_libraries
from ssp_experiments.run.rundir import RunDirectory
from ssp_experiments.sweeps.definition import ENDED, SweepDirectory, Trial

# Read by Tune when it is imported, or in the processes that it starts.
ENVIRONMENT = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # so that relative paths stay those of this process
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # run directories hold all figures
    "RAY_AIR_NEW_OUTPUT": "0",  # the other one ignores the columns of the reporter
}
SHOWN = {"step": "step", "solver_reward": "solver", "valid_rate": "valid", "accuracy": "accuracy"}
"""Figures of a trial while it plays, and their heads."""


def tune_trials(
    trials: Sequence[Trial], directory: SweepDirectory, options: SweepOptions
) -> dict[str, str]:
    """Plays or resumes trials to their ends; by name, the errors of those that failed."""
    quiet_libraries()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)

    from ray import tune

    from ssp_experiments.run.cluster import started_ray

    given = [
        {
            "name": trial.name,
            "seed": trial.seed,
            "config": trial.config.model_dump(mode="json"),
            "out": str(directory.run(trial).path.absolute()),
            "keep_checkpoints": options.keep_checkpoints,
        }
        for trial in trials
    ]
    actors = max(t.config.compute.env_runners + t.config.compute.learners for t in trials)
    # At most one table in 30 seconds.
    reporter = tune.CLIReporter(
        metric_columns=SHOWN, parameter_columns={"trial/seed": "seed"}, max_report_frequency=30
    )
    # It would print all of each error; a file has it.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    with (
        started_ray(actors=actors),
        TemporaryDirectory(prefix="ssp_sweep_") as scratch,
        redirect_stdout(sys.stderr),
        # Tune ends its trials at Ctrl-C alone.
        handling(lambda *_: signal.raise_signal(signal.SIGINT), signal.SIGTERM),
    ):
        results = tune.Tuner(
            tune.with_resources(_trainable, resources),
            param_space={"trial": tune.grid_search(given)},
            tune_config=tune.TuneConfig(
                reuse_actors=True,  # PyTorch takes seconds to load
                max_concurrent_trials=options.parallel,
                trial_name_creator=lambda trial: trial.config["trial"]["name"],
            ),
            run_config=tune.RunConfig(
                name="sweep",
                storage_path=scratch,
                verbose=0 if options.quiet else 1,
                progress_reporter=reporter,
            ),
        ).fit()

    failed = {one.config["trial"]["name"]: str(one.error) for one in results if one.error}
    for trial in trials:
        directory.failure(trial).unlink(missing_ok=True)
        if trial.name in failed:
            write_atomically(directory.failure(trial), failed[trial.name])
    # A trial that has neither failed nor ended was interrupted.
    if any(t.name not in failed and directory.state(t) not in ENDED for t in trials):
        raise KeyboardInterrupt
    return failed


def _trainable(config: dict[str, Any]) -> None:
    from ray import tune

    play(config["trial"], tune.report)


def play(given: dict[str, Any], report: Callable[[dict[str, Any]], object]) -> None:
    """Plays a run, or resumes it, as ``ssp train`` does.

    A run that is stopped because its figures went wrong ends the trial like any other. ``report``
    takes the figures of each step, with the mean accuracy of the last evaluation.
    """
    quiet_libraries()
    from ssp_experiments.run.training import train

    run, accuracy = RunDirectory(given["out"]), dict[str, float]()
    config = make_config(given["config"])

    def listen(line: dict[str, Any]) -> None:
        accuracy.update(line.get("accuracy", {}))
        figures = {name: value for name, value in line.items() if isinstance(value, int | float)}
        report({**figures, "accuracy": fmean(accuracy.values()) if accuracy else None})

    try:
        train(config, run.path, resume=run.config.exists(), quiet=True, report=listen)
    except UnhealthyRun:
        stopped = run.read_stopped()
        if stopped is None or stopped.sign == OUTAGE:
            raise
    if not given["keep_checkpoints"]:
        shutil.rmtree(run.checkpoints, ignore_errors=True)


def resources(config: dict[str, Any]) -> Any:
    """Resources of a trial: a process that plays and learns, and its further actors."""
    from ssp_agents.rllib import SSP
    from ssp_experiments.run.cluster import algorithm_config

    return SSP.default_resource_request(algorithm_config(make_config(config["trial"]["config"])))
