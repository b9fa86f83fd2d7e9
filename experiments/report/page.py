"""The page of some runs: one HTML file that loads nothing, with curves, settings and games."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.console import Console
from rich.progress import track

from experiments.report import games
from experiments.report.curves import chart_data
from experiments.report.figures import spoken_group
from experiments.report.runs import (
    LAST_STEPS,
    Run,
    accuracy_means,
    arms_of,
    differences,
    last_steps,
    open_runs,
)
from experiments.run.rundir import flat
from ssp_env.disk import replacing
from ssp_env.errors import RunError
from ssp_env.game.prompts import read_tags
from ssp_env.replay import SavedGame, read_games

PARTS = Path(__file__).parent / "page"
STYLES = ("vendor/uPlot.min.css", "report.css")
SCRIPTS = ("vendor/uPlot.iife.min.js", "charts.js", "list.js", "main.js")
REASONS = {"action": "a complete action", "budget_tokens": "out of tokens", "format": "bad format"}
"""Reasons whose codes say too little; others are shown with spaces for underscores."""

_environment = Environment(
    loader=FileSystemLoader(PARTS),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
_environment.filters |= {
    "group": spoken_group,
    "reason": lambda code: REASONS.get(code, code.replace("_", " ")),
    "share": lambda value: "–" if value is None else f"{value:.2f}".replace("-", "−"),
    "figure": lambda value: (
        "–" if value is None else f"{value:,.3g}" if value < 1e3 else f"{value:,.0f}"
    ),
}
_environment.globals |= {"turns": games.turns, "alike": games.alike, "tokens": games.tokens}


def report(paths: Sequence[str], out: str | None = None, tokens: bool = False) -> int:
    """Reads the runs, and writes the page once all of it is there; see
    :func:`experiments.cli.report`."""
    page = Path(out or default_name(paths))
    if page.is_dir():
        what = f"name the file, such as {page / 'report.html'}"
        raise RunError(f"--out {page} is a directory; {what}")
    if not page.parent.is_dir():
        raise RunError(f"--out {page}: there is no directory {page.parent}")

    runs = open_runs(paths)
    written = write_page(runs, page, tokens=tokens)

    number = f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}"
    print(f"wrote {page} ({number}, {written:,} games, {page.stat().st_size / 1e6:.1f} MB)")
    for one in runs:
        if not one.files:
            print(f"{one.path} holds no games: curves and settings only")
    if written and not tokens:
        print("left out: token ids and log-probabilities (--tokens puts them in)")
    return 0


def default_name(paths: Sequence[str]) -> str:
    """The page's name if none is given, after the run directories."""
    first, *others = (Path(path).resolve().name for path in paths)
    if len(others) > 1:
        return f"report-{first}-and-{len(others)}-more.html"
    return f"report-{'-'.join([first, *others])}.html"


def write_page(runs: Sequence[Run], path: Path, *, tokens: bool) -> int:
    """Writes the page of some runs; returns the number of its games.

    Args:
        runs: in the order of the page.
        path: the file; it is replaced once all of the page is there.
        tokens: also token ids and log-probabilities, which multiply the size of the games.

    Raises:
        DataError: a game that cannot be read; names file and line.
        RunError: the page cannot be written.
    """
    held = {"data": packed(described(runs, live=False))}
    indexes: list[dict[int, Any]] = [{} for _ in runs]
    console = Console(stderr=True)
    steps = [(i, step) for i, run in enumerate(runs) for step in run.files]
    for place, step in track(steps, "reading games", console=console, transient=True):
        saved = list(read_games(runs[place].files[step]))
        indexes[place][step] = [games.row(game.record) for game in saved]
        shown = {g.record.slot: game_html(runs[place].key, step, g, tokens) for g in saved}
        held[f"step_{step}_{place}"] = packed(shown)
    held |= {f"index_{place}": packed(index) for place, index in enumerate(indexes)}

    with replacing(path) as file:
        file.write(page_html(runs, held))
    return sum(len(rows) for index in indexes for rows in index.values())


