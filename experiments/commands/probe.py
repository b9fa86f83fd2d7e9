"""``ssp probe``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from json import dumps, loads
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.cli import Chosen
from experiments.config import RunConfig
from experiments.run.checks import build_rules
from ssp_env.doors.setup import set_up
from ssp_env.errors import ConfigError, ServiceError
from ssp_env.game.rules import Rules, fingerprint
from ssp_env.judge.chat import ChatClient
from ssp_env.players import ChatPlayer
from ssp_env.testing.hacks import (
    Finding,
    Gate,
    Pay,
    Played,
    Report,
    all_cheats,
    find_cheat,
    probe,
)
from ssp_env.tokenizers import HuggingFaceTokenizer, Tokenizer
from ssp_env.worlds import open_world

PAYS, NO_RESULT = 1, 3
"""Exit statuses besides 0 and 2 (a mistake of the user's)."""

_LOG_COLUMNS = 110
_COLOURS = {Finding.PAYS: "bold red", Finding.UNSURE: "yellow", Finding.NO_RESULT: "magenta"}


def run(
    chosen: Chosen,
    *,
    cheats: Sequence[str],
    list: bool,
    games: int,
    margin: float,
    player: str,
    allow: Sequence[str],
    json: bool,
) -> int:
    """Plays the cheats and prints who was paid what; see :func:`experiments.cli.probe`."""
    if list:
        for cheat in all_cheats():
            print(f"{cheat.name:<28}{cheat.gains.value:<10}{cheat.about}")
        return 0

    config = chosen.config()
    every = not cheats or "all" in cheats
    found = all_cheats() if every else [find_cheat(name) for name in cheats]
    allowed = known(allow)
    rules = make_rules(config)
    partner = ChatPlayer(ChatClient(config.served_model())) if player == "model" else None

    # Every void game is counted in the report; the log would repeat each.
    logging.getLogger("ssp_env").setLevel(logging.ERROR)
    console = Console(stderr=True, quiet=json)
    try:
        with console.status("") as status:
            report = probe(
                rules,
                found,
                games=games,
                margin=margin,
                seed=config.seed,
                partner=partner,
                on_cheat=lambda cheat: status.update(f"playing {cheat.name}"),
            )
    except ServiceError as error:
        print(f"ssp: {error}; no honest game came to an end, so nothing is held", file=sys.stderr)
        return NO_RESULT

    if json:
        print(dumps(as_json(report, config, rules), ensure_ascii=True))
    else:
        show(report, config)

    if any(result.played.name not in allowed for result in report.paying):
        return PAYS
    return NO_RESULT if report.unknown else 0


def known(names: Sequence[str]) -> frozenset[str]:
    """Cheats that may pay: by their names, or all that pay in an earlier probe's JSON file."""
    found: set[str] = set()
    for name in names:
        if not name.endswith(".json"):
            found.add(name)
            continue
        try:
            cheats = loads(Path(name).read_text(encoding="utf-8"))["cheats"]
            paying = {c["name"] for c in cheats if c["finding"] == Finding.PAYS}
        except (OSError, ValueError, LookupError, TypeError) as error:
            fix = f"give a cheat's name, or a file that ssp probe --json wrote ({error})"
            raise ConfigError("--allow", name, fix) from error
        found |= paying
    return frozenset(found)


def make_rules(config: RunConfig) -> Rules:
    """The rules that training would play by; without a model, with the world's own tokenizer."""
    world = open_world(config.world, **config.world_options)
    if config.model:
        tokenizer: Tokenizer = HuggingFaceTokenizer.load(config.model_dir)
    else:
        game = config.game.replace(verifier="none")
        tokenizer = set_up({"world": world, "game": game}).rules.tokenizer
    return build_rules(config, world, tokenizer, config.game)


def as_json(report: Report, config: RunConfig, rules: Rules) -> dict[str, Any]:
    """A report as plain data, with all that it depends on."""
    cheats = [
        _plain(result.played)
        | {
            "beside": result.beside.name,
            "finding": result.finding.value,
            "more_than_honest": None if result.more is None else list(result.more),
            "closed_by": result.closed_by,
        }
        for result in report.results
    ]
    return {
        "world": config.world,
        "game": config.game.model_dump(mode="json"),
        "fingerprint": fingerprint(rules),
        "seed": report.seed,
        "margin": report.margin,
        "honest": _plain(report.honest),
        "cheats": cheats,
        "gate": _gate(report.gate),
    }


def _plain(played: Played) -> dict[str, Any]:
    plain = {name: getattr(played, name) for name in ("name", "about", "games", "accepted")}
    for name in ("proposer", "solver", "solver_with_gate"):
        pay: Pay = getattr(played, name)
        plain[name] = pay.mean if pay.paid else None
    return plain | {
        "gains": played.gains.value,
        "void": played.pay.void,
        "stopped_by": played.stopped_by,
        "gate": _gate(played.gate),
    }


def _gate(gate: Gate) -> dict[str, Any]:
    return gate._asdict() | {"precision": gate.precision, "recall": gate.recall}


def show(report: Report, config: RunConfig) -> None:
    """Prints the table, then the gate's figures, then the cheats that pay and their remedies."""
    # A log, as of CI, is as wide as the table.
    console = Console(width=None if sys.stdout.isatty() else _LOG_COLUMNS)
    games = f"{report.honest.games} games each, margin {report.margin:g}"
    table = Table(
        title=f"who is paid what ({config.world}, {games})",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for name in ("cheat", "gains", "accepted", "proposer", "solver", "more than honest", "finding"):
        is_text = name in ("cheat", "gains", "finding")
        table.add_column(name, justify="left" if is_text else "right", no_wrap=name == "cheat")

    honest = report.honest
    table.add_row(honest.name, "", *_figures(honest), "", _stopped(honest), end_section=True)
    for result in report.results:
        played, more = result.played, result.more
        said = Text(result.finding.value, style=_COLOURS.get(result.finding, ""))
        beside = "" if result.beside is honest else f"beside {result.beside.name}"
        if notes := ", ".join(filter(None, (_stopped(played), beside))):
            said.append(f" ({notes})", style="dim")

        interval = "-" if more is None else f"{more.value:+.2f} [{more.low:+.2f}, {more.high:+.2f}]"
        table.add_row(played.name, played.gains.value, *_figures(played), interval, said)
    console.print(table)

    if (precision := report.gate.precision) is not None:
        recall = report.gate.recall
        figures = f"the gate: precision {precision:.3f}"
        console.print(figures + ("" if recall is None else f", recall {recall:.3f}"))

    for result in report.paying:
        text = f"{result.played.name} pays: {result.played.about} Closed by: {result.closed_by}."
        console.print(Text(text), style="red", soft_wrap=True)
    for result in report.unknown:
        text = f"{result.played.name}: {result.played.pay.void} of {result.played.games} games are"
        console.print(f"{text} void, so nothing is known", style="magenta", soft_wrap=True)


def _figures(played: Played) -> tuple[str, ...]:
    """Share of accepted questions, and both roles' pay."""
    share = f"{played.accepted / played.games:.2f}" if played.games else "-"
    pays = (f"{pay.mean:.2f}" if pay.paid else "-" for pay in (played.proposer, played.solver))
    return share, *pays


def _stopped(played: Played) -> str:
    """The reason that stopped most of its questions, and the number of void games."""
    reason, count = next(iter(played.stopped_by.items()), ("", 0))
    void = f"void {played.pay.void}" if played.pay.void else ""
    return ", ".join(filter(None, (reason if 2 * count > played.games else "", void)))
