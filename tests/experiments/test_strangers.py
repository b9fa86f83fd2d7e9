"""Files of strangers: settings that name code import nothing, unless the command line names it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from runs import arguments
from small_runs import make_run

from ssp_env.cli import main
from ssp_env.errors import ConfigError
from ssp_experiments.config import RunConfig, check_code, make_config
from ssp_experiments.run.rundir import RunDirectory

CODE = """
from pathlib import Path

from ssp_env.game.rules import Rules

Path("imported").touch()
make = Rules.build
"""
NAMED = {"rules": "strange:make", "learning.solver_algorithm": "strange:loss"}
REPEATED = [word for name, value in NAMED.items() for word in ("--set", f"{name}={value}")]
POLICY = "run/checkpoints/step_000002/policy"
SWEEP = {"seeds": [0], "set": {"steps": 1}, "arms": {"plain": {}, "strange": NAMED}}
REFUSED = [
    ("eval", POLICY, "--per-group", "1"),
    ("league", "run", POLICY),
    ("play", "--model", POLICY),
    ("probe", "--model", POLICY),
    ("train", "--resume", "--out", "run"),
    ("sweep", "strange.yaml"),
    ("sweep", "strange.yaml", "--dry-run"),
    ("sweep", "strange", "--resume", "--out", "sweep"),
]
READ = [
    ("export", "run", "--out", "policy"),
    ("export", "run/checkpoints/step_000002", "--out", "policy"),
    ("report", "run"),
    ("plot", "run"),
    ("questions", "run"),
    ("submit", "run", "--name", "mine"),
    ("replay", "run", "--check"),
    ("sweep", "strange", "--tables", "--out", "sweep"),
]


@pytest.fixture
def folder(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run, a sweep and a module of a stranger's, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "strange", raising=False)
    (tmp_path / "strange.py").write_text(CODE)
    (tmp_path / "strange.yaml").write_text(yaml.safe_dump(SWEEP))
    (tmp_path / "sweep").mkdir()
    held = {"name": "strange", "commands": [], "sweep": SWEEP}
    (tmp_path / "sweep" / "sweep.yaml").write_text(yaml.safe_dump(held))

    directory = make_run(tmp_path / "run", finished=False)
    directory.write_config(strange(directory))
    directory.save_checkpoint(2, lambda at: shutil.copytree(policy, at / "policy"))
    return tmp_path


def strange(directory: RunDirectory) -> RunConfig:
    return make_config(directory.read_config(), NAMED)


@pytest.mark.parametrize("name", ["rules", "learning.solver_algorithm", "learning.credit"])
def test_each_setting_that_names_code_has_to_be_repeated(name: str) -> None:
    config = make_config({}, {name: "strange:make"})
    with pytest.raises(ConfigError, match=f"{name} = 'strange:make': a file names this code"):
        check_code(config, [])
    check_code(config, [(name, "strange:make")])


@pytest.mark.parametrize("command", REFUSED, ids=" ".join)
def test_what_would_import_a_strangers_code_is_refused(
    command: Sequence[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command]) == 2
    said = capsys.readouterr().err
    assert "strange:" in said
    assert "repeat it on the command line (--set " in said
    assert not (folder / "imported").exists()


@pytest.mark.parametrize("command", READ, ids=" ".join)
def test_what_needs_no_code_imports_none(command: Sequence[str], folder: Path) -> None:
    main([*command])
    assert not (folder / "imported").exists()


@pytest.mark.parametrize("command", [REFUSED[0], REFUSED[4], REFUSED[5]], ids=" ".join)
def test_code_that_the_command_line_names_as_well_is_imported(
    command: Sequence[str], folder: Path
) -> None:
    code = ("--code", "strange:make", "--code", "strange:loss", "--out", "new")
    main([*command, *(code if command[0] == "sweep" else REPEATED)])
    assert (folder / "imported").exists()


def test_a_run_with_code_of_ones_own_says_how_to_go_on(
    policy: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(config: RunConfig, *_: object, **__: object) -> None:
        (folder / "mine").mkdir(exist_ok=True)
        RunDirectory("mine").write_config(config)
        raise KeyboardInterrupt

    monkeypatch.setattr("ssp_experiments.run.training.train", interrupted)
    words = arguments(policy, "mine", "--rules", "strange:make")
    assert main([*words]) == 130
    again = "ssp train --resume --out mine --set rules=strange:make"
    assert again in capsys.readouterr().err
    assert main(again.split()[1:]) == 130