def page_html(runs: Sequence[Run], held: dict[str, str], live: bool = False) -> str:
    """The page around packed data.

    Nothing from a run can become code: templates escape it, data is base64, and the page's policy
    names the digests of the only script and style that may run.
    """
    style = "\n".join((PARTS / name).read_text(encoding="utf-8") for name in STYLES)
    script = "\n".join((PARTS / name).read_text(encoding="utf-8") for name in SCRIPTS)
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        f"connect-src {chr(39)}{'self' if live else 'none'}{chr(39)}; base-uri 'none'; "
        "form-action 'none'; img-src data:"
    )
    title = runs[0].key if len(runs) == 1 else f"{len(runs)} runs"
    shell = _environment.get_template("shell.html")
    return shell.render(policy=policy, style=style, script=script, held=held, title=title)


def described(runs: Sequence[Run], live: bool) -> dict[str, Any]:
    """All that the page holds besides games: rendered tables, and curves as plain data."""
    arms = arms_of(runs)
    drawn, zero = chart_data(runs, arms)
    means = [(arm, accuracy_means(runs, arm)) for arm in arms]
    settings = differences([run.settings for run in runs])
    prints = [flat((run.summary or {}).get("fingerprint") or {}) for run in runs]
    overview = _environment.get_template("overview.html").render(
        runs=runs,
        groups=sorted({g for run in runs for line in run.evaluated for g in line["accuracy"]}),
        accuracy_arms=[(arm, *found) for arm, found in means if found],
        several=[arm for arm in arms if len(arm.runs) > 1],
        last=last_steps(runs, arms),
        last_steps=LAST_STEPS,
        zero=zero,
    )
    shown_settings = _environment.get_template("settings.html").render(
        runs=runs,
        about=_about(runs),
        settings=settings,
        fingerprint=differences(prints) if any(prints) else [],
    )
    going = [run for run in runs if run.summary is None]
    state = runs[0].state if len(runs) == 1 else f"{len(going)} unfinished" if going else "finished"
    return {
        "live": live,
        "state": state,
        "row": games.ROW,
        "overview": overview,
        "settings": shown_settings,
        "charts": drawn,
        "runs": [{"key": run.key, "steps": [*map(_version, run.files.items())]} for run in runs],
    }


def game_html(key: str, step: int, saved: SavedGame, tokens: bool) -> str:
    """A game as HTML to read.

    Args:
        key: of its run.
        step: the step that it was played in.
        saved: the game.
        tokens: with its tokens, where they were recorded.
    """
    record, rules = saved.record, saved.rules
    off = (
        "Tokens: ssp report --tokens, or ssp view." if rules.tokens else "No tokens were recorded."
    )
    return _environment.get_template("game.html").render(
        key=key,
        step=step,
        game=record,
        tags=read_tags(rules.prompts.texts.get("tags")),
        read=games.materials(record),
        with_tokens=tokens and rules.tokens,
        without=off,
        pieces=games.pieces_of(saved) if tokens and rules.tokens else None,
    )


def packed(value: Any) -> str:
    """JSON, deflated, as base64: a browser's DecompressionStream unpacks it."""
    text = json.dumps(value, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _version(step_file: tuple[int, Path]) -> list[Any]:
    """A step and a version of its file, which changes when a resumed run plays it again."""
    step, path = step_file
    found = path.stat()
    return [step, f"{found.st_mtime_ns:x}-{found.st_size:x}"]


def _about(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Rows of the table of runs."""
    held = [
        {"directory": run.path, "state": run.state, **run.config, **(run.summary or {})}
        for run in runs
    ]
    names = ("directory", "state", "preset", "world", "seed", "verifier", "wall_seconds")
    return [
        {"name": name.replace("_", " "), "values": [each.get(name) for each in held]}
        for name in (*names, "git_commit", "machine")
    ]
