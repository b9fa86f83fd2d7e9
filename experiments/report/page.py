"""The page of some runs: one HTML file that loads nothing, with curves, settings and games."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from experiments.report import games
from experiments.report.figures import REWARDS, charts, figures_of, spoken, spoken_group
from experiments.report.runs import (
    LAST_STEPS,
    Arm,
    Run,
    accuracy_means,
    arms_of,
    differences,
    last_steps,
)
from experiments.run.rundir import flat
from experiments.stats import over_runs
from ssp_env.disk import replacing
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


def write_page(
    runs: Sequence[Run], path: Path, *, tokens: bool, progress: Callable[[Any], Iterable[Any]]
) -> int:
    """Writes the page of some runs; returns the number of its games.

    Args:
        runs: in the order of the page.
        path: the file; it is replaced once all of the page is there.
        tokens: also token ids and log-probabilities, which multiply the size of the games.
        progress: is handed the steps, and gives them back one by one.

    Raises:
        DataError: a game that cannot be read; names file and line.
        RunError: the page cannot be written.
    """
    held = {"data": packed(described(runs, live=False))}
    indexes: list[dict[int, Any]] = [{} for _ in runs]
    for place, step in progress([(i, step) for i, run in enumerate(runs) for step in run.files]):
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
        tags=rules.config.tags,
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


# -- curves ------------------------------------------------------------------------------------

Points = dict[int, tuple[float, ...]]
"""Value by step, with the ends of its interval where there is one."""


def chart_data(runs: Sequence[Run], arms: Sequence[Arm]) -> tuple[list[dict[str, Any]], list[str]]:
    """All curves as plain data, and the names of figures that were always 0.

    A chart of one run has a curve per figure; of several runs, each figure has a chart with a curve
    per run, and one per arm with the 95% interval over its seeds.
    """
    drawn, zero = [], []
    groups = sorted({g for run in runs for line in run.evaluated for g in line["accuracy"]})
    accuracy = [(spoken_group(group), [_accuracy(run, group) for run in runs]) for group in groups]
    if accuracy:
        drawn += _charts(REWARDS, "Unseen questions", "share answered right", accuracy, runs, arms)

    names = {name: None for run in runs for line in run.lines for name in figures_of(line)}
    points = [_figures(run, names) for run in runs]
    for chart in charts(names):
        curves = []
        for name in chart.figures:
            if any(y for found in points for (y, *_) in found[name].values()):
                curves.append((spoken(name), [found[name] for found in points]))
            else:
                zero.append(f"{chart.title.lower()}: {spoken(name)}")
        if curves:
            drawn += _charts(chart.group, chart.title, chart.unit, curves, runs, arms)
    return drawn, zero


def _charts(
    group: str,
    title: str,
    unit: str,
    curves: list[tuple[str, list[Points]]],
    runs: Sequence[Run],
    arms: Sequence[Arm],
) -> list[dict[str, Any]]:
    head = {"group": group, "unit": unit, "share": unit.startswith("share")}
    if len(runs) == 1:
        steps = sorted({step for _, (points,) in curves for step in points})
        series = [_series(label, i, points[0], steps) for i, (label, points) in enumerate(curves)]
        return [head | {"title": title, "x": steps, "series": series, "means": []}]

    made = []
    for label, points in curves:
        steps = sorted({step for found in points for step in found})
        series = [
            _series(run.key, i, found, steps)
            for i, (run, found) in enumerate(zip(runs, points, strict=True))
        ]
        means = [
            _series(arm.name, arm.runs[0], _mean([points[i] for i in arm.runs]), steps)
            for arm in arms
        ]
        several = any(len(arm.runs) > 1 for arm in arms)
        shown = f"{title}: {label}" if label != title.lower() else title
        made.append(
            head | {"title": shown, "x": steps, "series": series, "means": means if several else []}
        )
    return made


def _series(label: str, colour: int, points: Points, steps: list[int]) -> dict[str, Any]:
    """A curve over common steps, without values where it has none."""
    columns = [
        [
            _short(points[step][column]) if column < len(points.get(step, ())) else None
            for step in steps
        ]
        for column in range(3)
    ]
    ends = {} if columns[1].count(None) == len(steps) else {"low": columns[1], "high": columns[2]}
    return {"label": label, "colour": colour, "y": columns[0], **ends}


def _mean(runs: list[Points]) -> Points:
    """Means over runs with their intervals, at the steps that all of them have."""
    if len(runs) == 1:
        return runs[0]
    found: Points = {}
    for step in sorted(set.intersection(*({*points} for points in runs))):
        mean = over_runs([points[step][0] for points in runs])
        found[step] = (mean.mean, mean.low, mean.high)
    return found


def _accuracy(run: Run, group: str) -> Points:
    return {
        line["step"]: (line["accuracy"][group], *line["interval"][group])
        for line in run.evaluated
        if group in line["accuracy"]
    }


def _figures(run: Run, names: Iterable[str]) -> dict[str, Points]:
    found: dict[str, Points] = {name: {} for name in names}
    for line in run.lines:
        for name, value in figures_of(line, names).items():
            if value is not None:
                found[name][line["step"]] = (value,)
    return found


def _short(value: float) -> float | None:
    """Six digits of a number; ``None`` of one that is not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
