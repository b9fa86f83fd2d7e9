"""What can be known to fail before PyTorch and Ray are loaded, which takes seconds.

The rest is in ``checks.py``.
"""

from __future__ import annotations

import os
from pathlib import Path

from agents.config import (
    check_adapters,
    check_groups,
    check_overlap,
    check_partner,
    check_rounds,
)
from agents.engines.config import check_package
from experiments.config import RunConfig
from experiments.run.directory import RunDirectory
from ssp_env.errors import ModelError
from ssp_env.search.config import check_search
from ssp_env.settings import named
from ssp_env.worlds import check_world


def check_early(config: RunConfig, out: Path, resume: bool) -> None:
    """Looks at settings, packages, model, world, run directory, search; leaves nothing behind.

    Raises:
        SSPError: one of them cannot be used.
    """
    check_learning(config)
    if config.model:  # the shipped one is found by a module that loads PyTorch
        check_model_directory(Path(config.model))
    if config.learning.partner:
        check_model_directory(Path(config.learning.partner))
    check_world(config.world, **config.world_options)
    RunDirectory(out).check(config, resume)
    check_search(config.search)


def check_learning(config: RunConfig) -> None:
    """Makes sure that settings fit together, and that the packages that they need are there.

    Raises:
        ConfigError: they do not.
        MissingExtra: one is missing.
    """
    check_groups(config.game, config.learning)
    with named("learning"):
        check_adapters(config.learning)
        check_rounds(config.game, config.learning, config.compute.env_runners)
        check_partner(config.learning, config.engine.kind)
    with named("compute"):
        check_overlap(config.learning, config.compute.overlap)

    # On a cluster, engines may be on other machines, which have packages of their own.
    if not (config.compute.env_runners and os.environ.get("RAY_ADDRESS")):
        check_package(config.engine.kind)


def check_model_directory(directory: Path) -> None:
    """
    Raises:
        ModelError: there is no such directory, or it holds no model.
    """
    if not directory.is_dir():
        raise ModelError(f"there is no model directory {directory}")
    if not (directory / "config.json").is_file():
        # A run, or a checkpoint, has a policy within.
        inside = [*directory.glob("checkpoints/step_*/policy"), *directory.glob("policy")]
        hint = f"; did you mean {max(inside)}?" if inside else ""
        raise ModelError(f"{directory} is not a model directory (config.json is missing){hint}")
