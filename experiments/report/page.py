"""Writes the page: one file that loads nothing, with its games inside as far as they fit."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.report.collect import Run, described
from experiments.report.games import StepFile, chunk, read_step, rows
from experiments.run.rundir import finite
from ssp_env.disk import finished_in_full
from ssp_env.errors import RunError

LARGEST = 5_000_000
"""Bytes of a page. Games that would make it larger lie in a folder beside it."""
PARTS = Path(__file__).parent / "page"
SCRIPTS = (
    "base.js",
    "source.js",
    "charts.js",
    "overview.js",
    "settings.js",
    "list.js",
    "turns.js",
    "game.js",
    "main.js",
)
"""The page's own code, in the order in which it is joined."""
_OURS = re.compile(r"(index|step_\d+)_\d+\.js")


@dataclass(frozen=True)
class Written:
    """What became of a page."""

    path: Path
    games: int
    size: int
    """Bytes of the page."""
    beside: Path | None
    """The folder with the games, where they are not in the page."""
    beside_size: int


def write_page(runs: Sequence[Run], path: Path, *, tokens: bool, progress: Any = iter) -> Written:
    """Writes the page of some runs. Nothing is left behind if that fails.

    Args:
        runs: in the order of the page.
        path: the file; it is replaced.
        tokens: also token ids and log-probabilities, which double the size of the games.
        progress: is handed the steps, and gives them back one by one.

    Raises:
        DataError: a game that cannot be read, or of another version; names file and line.
        RunError: the page cannot be written.
    """
    folder = path.with_name(f"{path.stem}_games")
    _check_ours(folder)

    chunks: dict[str, str] = {}
    games = 0
    work = [(place, file) for place, run in enumerate(runs) for file in run.files]
    indexes: list[dict[int, Any]] = [{} for _ in runs]
    for place, file in progress(work):
        indexes[place][file.step], text = _step(file, tokens)
        games += len(indexes[place][file.step])
        chunks[f"step_{file.step}_{place}"] = text
    for place, index in enumerate(indexes):
        chunks[f"index_{place}"] = packed(index)

    size = sum(map(len, chunks.values()))
    data = described(runs, tokens=tokens, live=False) | {"games": games, "beside": None}
    page = page_text(data, chunks)
    if len(page.encode()) <= LARGEST:
        with finished_in_full(path) as file_:
            file_.write(page)
        if folder.is_dir():
            shutil.rmtree(folder)
        return Written(path, games, len(page.encode()), None, 0)

    page = page_text(data | {"beside": folder.name, "beside_size": size}, {})
    with _replaced(folder) as new:
        for name, text in chunks.items():
            (new / f"{name}.js").write_text(f'ssp.arrived("{name}", "{text}");\n', "utf-8")
    with finished_in_full(path) as file_:
        file_.write(page)
    return Written(path, games, len(page.encode()), folder, size)


def page_text(data: dict[str, Any], chunks: dict[str, str]) -> str:
    """The page as HTML.

    Nothing from a run can become code: all data is base64, and the page's policy names the digests
    of the only script and style that may run.

    Args:
        data: what :func:`~experiments.report.collect.described` gave.
        chunks: packed games by name.
    """
    style = (PARTS / "report.css").read_text(encoding="utf-8")
    script = "\n".join((PARTS / name).read_text(encoding="utf-8") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{script}\n}})();\n'
    style = f"\n{style}"

    more = "'self' file:" if data.get("beside") else ""
    connect = "'self'" if data["live"] else "'none'"
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}' {more}; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'; img-src data:"
    )
    held = {"data": packed(data), **chunks}
    filled = {
        "policy": policy,
        "style": style,
        "script": script,
        "data": "\n".join(
            f'<script type="text/plain" id="{name}">{text}</script>' for name, text in held.items()
        ),
    }
    template = (PARTS / "report.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: filled[found[1]], template)


def runs_of_page(path: Path) -> list[str] | None:
    """The run directories of a page, as they were named when it was written.

    Returns:
        ``None`` if the file is no page of runs.

    Raises:
        RunError: the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    found = re.search(r'<script type="text/plain" id="data">([\w+/=]+)</script>', text)
    if found is None:
        return None
    data = json.loads(zlib.decompress(base64.b64decode(found[1])))
    return [run["path"] for run in data["runs"]]


def packed(value: Any) -> str:
    """JSON, deflated, as base64: what a browser's DecompressionStream unpacks."""
    return base64.b64encode(zlib.compress(json_bytes(value), 9)).decode("ascii")


def json_bytes(value: Any) -> bytes:
    """JSON in UTF-8. A lone surrogate becomes its escape, a number that is not finite ``null``."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(finite(value), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


# -- within ------------------------------------------------------------------------------------


def _step(file: StepFile, tokens: bool) -> tuple[list[list[Any]], str]:
    """The rows of a step's games, and its chunk."""
    games = read_step(file)
    return rows(game.record for game in games), packed(chunk(games, tokens))


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _check_ours(folder: Path) -> None:
    """
    Raises:
        RunError: where games might be put lies something that no report wrote.
    """
    if folder.exists() and not (
        folder.is_dir() and all(_OURS.fullmatch(file.name) for file in folder.iterdir())
    ):
        raise RunError(f"{folder} is not a report's folder of games; choose another -o")


@contextmanager
def _replaced(folder: Path) -> Iterator[Path]:
    """A folder to fill, under another name until all of it is there.

    Raises:
        RunError: it cannot be written.
    """
    new = folder.with_name(f".{folder.name}.unfinished")
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        yield new
        if folder.is_dir():
            shutil.rmtree(folder)
        new.rename(folder)
    except OSError as error:
        raise RunError(f"{folder} cannot be written: {error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
