"""Files that are there in full or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ssp_env.disk import write_atomically


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
