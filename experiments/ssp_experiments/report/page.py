"""The page of some runs: one HTML file that loads nothing, with curves, settings and games."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ssp_env.errors import SSPError
from ssp_env.game.prompts import read_tags
from ssp_env.game.protocol import Tags
from ssp_env.game.record import GameRecord, TrajectoryRecord
from ssp_env.replay import SavedGame
from ssp_env.types import Document
from ssp_experiments.config import flat
from ssp_experiments.report.curves import chart_data, curve, group_in_words, mean_curve
from ssp_experiments.report.runs import ACCURACY, Run, arms_of, looks_of, written

PARTS = Path(__file__).parent / "page"
STYLES = ("vendor/uPlot.min.css", "report.css")
SCRIPTS = ("vendor/uPlot.iife.min.js", "charts.js", "list.js", "main.js")
DOUBTS = 6
"""Shades of tokens, from likely to unlikely."""


def page_html(runs: Sequence[Run], scripts: dict[str, str], live: bool = False) -> str:
    """The page around packed data.

    Nothing from a run can become code: templates escape it, data is base64, and the page's policy
    names the digests of the only script and style that may run.
    """
    style = "\n".join((PARTS / name).read_text(encoding="utf-8") for name in STYLES)
    script = "\n".join((PARTS / name).read_text(encoding="utf-8") for name in SCRIPTS)

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    source = "'self'" if live else "'none'"
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest(style)}'; "
        f"script-src 'sha256-{digest(script)}'; connect-src {source}; "
        "base-uri 'none'; form-action 'none'; img-src data:"
    )
    title = runs[0].key if len(runs) == 1 else f"{len(runs)} runs"
    places = {run.path.resolve().parent for run in runs}
    if len(places) == 1 and (place := places.pop()).name == "trials":
        title = f"{place.parent.name}: {title}"
    shell = TEMPLATES.get_template("shell.html")
    return shell.render(policy=policy, style=style, script=script, scripts=scripts, title=title)


def described(runs: Sequence[Run], live: bool) -> dict[str, Any]:
    """All that the page holds besides games: rendered tables, and curves as plain data."""
    arms = arms_of(runs)
    looks = looks_of(runs, arms)
    groups = sorted({g for run in runs for line in run.evaluated for g in line["accuracy"]})
    means = {
        arm.name: {
            group: mean.iloc[-1]
            for group in groups
            if len(mean := mean_curve([curve(runs[i], ACCURACY + group) for i in arm.runs], True))
        }
        for arm in arms
        if len(arm.runs) > 1
    }
    overview = TEMPLATES.get_template("overview.html")
    settings = TEMPLATES.get_template("settings.html")
    results = [dict(run.summary or {}) for run in runs]
    prints = [flat(result.pop("fingerprint", {})) for result in results]
    about = [
        {"directory": run.path, "state": run.state, **_rounded(flat(result))}
        for run, result in zip(runs, results, strict=True)
    ]
    going = [run for run in runs if run.summary is None]
    state = runs[0].state if len(runs) == 1 else f"{len(going)} unfinished" if going else "finished"
    return {
        "live": live,
        "state": state,
        "overview": overview.render(runs=runs, arms=arms, looks=looks, groups=groups, means=means),
        "settings": settings.render(
            runs=runs,
            looks=looks,
            about=compared(about),
            settings=compared([flat(run.config) for run in runs]),
            fingerprint=compared(prints),
        ),
        "charts": chart_data(runs, arms),
        # With a version of each file, which changes when a resumed run plays its step again.
        "runs": [
            {
                "key": run.key,
                "colour": look["colour"],
                "steps": [[n, str(f.stat().st_mtime_ns)] for n, f in run.files.items()],
            }
            for run, look in zip(runs, looks, strict=True)
        ],
    }


def compared(values: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Rows of a table: every name with its value in each run, as text."""
    names = dict.fromkeys(name for run in values for name in run)
    return [
        (name, *(written(run[name]) if name in run else "–" for run in values)) for name in names
    ]


def _rounded(result: dict[str, Any]) -> dict[str, Any]:
    """Figures of a result to four places, which is more than any question tells apart."""
    return {n: round(v, 4) if isinstance(v, float) else v for n, v in result.items()}


