"""Files and directories: there in full or not at all, locked, with enough room."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from ssp_env.errors import RunError


def check_free(path: Path, needed: int) -> None:
    """Makes sure that there is room where a directory is.

    Raises:
        RunError: less than ``needed`` bytes are free, or nobody can tell.
    """
    try:
        free = shutil.disk_usage(path).free
    except OSError as error:
        raise RunError(f"{path} cannot be used: {error}") from error
    if free < needed:
        raise RunError(
            f"{path}: only {free >> 20} MiB of disk are free; at least {needed >> 20} MiB are "
            f"needed"
        )


def make_directories(path: Path) -> list[Path]:
    """Makes a directory and the missing ones above it; returns those made, deepest first.

    Raises:
        RunError: they cannot be made.
    """
    missing, there = [], path
    try:
        while not there.exists() and there != there.parent:
            missing.append(there)
            there = there.parent
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{path} cannot be made: {error}") from error
    return missing


def remove_empty(folders: Iterable[Path]) -> None:
    """Removes those of the directories that hold nothing; in the order in which they are given."""
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps other processes out of a directory. The lock goes with the process, however that ends.

    Raises:
        RunError: another process holds it.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive(path))
        except BlockingIOError as error:
            why = "it is in use by a run that is still going on"
            raise RunError(f"{path}: {why}") from error
        except OSError as error:
            raise RunError(f"{path}: it cannot be locked: {error}") from error
        yield


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """The lock of :func:`locked`, for callers with errors of their own.

    Raises:
        BlockingIOError: another process holds it.
        OSError: the directory cannot be locked.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def write_atomically(path: Path, text: str) -> None:
    """Writes a file in full or not at all.

    Raises:
        RunError: it cannot be written.
    """
    with finished_in_full(path) as file:
        file.write(text)


@contextmanager
def finished_in_full(path: Path) -> Iterator[TextIO]:
    """A file to write to, under another name until all of it is there.

    A lone surrogate becomes its JSON escape.

    Raises:
        RunError: it cannot be written.
    """
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        raise unwritten(path, error) from error


def unwritten(path: Path, error: OSError) -> RunError:
    """What to say of a file that cannot be written, where a person has named it."""
    if not path.parent.is_dir():
        return RunError(f"{path} cannot be written: there is no directory {path.parent}")
    return RunError(f"{path} cannot be written: {error.strerror or error}")


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """The file of :func:`finished_in_full`, for callers with errors of their own.

    Raises:
        OSError: it cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with open(unfinished, "w", encoding="utf-8", errors="backslashreplace") as file:
            yield file

            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync(path.parent)
    finally:
        if unfinished.is_file():
            unfinished.unlink()


def sync(path: Path) -> None:
    """Returns once a file, or the names of a directory's files, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
