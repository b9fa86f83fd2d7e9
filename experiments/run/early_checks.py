"""What can be known to fail before PyTorch and Ray are loaded, which takes seconds.

The rest is in ``checks.py``.
"""

from __future__ import annotations

from pathlib import Path

from experiments.config import RunConfig
from experiments.run.directory import RunDirectory
from ssp_env.errors import ModelError
from ssp_env.search.config import check_search
from ssp_env.worlds import check_world


def check_early(config: RunConfig, out: Path, resume: bool) -> None:
    """Looks at model directory, world, run directory and search; leaves nothing behind.

    Raises:
        SSPError: one of them cannot be used.
    """
    if config.model:  # the shipped one is found by a module that loads PyTorch
        check_model_directory(Path(config.model))
    if config.learning.partner:
        check_model_directory(Path(config.learning.partner))
    check_world(config.world, **config.world_options)
    RunDirectory(out).check(config, resume)
    check_search(config.search)


def check_model_directory(directory: Path) -> None:
    """
    Raises:
        ModelError: there is no such directory, or it holds no model.
    """
    if not directory.is_dir():
        raise ModelError(f"there is no model directory {directory}")
    if not (directory / "config.json").is_file():
        raise ModelError(f"{directory} is not a model directory (config.json is missing)")
