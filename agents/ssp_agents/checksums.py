"""Checksums of weights and checkpoints: what was damaged is found before it is played by."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ssp_env.disk import write_atomically
from ssp_env.errors import ModelError

CHECKSUMS = "SHA256SUMS"
"""File of a directory's checksums, as ``sha256sum --check`` reads it."""
_FIX = "restore it from a copy or, of a run, delete this checkpoint and resume the one before"


def write_checksums(directory: str | Path, pattern: str = "*.safetensors") -> None:
    """Writes the checksums of a directory's weights, or of other files, beside them."""
    there = (file for file in Path(directory).glob(pattern) if file.is_file())
    files = sorted(file for file in there if file.name != CHECKSUMS)
    sums = zip(sha256_of(files), files, strict=True)
    text = "".join(f"{digest}  {file.name}\n" for digest, file in sums)
    write_atomically(Path(directory) / CHECKSUMS, text)


def check_weights(directory: str | Path) -> None:
    """Compares the files of a directory with their checksums, if there are any; ``ModelError``
    names one that is damaged, and what to do."""
    sums = Path(directory) / CHECKSUMS
    if not sums.exists():
        return  # not written by this package

    try:
        lines = sums.read_text(encoding="utf-8", errors="replace").splitlines()
        files = [sums.parent / line.partition("  ")[2] for line in lines]
        digests = sha256_of(files)
    except OSError as error:
        raise ModelError(f"a file of {sums} cannot be read ({error}); {_FIX}") from error

    for line, file, digest in zip(lines, files, digests, strict=True):
        if not line.startswith(digest):
            fix = f"{_FIX}; if it was changed on purpose, delete {sums}"
            raise ModelError(f"{file} is damaged, its checksum is not that of {CHECKSUMS}: {fix}")


def sha256_of(files: Sequence[Path]) -> list[str]:
    """SHA-256 of files, in hex."""

    def digest(file: Path) -> str:
        with open(file, "rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()

    with ThreadPoolExecutor() as threads:
        return [*threads.map(digest, files)]
