"""The wheel: what is in it, and what its ``ssp`` says of the commands that need a checkout."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
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


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_wheel_holds_the_environment_and_nothing_else(names: set[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ssp_env"}
    assert len(tops) == 2


def test_wheel_holds_every_file_of_the_package(names: set[str]) -> None:
    files = {
        str(file.relative_to(ROOT)) for file in (ROOT / "ssp_env").rglob("*") if file.is_file()
    }
    files = {file for file in files if "__pycache__" not in file}
    assert files <= names
    for needed in (
        "game/prompts/mini/proposer.txt",
        "judge/prompts/judge.txt",
        "tokenizers/data/bpe/tokenizer.json",
        "worlds/data/NOTICE-wiki_mini.md",
    ):
        assert f"ssp_env/{needed}" in names
    data = {name for name in names if name.startswith("ssp_env/worlds/data/wiki_mini/")}
    assert {"passages.jsonl.gz", "answers.jsonl", "manifest.json"} <= {
        name.split("/")[-1] for name in data
    }


def test_wheel_carries_its_licences(names: set[str]) -> None:
    licences = {name.split("/licenses/")[1] for name in names if "/licenses/" in name}
    assert licences == {
        "LICENSE",
        "ssp_env/tokenizers/data/NOTICE-bpe.md",
        "ssp_env/worlds/data/NOTICE-wiki_mini.md",
    }


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, installed beside the packages that it needs; the checkout is out of sight."""
    folder = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def installed(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    # Without `site`, the editable install of this checkout is not on the path, but its dependencies
    # can be.
    path = [str(site), sysconfig.get_path("purelib")]
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


def test_installed_wheel_says_what_needs_a_checkout(site: Path) -> None:
    result = installed(site, "--help")
    assert result.returncode == 0, result.stderr
    ready, missing = result.stdout.split("Only in a checkout")
    assert "│ search" in ready
    assert "│ train" not in ready
    assert "questions, report, sweep, train, view" in " ".join(missing.split())


@pytest.mark.parametrize("name", ["train", "eval", "bootstrap", "plot", "probe"])
def test_installed_wheel_says_how_to_get_a_command(site: Path, name: str) -> None:
    result = installed(site, name)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"ssp: ssp {name} needs a package that is not installed; "
        "run: git clone the repository, then: pip install -e '.[train]'\n"
    )


def test_installed_wheel_searches(site: Path) -> None:
    result = installed(site, "search", "-k", "1", "river", "Danube")
    assert result.returncode == 0, result.stderr
    assert "for: river Danube" in result.stdout