def packed(value: Any) -> str:
    """JSON, deflated, as base64: a browser's DecompressionStream unpacks it."""
    text = json.dumps(value, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")


# -- games -------------------------------------------------------------------------------------


def row(game: GameRecord) -> dict[str, Any]:
    """The game in the list. ``right`` of the ``judged`` attempts were right."""
    judged = [attempt for attempt in game.attempts if attempt.outage is None]
    return {
        "index": game.index,
        "outcome": game.outcome.value,
        "reason": game.reason,
        "origin": game.origin,
        "hops": game.hops,
        "reward": game.proposer_reward,
        "rate": game.solve_rate,
        "right": sum(attempt.right for attempt in judged),
        "judged": len(judged),
        "answer": game.answer,
        "question": (game.question or "")[:110],
    }


def game_html(key: str, step: int, saved: SavedGame, tokens: bool) -> str:
    """A game as HTML to read, with its tokens if they are wanted and were recorded."""
    record, rules = saved.record, saved.rules
    pieces = None
    if tokens and rules.tokens:
        with suppress(SSPError):  # a policy's own tokenizer, which is not on this machine
            pieces = rules.tokenizer.open().pieces
    return TEMPLATES.get_template("game.html").render(
        key=key,
        step=step,
        game=record,
        tags=read_tags(rules.prompts.get("tags")),
        read=materials(record),
        recorded=rules.tokens,
        with_tokens=tokens and rules.tokens,
        pieces=pieces,
    )


def turns(play: TrajectoryRecord, tags: Tags) -> Iterator[tuple[list[tuple[str, str, bool]], Any]]:
    """The turns of a trajectory: what the policy wrote, and the documents that its search found.

    What it wrote is cut at its tags into (kind, text, whether the tag was closed).
    """
    kinds = {
        tags.think: "thinks",
        tags.search: "searches",
        tags.question: "asks",
        tags.answer: "answers",
        tags.information: "forges",
        **dict.fromkeys(tags.also, "notes"),
        **dict.fromkeys(tags.tools, "searches"),
    }
    names = "|".join(map(re.escape, kinds))
    searches = iter(play.searches)
    for segment in play.segments:
        if segment.by != "policy":
            continue
        blocks, at = [], 0
        # A tag that is not closed reaches to the end of the turn.
        for match in re.finditer(rf"<({names})>(.*?)(</\1>|$)", segment.text, re.DOTALL):
            blocks.append(("plain", segment.text[at : match.start()].strip(), True))
            blocks.append((kinds[match[1]], match[2].strip(), bool(match[3])))
            at = match.end()
        blocks.append(("plain", segment.text[at:].strip(), True))
        shown = [block for block in blocks if block[0] != "plain" or block[1]]
        search = next(searches, None) if "searches" in [kind for kind, *_ in shown] else None
        yield shown, search.documents if search else None


def materials(game: GameRecord) -> list[tuple[Document, str | None]]:
    """Documents that verification read, in its order, with the origin of those that are noise."""
    origins = {item.document.id: item.origin for item in game.noise}
    searches = [search for play in game.trajectories for search in play.searches]
    retrieved = [document for search in searches for document in search.documents]
    known = {each.id: each for each in (*(item.document for item in game.noise), *retrieved)}
    return [
        (
            known.get(name, Document(name, name, "")),
            None if name in game.evidence else origins.get(name),
        )
        for name in game.materials or ()
    ]


def token_spans(play: TrajectoryRecord, pieces: Any) -> Iterator[tuple[str, str, str]]:
    """The tokens of a trajectory: class, title and text.

    ``pieces`` are the bytes of each token id, or ``None`` where the tokenizer cannot be opened.
    """
    for segment in play.segments:
        logprobs = segment.logprobs or ()
        for place, id_ in enumerate(segment.ids or ()):
            text = f"⟨{id_}⟩" if pieces is None else pieces[id_].decode("utf-8", "replace")
            if segment.by != "policy":
                yield "given", f"id {id_}; loss mask 0", text
                continue
            logprob = logprobs[place]
            # A shade for each half of a nat; the last is for p below e^-2.5 = .08.
            doubt = int(min(DOUBTS - 1, -logprob * DOUBTS / 3))
            chance = f"log-probability {logprob:.4f} (p = {math.exp(logprob):.3g})"
            yield f"own d{doubt}", f"id {id_}; loss mask 1; {chance}", text


TEMPLATES = Environment(
    loader=FileSystemLoader(PARTS),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
TEMPLATES.filters |= {
    "group": group_in_words,
    "reason": lambda code: code.replace("_", " "),
    "share": lambda value: "–" if value is None else f"{value:.2f}".replace("-", "−"),
}
TEMPLATES.tests["differing"] = lambda cells: len({*cells[1:]}) > 1
TEMPLATES.globals |= {"turns": turns, "tokens": token_spans}
