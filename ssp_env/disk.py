"""Files and directories: there in full or not at all, and locked."""

from __future__ import annotations

import fcntl
import gzip
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, BinaryIO

from ssp_env.errors import ConfigError, DataError, RunError


def cache_folder() -> Path:
    """The user's folder for what can be made again: ``~/.cache/ssp-env``, or what the environment
    variable ``SSP_CACHE`` names."""
    return Path(os.environ.get("SSP_CACHE") or "~/.cache/ssp-env").expanduser()


def made_once(folder: Path, write: Callable[[Path], object]) -> Path:
    """A folder in the cache, which ``write`` fills if it is missing; processes may do so at once.

    Raises ``DataError`` where the cache cannot be written."""
    if folder.exists():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix=".") as place:
            made = Path(place) / folder.name
            made.mkdir()
            write(made)
            try:
                made.rename(folder)
            except OSError:
                # Another process has made it meanwhile.
                if not folder.exists():
                    raise
    except (DataError, OSError) as error:
        fix = "let the environment variable SSP_CACHE name a folder that can be written"
        raise DataError(folder.parent, f"cannot keep {folder.name} ({error}); {fix}") from error
    return folder


@contextmanager
def open_maybe_gzip(path: str | Path) -> Iterator[BinaryIO | gzip.GzipFile]:
    """A file or pipe to read bytes from once, plain or gzip; raises ``DataError`` where it cannot
    be read."""
    try:
        with open(path, "rb") as raw:
            zipped = raw.peek(2)[:2] == b"\x1f\x8b"  # a pipe cannot go back
            yield gzip.GzipFile(fileobj=raw) if zipped else raw
    except EOFError:
        raise DataError(path, "is cut off: its end is missing") from None
    except (OSError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(path, f"cannot be read: {why}") from error


def check_file(setting: str, path: str | Path) -> None:
    """Refuses a file that is not there, or a pipe, for a setting whose file is read by several
    processes."""
    place = Path(path)
    if not place.exists():
        raise DataError(place.absolute(), f"no such file ({setting})")
    if not (place.is_file() or place.is_dir()):
        fix = "it is read more than once, and this is a pipe or device: write it to a file"
        raise ConfigError(setting, str(path), fix)


def unfinished(path: Path) -> Path:
    """The name that a file or folder has until all of it is there."""
    return path.with_name(f".{path.name}.unfinished")


@contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file to write to, which takes its name, and the place of an older one, when it is whole.

    In text, a lone surrogate becomes its JSON escape. ``RunError`` where it cannot be written."""
    if path.exists() and not path.is_file():
        # A rename would put a file in the place of a device.
        kind = "a directory" if path.is_dir() else "a device"
        raise RunError(f"{path} cannot be written: it is {kind}; give the path of a file")

    text = {} if "b" in mode else {"encoding": "utf-8", "errors": "backslashreplace"}
    path = path.resolve()  # what a link leads to is replaced, not the link
    new = unfinished(path)
    try:
        with open(new, mode, **text) as file:  # type: ignore[call-overload]
            yield file

            file.flush()
            # Before the rename: a crash could leave the new name with an empty file behind it.
            os.fsync(file.fileno())
        new.replace(path)
        sync(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        if new.is_file():
            new.unlink()


def write_atomically(path: Path, text: str) -> None:
    """Writes a file in full or not at all; raises ``RunError`` where it cannot be written."""
    with replacing(path) as file:
        file.write(text)


def write_error(path: Path, error: OSError) -> RunError:
    if not path.parent.is_dir():
        return RunError(f"{path} cannot be written: there is no directory {path.parent}; make it")
    why = error.strerror or error
    return RunError(f"{path} cannot be written: {why}; name another place, or make room there")


@contextmanager
def new_folder(path: Path, *, resume: bool = False) -> Iterator[Path]:
    """A folder to fill, which takes its name when it is whole.

    After an error it is deleted, unless ``resume``: then the next one to make it finds what is
    there. So does a process that is killed and made again."""
    new = unfinished(path)
    if not resume:
        shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True, exist_ok=True)
    try:
        yield new

        for file in new.rglob("*"):
            sync(file)
        new.rename(path)
        sync(path.parent)
    except BaseException:
        if not resume:
            shutil.rmtree(new, ignore_errors=True)
        raise


def sync(path: Path) -> None:
    """Returns once a file, or the names of a directory's files, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(path: Path) -> list[Path]:
    """Makes a directory and the missing ones above it; returns those made, deepest first."""
    missing, there = [], path
    try:
        while not there.exists() and there != there.parent:
            # Deepest first, so that they can be removed in this order.
            missing.append(there)
            there = there.parent
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        why = f"{there} is a file" if is_file else error.strerror
        raise RunError(f"{path} cannot be made: {why}; name another place") from error
    return missing


def remove_empty(folders: Iterable[Path]) -> None:
    """Removes those of the directories that hold nothing; in the order in which they are given."""
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps other processes out of a directory; ``RunError`` where another one holds it.

    The lock goes with the process, however that ends."""
    with ExitStack() as stack:
        try:
            handle = os.open(path, os.O_RDONLY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            why = "it is in use by a run that is still going on"
            raise RunError(f"{path}: {why}") from error
        except OSError as error:
            raise RunError(f"{path}: it cannot be locked: {error}") from error
        yield
