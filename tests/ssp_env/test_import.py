"""What importing the package loads, and what it offers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ssp_env

ROOT = Path(ssp_env.__file__).parents[1]
HEAVY = {"torch", "ray", "transformers", "matplotlib", "tokenizers", "faiss", "vllm", "pandas"}


def loaded_by(code: str) -> set[str]:
    """The top-level modules that are loaded once the code has run in a process of its own."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(result.stdout.split())


def test_importing_and_playing_loads_nothing_heavy() -> None:
    loaded = loaded_by(
        "import ssp_env, ssp_env.cli, ssp_env.game.record\n"
        "env = ssp_env.env(); env.reset(seed=0); env.step(1); env.step(None); env.step(None)"
    )
    assert "ssp_env" in loaded
    assert not loaded & HEAVY
    assert not loaded & {"agents", "experiments"}


def test_what_the_package_offers() -> None:
    assert all(hasattr(ssp_env, name) for name in ssp_env.__all__)
