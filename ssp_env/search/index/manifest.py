"""``manifest.json``: what a folder of an index holds, what it belongs to, and whether it is whole.

Every folder of an index has one: the passages and, beside them, each index over these passages. It
is written last, so a folder without it is not complete. Reading it runs no code: it is JSON, and
the files that it names are text, ``.npy`` arrays read without pickle, or FAISS's own format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ssp_env.errors import DataError
from ssp_env.search.index.workplace import ASIDE, JOURNAL, again, is_half_built, write_atomically

FORMAT = 1
"""Version of the directory's format. A reader refuses a newer one."""
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class EncoderInfo:
    """Which encoder a dense index was made with."""

    name: str
    """As its user names it: a hub name or a path."""
    digest: str
    """SHA-256 over what decides its vectors (weights, tokenizer, prefixes, normalisation); the
    encoder computes it."""
    dimension: int
    """Length of its vectors."""


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
    """What it was built with, such as BM25's ``k1``."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the packages that took part."""
    files: Mapping[str, FileInfo] = field(default_factory=dict)
    """Every file of the folder but the manifest, by name."""
    format: int = FORMAT


def write_manifest(
    folder: Path,
    manifest: Manifest,
    packages: tuple[str, ...] = ("numpy",),
    digests: Mapping[str, str] = MappingProxyType({}),
) -> Manifest:
    """Completes a manifest with the folder's files and the versions of packages, and writes it.
    Call it last.

    Args:
        folder: holds the finished files; its journal and sub-folders (scratch) are passed over.
        manifest: its ``files`` and ``versions`` are filled in here.
        packages: distributions whose versions are recorded, beside ``ssp-env``.
        digests: SHA-256 of files for which it is known already.
    """
    candidates = (path for path in folder.iterdir() if path.is_file() and path.suffix != ASIDE)
    names = sorted(path.name for path in candidates if path.name not in (MANIFEST, JOURNAL))
    sums = {name: digests.get(name) or sha256(folder / name) for name in names}
    files = {name: FileInfo((folder / name).stat().st_size, sums[name]) for name in names}
    versions = {package: _version(package) for package in ("ssp-env", *packages)}
    fields = {
        key: getattr(manifest, key)
        for key in ("kind", "corpus", "passages", "encoder", "parameters")
    }
    whole = Manifest(**fields, versions=versions, files=files)
    write_atomically(folder / MANIFEST, json.dumps(asdict(whole), indent=1, sort_keys=True) + "\n")
    return whole


def read_manifest(
    folder: Path,
    kind: str | None = None,
    *,
    corpus: str | None = None,
    encoder: EncoderInfo | None = None,
    check: bool = False,
) -> Manifest:
    """The manifest of a folder, after the folder was found to be whole and what is expected.

    Args:
        folder: where the manifest is.
        kind: what the folder must hold; ``None`` takes any.
        corpus: digest of the passages that it must belong to; ``None`` takes any.
        encoder: the encoder that it must have been made with, told by digest and dimension;
            ``None`` takes any.
        check: compares the bytes of every file (about a second a gigabyte), not only the sizes.

    Raises:
        DataError: no such folder, half built, of a newer format, another kind, corpus or encoder, a
            file missing, cut or changed. Says what to do.
    """
    manifest = _parse(folder, _load(folder))
    if kind is not None and manifest.kind != kind:
        raise DataError(folder, f"holds {manifest.kind!r}, not {kind!r}")
    if corpus is not None and manifest.corpus != corpus:
        what = (
            f"belongs to another corpus (digest {manifest.corpus[:12]}, the passages have "
            f"{corpus[:12]})"
        )
        raise DataError(folder, f"{what}; {again(folder)} over these passages")
    _check_encoder(folder, manifest.encoder, encoder)
    for name, info in manifest.files.items():
        _check_file(folder / name, info, check)
    return manifest


def sha256(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _load(folder: Path) -> dict[str, Any]:
    if is_half_built(folder):
        how = (
            "run `ssp index` again over the same corpus: it goes on where it stopped, or says "
            "what stops it"
        )
        raise DataError(folder, f"is half built; {how}")
    if not folder.is_dir():
        raise DataError(folder, "no such folder; `ssp index CORPUS --out DIR` makes an index")
    path = folder / MANIFEST
    if not path.exists():
        raise DataError(folder, f"has no {MANIFEST}: it is no index, or not whole; {again(folder)}")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(path, f"cannot be read ({error}); {again(folder)}") from error
    if not isinstance(raw, dict) or not isinstance(raw.get("format"), int):
        raise DataError(path, f"is no manifest of an index; {again(folder)}")
    if raw["format"] > FORMAT:
        what = f"is of format {raw['format']}; this version of ssp-env reads up to {FORMAT}"
        raise DataError(path, f"{what}: upgrade it, or {again(folder)}")
    return raw


def _parse(folder: Path, raw: dict[str, Any]) -> Manifest:
    try:
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
            format=raw["format"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            folder / MANIFEST, f"is no manifest of an index ({error!r}); {again(folder)}"
        ) from None


def _check_encoder(folder: Path, made_with: EncoderInfo | None, given: EncoderInfo | None) -> None:
    if given is None:
        return
    if made_with is None:
        raise DataError(folder, "was made without an encoder; leave the encoder away")
    if (made_with.digest, made_with.dimension) != (given.digest, given.dimension):
        there = (
            f"{made_with.name} ({made_with.dimension} dimensions, digest {made_with.digest[:12]})"
        )
        here = f"{given.name} ({given.dimension} dimensions, digest {given.digest[:12]})"
        raise DataError(
            folder,
            f"was made with {there}, not with {here}; open it with its own encoder, or "
            f"{again(folder)}",
        )


def _check_file(path: Path, info: FileInfo, check: bool) -> None:
    if not path.is_file():
        raise DataError(path, f"is missing; {again(path.parent)}")
    size = path.stat().st_size
    if size != info.size:
        raise DataError(
            path,
            f"has {size} bytes, its manifest says {info.size}: it was cut or changed; "
            f"{again(path.parent)}",
        )
    if check and sha256(path) != info.sha256:
        raise DataError(
            path, f"is corrupt: its bytes are not those that were written; {again(path.parent)}"
        )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
