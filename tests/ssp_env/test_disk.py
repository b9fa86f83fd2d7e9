"""Files that are there in full or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ssp_env.disk import write_atomically
from ssp_env.errors import RunError


def test_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("old")

    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", "new")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("file", "old")]


def test_a_file_in_a_directory_that_is_not_there_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught:
        write_atomically(tmp_path / "gone" / "file", "new")
    what = f"there is no directory {tmp_path / 'gone'}"
    assert str(caught.value) == f"{tmp_path / 'gone' / 'file'} cannot be written: {what}"
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match=r"folder cannot be written: it is there and no file"):
        write_atomically(tmp_path / "folder", "new")
