"""The commit that stands by a figure."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from experiments.run import provenance


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_changes_count_unless_they_are_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        provenance, "__file__", str(tmp_path / "experiments" / "run" / "provenance.py")
    )
    assert provenance.git_commit() is None, "outside a checkout"

    code, result = tmp_path / "experiments" / "code.py", tmp_path / provenance.RESULTS / "a.json"
    for file in (code, result):
        file.parent.mkdir(parents=True)
        file.write_text("1")
    who = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "commit.gpgsign=false"]
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "-m", "one"]):
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True)
    commit = provenance.git_commit()
    assert commit is not None
    result.write_text("2")
    assert provenance.git_commit() == commit
    code.write_text("2")
    assert provenance.git_commit() == f"{commit}+changes"
    assert f"Python {provenance.platform.python_version()}" in provenance.machine()
