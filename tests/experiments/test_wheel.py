"""The wheel: what is in it, and that its commands work outside a checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from runs import environment

import ssp_env

ROOT = Path(ssp_env.__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as ``pip`` would, from the tree as it is."""
    (built,) = WheelBuilder(str(ROOT)).build(
        directory=str(tmp_path_factory.mktemp("dist")), versions=["standard"]
    )
    return Path(built)


def test_wheel_holds_the_packages_their_licences_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    packed = {name for name in names if ".dist-info/" not in name}
    folders = (ROOT, ROOT / "agents", ROOT / "experiments")
    packages = ("ssp_env", "ssp_agents", "ssp_experiments")
    files = {
        str(file.relative_to(folder))
        for folder, package in zip(folders, packages, strict=True)
        for file in (folder / package).rglob("*")
        if file.is_file()
    }
    assert packed == {file for file in files if "__pycache__" not in file}
    assert "ssp_env/worlds/data/wiki_mini/passages.jsonl.gz" in packed
    assert "ssp_agents/shipped/tiny/checkpoint/model.safetensors" in packed
    licences = {name.split("/licenses/")[1] for name in names if "/licenses/" in name}
    assert licences == {
        "LICENSE",
        "agents/ssp_agents/shipped/wiki_small/NOTICE.md",
        "ssp_env/tokenizers/data/NOTICE-bpe.md",
        "ssp_env/worlds/data/NOTICE-wiki_mini.md",
    }


def installed(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # Without `site`, the editable install of this checkout is not on the path, but its dependencies
    # can be.
    path = [str(site), *(place for place in sys.path if place.endswith("site-packages"))]
    code = (
        f"import sys; sys.path[0:1] = {path}; from ssp_env.cli import main; "
        f"sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-S", "-c", code, *words]
    # Ray, when a test before this one has started it, puts the checkout on PYTHONPATH.
    outside = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=site, env=outside, timeout=400
    )


@pytest.mark.slow
def test_installed_wheel_searches_and_plays_outside_a_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    result = installed(tmp_path, "search", "-k", "1", "river", "Danube")
    assert result.returncode == 0, result.stderr
    assert "for: river Danube" in result.stdout

    # With the presets and the policy that are in the wheel.
    result = installed(tmp_path, "eval", "--per-group", "1", "--out", "games.jsonl")
    assert result.returncode == 0, result.stderr
    assert len((tmp_path / "games.jsonl").read_text().splitlines()) == 5  # a header, four games
