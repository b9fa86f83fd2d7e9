"""``manifest.json``: what a folder of an index holds, what it belongs to, and whether it is whole.

Every folder of an index has one: the passages and, beside them, each index over these passages. It
is written last, so a folder without it is not complete. Reading it runs no code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ssp_env.disk import replacing
from ssp_env.errors import DataError
from ssp_env.search.index.workplace import JOURNAL, again, is_half_built

FORMAT = 2
"""Version of the directory's format. A reader refuses any other."""
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class EncoderInfo:
    """Which encoder a dense index was made with."""

    name: str
    """As its user names it: a hub name or a path."""
    digest: str
    """SHA-256 over what decides its vectors: weights, tokenizer, prefixes, normalisation."""
    dimension: int
    """Length of its vectors."""
    query_prefix: str = ""
    """What it puts before a query."""
    passage_prefix: str = ""
    """What it puts before a passage."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of the folder."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of ``manifest.json``."""

    kind: str
    """``"passages"``, or the kind of index: ``"bm25"``, ``"dense-flat"``..."""
    corpus: str
    """Digest of the passages, as :meth:`ssp_env.search.corpus.Corpus.digest` defines it."""
    passages: int
    """How many there are."""
    encoder: EncoderInfo | None = None
    """``None`` for what needs none."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """What it was built with, such as BM25's ``k1``, and what was measured of it."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the packages that took part."""
    files: Mapping[str, FileInfo] = field(default_factory=dict)
    """Every file of the folder but the manifest, by name."""
    format: int = FORMAT


def write_manifest(
    folder: Path, manifest: Manifest, packages: tuple[str, ...] = ("numpy",)
) -> Manifest:
    """Completes a manifest with the folder's files and the versions of packages, and writes it.

    Args:
        folder: holds the finished files.
        manifest: its ``files`` and ``versions`` are filled in here.
        packages: distributions whose versions are recorded, beside ``ssp-env``.
    """
    paths = sorted(path for path in folder.iterdir() if path.name not in (MANIFEST, JOURNAL))
    files = {path.name: FileInfo(path.stat().st_size, sha256(path)) for path in paths}
    versions = {package: _version(package) for package in ("ssp-env", *packages)}

    whole = replace(manifest, versions=versions, files=files)
    with replacing(folder / MANIFEST) as file:
        file.write(json.dumps(asdict(whole), indent=1, sort_keys=True) + "\n")
    return whole


def read_manifest(
    folder: Path,
    kind: str | None = None,
    *,
    corpus: str | None = None,
    encoder: EncoderInfo | None = None,
    check: bool = False,
) -> Manifest:
    """The manifest of a folder that was found to be whole and what is expected.

    Args:
        folder: where the manifest is.
        kind: what the folder must hold; ``None`` takes any.
        corpus: digest of the passages that it must belong to; ``None`` takes any.
        encoder: the encoder that it must have been made with, told by digest and dimension;
            ``None`` takes any.
        check: compares the bytes of every file (about a second per gigabyte), not only the sizes.

    Raises:
        DataError: no such folder, half built, of another format, kind, corpus or encoder, a file
            missing, cut or changed. Says what to do.
    """
    manifest = _load(folder)
    if kind is not None and manifest.kind != kind:
        raise DataError(folder, f"holds {manifest.kind!r}, not {kind!r}")
    if corpus is not None and manifest.corpus != corpus:
        digests = f"digest {manifest.corpus[:12]}, the passages have {corpus[:12]}"
        what = f"belongs to another corpus ({digests})"
        raise DataError(folder, f"{what}; {again(folder)} over these passages")

    _check_encoder(folder, manifest.encoder, encoder)
    for name, info in manifest.files.items():
        _check_file(folder / name, info, check)
    return manifest


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _load(folder: Path) -> Manifest:
    path = folder / MANIFEST
    if is_half_built(folder):
        how = "run `ssp index` again over the same corpus: it finishes it, or says what stops it"
        raise DataError(folder, f"is half built; {how}")
    if not folder.is_dir():
        raise DataError(folder, "no such folder; `ssp index CORPUS --out DIR` makes an index")
    if not path.exists():
        what = f"has no {MANIFEST}: it is not an index, or not whole"
        raise DataError(folder, f"{what}; {again(folder)}")

    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        found = int(raw["format"])
        if found == FORMAT:
            return _parse(raw)
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"is not a manifest of an index ({error!r})"
        raise DataError(path, f"{what}; {again(folder)}") from error
    fix = again(folder) if found < FORMAT else f"upgrade ssp-env, or {again(folder)}"
    raise DataError(path, f"is of format {found}; this version reads format {FORMAT}: {fix}")


def _parse(raw: dict[str, Any]) -> Manifest:
    encoder = raw["encoder"]
    files = {
        name: FileInfo(int(info["size"]), str(info["sha256"]))
        for name, info in raw["files"].items()
    }
    if any(Path(name).name != name for name in files):
        raise ValueError("a file outside the folder")

    return Manifest(
        kind=str(raw["kind"]),
        corpus=str(raw["corpus"]),
        passages=int(raw["passages"]),
        encoder=None if encoder is None else EncoderInfo(**encoder),
        parameters=dict(raw["parameters"]),
        versions=dict(raw["versions"]),
        files=files,
    )


def _check_encoder(folder: Path, made_with: EncoderInfo | None, given: EncoderInfo | None) -> None:
    if given is None:
        return
    if made_with is None:
        raise DataError(folder, "was made without an encoder; leave the encoder away")

    if (made_with.digest, made_with.dimension) != (given.digest, given.dimension):
        there, here = (
            f"{info.name} ({info.dimension} dimensions, digest {info.digest[:12]})"
            for info in (made_with, given)
        )
        fix = f"open it with its own encoder, or {again(folder)}"
        raise DataError(folder, f"was made with {there}, not with {here}; {fix}")


def _check_file(path: Path, info: FileInfo, check: bool) -> None:
    if not path.is_file():
        raise DataError(path, f"is missing; {again(path.parent)}")

    size = path.stat().st_size
    if size != info.size:
        what = f"has {size} bytes, its manifest says {info.size}: it was cut or changed"
        raise DataError(path, f"{what}; {again(path.parent)}")
    if check and sha256(path) != info.sha256:
        what = "is corrupt: its bytes are not those that were written"
        raise DataError(path, f"{what}; {again(path.parent)}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
