"""``ssp probe``: scripted cheats against the rules of a run."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from json import dumps
from typing import Any

import pandas as pd
from rich.console import Console

from ssp_env.envs.setup import set_up
from ssp_env.errors import ServiceError, one_of
from ssp_env.game.rules import Rules, fingerprint
from ssp_env.judge.chat import ChatClient
from ssp_env.players import ChatPlayer
from ssp_env.probe import CHEATS, Finding, Report, find_cheat, probe
from ssp_env.tokenizers import HuggingFaceTokenizer, Tokenizer
from ssp_env.worlds import open_world
from ssp_experiments.config import RunConfig
from ssp_experiments.options import Chosen, ProbeOptions
from ssp_experiments.run.rules import build_rules

PAYS, NO_RESULT = 1, 3
"""Exit statuses besides 0 and 2 (a mistake of the user's)."""

TOLD = {
    Finding.PAYS: "pays",
    Finding.MOVES: "moves the pay to the other role",
    Finding.OPEN: "is open",
}
"""Findings that the table's reader is told more about."""
COLUMNS = ("cheat", "gains", "accepted", "proposer", "solver", "more than honest", "finding")


def run(chosen: Chosen, options: ProbeOptions) -> int:
    """Prints who was paid what."""
    if options.list:
        for cheat in CHEATS.values():
            print(f"{cheat.name:<28}{cheat.gains.value:<10}{cheat.about}")
        return 0

    config = chosen.config(values=chosen.start())
    cheats = [find_cheat(name) for name in options.cheat or CHEATS]
    for name in options.allow:
        one_of("--allow", name, {*CHEATS, *(cheat.name for cheat in cheats)})
    rules = make_rules(config)
    is_model = options.player == "model"
    partner = None
    if is_model:
        client = ChatClient(config.served_model())
        client.check("Answer with the word: ready", str, "player")
        partner = ChatPlayer(client, rules.prompts)

    console = Console(stderr=True, quiet=options.json)
    try:
        with _errors_alone(), console.status("") as status:
            report = probe(
                rules,
                cheats,
                games=options.games,
                margin=options.margin,
                seed=config.seed,
                partner=partner,
                on_cheat=lambda cheat: status.update(f"playing {cheat.name}"),
            )
    except ServiceError as error:
        print(f"ssp: {error}; no honest game came to an end, so nothing is known", file=sys.stderr)
        return NO_RESULT

    data = as_json(report, config, rules)
    if options.json:
        print(dumps(data))
    else:
        show(data)
    findings = {r.finding for r in report.cheats if r.name not in options.allow}
    if {Finding.PAYS, Finding.MOVES} & findings:
        return PAYS
    return NO_RESULT if Finding.NO_RESULT in findings else 0


@contextmanager
def _errors_alone() -> Iterator[None]:
    """Every void game is counted in the report; the log would repeat each."""
    log = logging.getLogger("ssp_env")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


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
    return {
        "world": config.world,
        "game": config.game.model_dump(mode="json"),
        "fingerprint": fingerprint(rules),
        **asdict(report),
    }


def rows(report: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """The table's cells: the honest player's row, then one per cheat."""
    for played in (report["honest"], *report["cheats"]):
        name, games, more = played["name"], played["games"], played["more_than_honest"]
        share = f"{played['accepted'] / games:.2f}" if games else "-"
        pays = played["proposer"], played["solver"]
        shown = ["-" if pay is None else f"{pay:.2f}" for pay in pays]

        # The reason that stopped most of its questions, and outages.
        reason, count = next(iter(played["stopped_by"].items()), ("", 0))
        notes = [reason] if 2 * count > games else []
        notes += [f"void {played['void']}"] if played["void"] else []
        said = f"({', '.join(notes)})" if notes else ""

        yield (
            name,
            "" if name == "honest" else played["gains"],
            share,
            *shown,
            f"{more[0]:+.2f} [{more[1]:+.2f}, {more[2]:+.2f}]" if more else "",
            f"{played['finding'] or ''} {said}".strip(),
        )


def show(report: dict[str, Any]) -> None:
    """Prints the table, then the gate's figures, then the cheats that pay and their remedies."""
    games = f"{report['honest']['games']} games each, margin {report['margin']:g}"
    print(f"who is paid what ({report['world']}, {games})\n")
    print(pd.DataFrame(rows(report), columns=COLUMNS).to_string(index=False) + "\n")
    gate = report["gate"]
    if gate["precision"] is not None:
        recall = "" if gate["recall"] is None else f", recall {gate['recall']:.3f}"
        print(f"the gate: precision {gate['precision']:.3f}{recall}")
    for cheat in report["cheats"]:
        if cheat["finding"] in TOLD:
            verdict = TOLD[cheat["finding"]]
            print(f"{cheat['name']} {verdict}: {cheat['about']} Closed by: {cheat['closed_by']}.")
        elif cheat["finding"] == Finding.NO_RESULT:
            void = f"{cheat['void']} of {cheat['games']} games are void"
            print(f"{cheat['name']}: {void}, so nothing is known")
