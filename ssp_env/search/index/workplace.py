"""The folder in which an index is built; it appears under its name when it is whole."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ssp_env.disk import exclusive, make_directories, remove_empty, replacing, sync
from ssp_env.errors import DataError, RunError

JOURNAL = "journal.json"
_FULL = (
    *(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
    "database or disk is full",
    "disk I/O error",
)
"""How the system and SQLite say that there is no room; libraries pass it on as text."""


class Workplace:
    """The folder in which something is built, next to where it will appear.

    ``Workplace(out / "bm25")`` works in ``out / "bm25.building"``; :meth:`publish` renames it. What
    a killed build leaves there is the next one's to use or to :meth:`clear`."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(target.name + ".building")

    @contextmanager
    def open(self) -> Iterator[Path]:
        """The folder; its parent is locked. Folders made for it go again if they stay empty.

        Raises:
            DataError: another process builds in the same directory; the target exists; the disk is
                full or not writable.
        """
        try:
            made = make_directories(self.target.parent)
            with exclusive(self.target.parent):
                if self.target.exists():
                    raise DataError(self.target, "exists already")
                self.path.mkdir(exist_ok=True)
                try:
                    yield self.path
                finally:
                    remove_empty([self.path, *made])
        except BlockingIOError:
            raise DataError(self.target.parent, "is in use by another build; wait for it") from None
        except (OSError, RunError) as error:
            what = f"cannot be built: {error}"
            if any(words in str(error) for words in _FULL):
                what = f"cannot be written: {error}; make room and run the same command again"
            raise DataError(self.target, what) from error

    def state(self) -> dict[str, Any]:
        """What the last :meth:`checkpoint` recorded; ``{}`` at the start.

        Raises:
            DataError: the journal is damaged.
        """
        journal = self.path / JOURNAL
        try:
            return dict(json.loads(journal.read_text())) if journal.exists() else {}
        except (ValueError, TypeError) as error:
            what = f"is damaged; delete {self.path} and build again"
            raise DataError(journal, what) from error

    def checkpoint(self, state: dict[str, Any]) -> None:
        """Records how far the build is. The files that it speaks of must be on disk already."""
        with replacing(self.path / JOURNAL) as file:
            json.dump(state, file)

    def clear(self) -> None:
        """Deletes everything built so far."""
        shutil.rmtree(self.path)
        self.path.mkdir()

    def publish(self) -> None:
        """Makes the folder, whose manifest is written, appear under its name."""
        (self.path / JOURNAL).unlink(missing_ok=True)
        for path in self.path.iterdir():
            sync(path)
        os.replace(self.path, self.target)
        sync(self.target.parent)


def again(folder: Path) -> str:
    """What to do about a damaged folder, for errors. Nothing is deleted unless the user does it."""
    return f"delete {folder} and build it again with `ssp index`"


def is_half_built(target: Path) -> bool:
    """Whether a build of this folder was begun and has not ended."""
    return not target.exists() and Workplace(target).path.exists()
