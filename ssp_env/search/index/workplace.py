"""Files of an index while they are being built: growing arrays, a journal, a place that appears
when whole."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ssp_env.errors import DataError

Progress = Callable[[str, int, int], None]
"""Told now and then how a build goes: the stage in words, how much of it is done, how much there
is."""

JOURNAL = "journal.json"
SCRATCH = "scratch"
"""Sub-folder of a place under construction for what only the build needs; it does not outlive
it."""
ASIDE = ".new"
"""How files end that :func:`write_atomically` is about to put in place; a kill may leave one."""
_SUFFIX = ".building"
_LOCK = ".lock"


class GrowingFile:
    """A file that is appended to, and can be taken up again at an earlier length."""

    def __init__(self, path: Path, length: int = 0) -> None:
        """
        Args:
            path: created if need be.
            length: bytes to keep of what is there; the rest is cut off.

        Raises:
            DataError: the file is shorter than ``length``.
        """
        self.path = path
        self._file: BinaryIO = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115
        there = self._file.seek(0, os.SEEK_END)
        if there < length:
            self._file.close()
            raise DataError(
                path,
                f"holds {there} bytes of the {length} that its journal names; delete {path.parent}",
            )
        self._file.truncate(length)
        self._file.seek(length)

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)

    def tell(self) -> int:
        """Bytes so far, those not yet on disk included."""
        return self._file.tell()

    def patch(self, offset: int, data: bytes) -> None:
        """Overwrites bytes in place; the next :meth:`write` goes to the end again."""
        self._file.seek(offset)
        self._file.write(data)
        self._file.seek(0, os.SEEK_END)

    def sync(self) -> None:
        """Returns when all bytes are on disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class ArrayWriter:
    """Appends rows to a ``.npy`` file whose length is known only at the end."""

    def __init__(self, path: Path, dtype: Any, columns: int | None = None, rows: int = 0) -> None:
        """
        Args:
            path: the file, created if need be.
            dtype: of the elements; stored little-endian.
            columns: width of a two-dimensional array; ``None`` for a vector.
            rows: rows to keep of what is there: what :attr:`rows` was at the last :meth:`sync`. The
                rest is cut off.

        Raises:
            DataError: the file holds fewer rows.
        """
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.columns = columns
        self.rows = rows
        header = self._header()
        self._row_bytes = self.dtype.itemsize * (1 if columns is None else columns)
        self._file = GrowingFile(path, len(header) + rows * self._row_bytes if rows else 0)
        if not rows:
            self._file.write(header)

    def append(self, rows: NDArray[Any]) -> None:
        """Adds rows, cast to the file's type if that is safe.

        Raises:
            TypeError: a cast that would lose something.
            ValueError: rows of another width.
        """
        rows = np.ascontiguousarray(rows.astype(self.dtype, casting="same_kind", copy=False))
        if rows.shape[1:] != (() if self.columns is None else (self.columns,)):
            raise ValueError(
                f"{self._file.path.name} takes rows of width {self.columns}, not {rows.shape}"
            )
        if len(rows):
            self._file.write(rows.data.cast("B"))
        self.rows += len(rows)

    def sync(self) -> None:
        """Returns when all rows are on disk."""
        self._file.sync()

    def finish(self) -> None:
        """Writes the number of rows into the header and closes the file: from here on ``np.load``
        reads it."""
        self._file.patch(0, self._header())
        self._file.sync()
        self._file.close()

    def close(self) -> None:
        """Closes the file as it is; a later writer takes it up again."""
        self._file.close()

    def _header(self) -> bytes:
        # numpy pads headers so that the first dimension may grow in place up to 21 digits.
        shape = (self.rows,) if self.columns is None else (self.rows, self.columns)
        buffer = io.BytesIO()
        fields = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_1_0(buffer, fields)
        return buffer.getvalue()


