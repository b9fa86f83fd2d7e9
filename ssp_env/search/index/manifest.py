"""``manifest.json``: what a folder of an index holds, what it belongs to, and whether it is whole.

Every folder of an index has one: the passages and, beside them, each index over these passages. It
is written last, so a folder without it is not complete. Reading it runs no code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ssp_env.disk import replacing
from ssp_env.errors import DataError
from ssp_env.search.index.workplace import JOURNAL, again, is_half_built

FORMAT = 3
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
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of every file of the folder but the manifest, by name."""
    sha256: Mapping[str, str] = field(default_factory=dict)
    """Their digests."""
    format: int = FORMAT


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Adds the folder's files to a manifest, and writes it."""
    paths = sorted(path for path in folder.iterdir() if path.name not in (MANIFEST, JOURNAL))
    sizes = {path.name: path.stat().st_size for path in paths}
    whole = replace(manifest, sizes=sizes, sha256={path.name: sha256(path) for path in paths})
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
        kind, corpus, encoder: what the folder must hold, the digest of the passages that it must
            belong to, the encoder (by digest and dimension) that it must have been made with;
            ``None`` takes any.
        check: compares the bytes of every file (about a second per gigabyte), not only the sizes.

    Raises:
        DataError: no such folder, half built, of another format, kind, corpus or encoder, a file
            missing, cut or changed. Says what to do.
    """
    manifest = _load(folder)
    made_with = manifest.encoder
    if kind is not None and manifest.kind != kind:
        raise DataError(folder, f"holds {manifest.kind!r}, not {kind!r}")
    if corpus is not None and manifest.corpus != corpus:
        digests = f"digest {manifest.corpus[:12]}, the passages have {corpus[:12]}"
        what = f"belongs to another corpus ({digests})"
        raise DataError(folder, f"{what}; {again(folder)} over these passages")
    if (
        encoder is not None
        and made_with is not None
        and ((encoder.digest, encoder.dimension) != (made_with.digest, made_with.dimension))
    ):
        there, here = (
            f"{info.name} ({info.dimension} dimensions, digest {info.digest[:12]})"
            for info in (made_with, encoder)
        )
        fix = f"open it with its own encoder, or {again(folder)}"
        raise DataError(folder, f"was made with {there}, not with {here}; {fix}")

    for name, size in manifest.sizes.items():
        path, damage = folder / name, None
        if not path.is_file():
            damage = "is missing"
        elif path.stat().st_size != size:
            damage = f"has not the {size} bytes that its manifest names: it was cut or changed"
        elif check and sha256(path) != manifest.sha256[name]:
            damage = "is corrupt: its bytes are not those that were written"
        if damage is not None:
            raise DataError(path, f"{damage}; {again(folder)}")
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
        if raw["format"] == FORMAT:
            return _parse(**raw)
        found = int(raw["format"])
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"is not a manifest of an index ({error!r})"
        raise DataError(path, f"{what}; {again(folder)}") from error
    fix = again(folder) if found < FORMAT else f"upgrade ssp-env, or {again(folder)}"
    raise DataError(path, f"is of format {found}; this version reads format {FORMAT}: {fix}")


def _parse(encoder: dict[str, Any] | None, **fields: Any) -> Manifest:
    made_with = None if encoder is None else EncoderInfo(**encoder)
    manifest = Manifest(**fields, encoder=made_with)
    if any(Path(name).name != name for name in manifest.sizes):
        raise ValueError("a file outside the folder")
    if not isinstance(manifest.passages, int) or manifest.sizes.keys() != manifest.sha256.keys():
        raise TypeError("passages are a number, and every file has a size and a digest")
    return manifest
