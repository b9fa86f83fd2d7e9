"""Scripts in processes of their own that need not import PyTorch and RLlib, which takes most of
their time: they are forked from a process that has, and does nothing else."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
from pathlib import Path

PRELOADED = [
    "torch._dynamo",  # what an optimizer imports at its first step
    "transformers",
    "ray.rllib.algorithms.ppo",
    "pettingzoo",
    "pytest",
]
LONGEST = 580.0
"""Seconds."""


def run_forked(script: Path | str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a file as ``python script ...`` would; a name without ``.py`` as ``python -m``."""
    # tianshou would spend 13 seconds on compiling what runs here for less than one.
    os.environ.update(OMP_NUM_THREADS="1", NUMBA_DISABLE_JIT="1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    written = [cwd / f".{Path(script).stem}.{name}" for name in ("stdout", "stderr")]
    process = context.Process(target=_run, args=(str(script), arguments, cwd, written))
    process.start()
    process.join(LONGEST)
    if process.is_alive():
        process.kill()
        process.join()
    output, errors = (file.read_text(encoding="utf-8") for file in written)
    return subprocess.CompletedProcess(script, process.exitcode, output, errors)


def _run(script: str, arguments: tuple[str, ...], cwd: Path, written: list[Path]) -> None:
    for number, file in enumerate(written, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.chdir(cwd)
    sys.argv[:] = [script, *arguments]
    try:
        if script.endswith(".py"):
            sys.path.insert(0, str(Path(script).parent))
            runpy.run_path(script, run_name="__main__")
        else:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()