def load_array(
    path: Path, dtype: Any, rows: int | None = None, columns: int | None = None
) -> NDArray[Any]:
    """A ``.npy`` file, memory-mapped and read-only. Nothing in it can run code.

    Args:
        path: the file.
        dtype: what its elements must be.
        rows: how many rows it must have; ``None`` takes any number.
        columns: width of a two-dimensional array; ``None`` for a vector.

    Raises:
        DataError: not such a file.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            path, f"is no array that can be read ({error}); {again(path.parent)}"
        ) from error
    width = () if columns is None else (columns,)
    wrong_rows = rows is not None and len(array.shape) > 0 and array.shape[0] != rows
    if array.dtype != np.dtype(dtype) or array.shape[1:] != width or not array.shape or wrong_rows:
        wanted = f"{np.dtype(dtype)} of shape {('any' if rows is None else rows, *width)}"
        raise DataError(
            path, f"holds {array.dtype} of shape {array.shape}, not {wanted}; {again(path.parent)}"
        )
    return np.asarray(array)  # a plain array over the same pages: np.memmap is slow to slice


class Workplace:
    """The folder in which something is built, next to where it will appear.

    ``Workplace(out / "bm25")`` works in ``out / "bm25.building"``. What is there when
    :meth:`publish` is called appears under its name at once; until then a killed build leaves its
    files and its journal for the next one."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(target.name + _SUFFIX)

    @contextmanager
    def open(self) -> Iterator[Path]:
        """The folder, locked against a second builder. What is empty afterwards goes: it, and a
        directory made for it.

        Raises:
            DataError: another process builds in the same directory; the target exists; the disk is
                full or not writable. What was journalled stays, and the next build goes on from
                there.
        """
        try:
            with _locked(self.target.parent):
                if self.target.exists():
                    raise DataError(self.target, "exists already")
                self.path.mkdir(exist_ok=True)
                try:
                    yield self.path
                finally:
                    _remove_empty(self.path)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                fix = "make room and run the same command again: it goes on where it stopped"
                raise DataError(
                    self.target, f"cannot be written: {error.strerror}; {fix}"
                ) from error
            raise DataError(self.target, f"cannot be built: {error}") from error

    def state(self) -> dict[str, Any]:
        """What the last :meth:`checkpoint` said; ``{}`` at the start.

        Raises:
            DataError: the journal is not one.
        """
        journal = self.path / JOURNAL
        if not journal.exists():
            return {}
        try:
            state = json.loads(journal.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(
                journal, f"is damaged ({error}); delete {self.path} and build again"
            ) from None
        if not isinstance(state, dict):
            raise DataError(journal, f"is damaged; delete {self.path} and build again")
        return state

    def checkpoint(self, state: dict[str, Any]) -> None:
        """Records how far the build is. The files that it speaks of must be on disk already."""
        write_atomically(self.path / JOURNAL, json.dumps(state))

    def clear(self) -> None:
        """Forgets everything built so far."""
        for entry in self.path.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def publish(self) -> None:
        """Makes the folder, whose manifest is written, appear under its name, without journal and
        scratch."""
        shutil.rmtree(self.path / SCRATCH, ignore_errors=True)
        for leftover in (JOURNAL, *(path.name for path in self.path.glob(f"*{ASIDE}"))):
            (self.path / leftover).unlink(missing_ok=True)
        os.replace(self.path, self.target)
        sync_folder(self.target.parent)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Makes a directory and keeps other builders out of it. If nothing comes to be in it, it is
    left as it was."""
    made = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / _LOCK
    with open(path, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A lock that its last holder has removed keeps nobody out.
            held = path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat())
        except BlockingIOError:
            held = False
        if not held:
            raise DataError(directory, "is in use by another build; wait for it")
        try:
            yield
        finally:
            if os.listdir(directory) == [_LOCK]:
                path.unlink()
                for folder in made:
                    _remove_empty(folder)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not os.listdir(folder):
        folder.rmdir()


def again(folder: Path) -> str:
    """What to do about a damaged folder, for errors. Nothing that is there is deleted without being
    asked."""
    return f"delete {folder} and build it again with `ssp index`"


def no_progress(stage: str, done: int, total: int) -> None:
    """A :data:`Progress` that says nothing."""


def is_half_built(target: Path) -> bool:
    """Whether a build of this folder was begun and has not ended."""
    return not target.exists() and target.with_name(target.name + _SUFFIX).exists()


def write_atomically(path: Path, text: str) -> None:
    """Writes a small file so that a reader, or a kill, sees the old one or the new one."""
    aside = path.with_name(path.name + ASIDE)
    with open(aside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Returns when the folder's entries are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
