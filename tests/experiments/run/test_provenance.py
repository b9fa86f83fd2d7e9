"""Which commit stands beside a figure."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from experiments.run import provenance


def git(root: Path, *arguments: str) -> None:
    subprocess.run(
        [
            "git",
            "-C",
            str(root),
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@x",
            "-c",
            "commit.gpgsign=false",
            *arguments,
        ],
        check=True,
    )


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_changes_count_unless_they_are_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "agents").mkdir()
    code, result = (
        tmp_path / "experiments" / "code.py",
        tmp_path / "benchmarks" / "results" / "speed.json",
    )
    code.write_text("1")
    result.write_text("1")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    monkeypatch.setattr(
        provenance, "__file__", str(tmp_path / "experiments" / "run" / "provenance.py")
    )
    commit = provenance.git_commit()
    assert commit is not None
    result.write_text("2")
    assert provenance.git_commit() == commit
    code.write_text("2")
    assert provenance.git_commit() == f"{commit}+changes"

    # What plays no part in a run may change between two of them.
    git(tmp_path, "commit", "--quiet", "--all", "--message", "two")
    second = provenance.git_commit()
    assert second not in (None, commit)
    assert provenance.other_code(commit, second) == ""
    (tmp_path / "agents" / "loss.py").write_text("1")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "three")
    why = provenance.other_code(commit, provenance.git_commit())
    assert why.startswith(f"agents/loss.py changed between {commit[:7]}, which played it")


def test_no_commit_outside_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        provenance, "__file__", str(tmp_path / "experiments" / "run" / "provenance.py")
    )
    assert provenance.git_commit() is None
