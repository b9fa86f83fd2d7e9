"""The tables of ``ssp probe`` on the presets' defaults: who is paid what by cheating.

``paper-7b`` is verified and judged by a scripted model behind an API, once by a careful one and
once by one that obeys whatever it reads. Each table is a Markdown file in ``--out``; the figures
follow from seed, settings and commit, whatever the machine.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from tests.scripted_model import ChatServer, careful, obedient

from benchmarks.harness import headline, origin, parser
from ssp_env.testing.hacks import CHEATS, probe
from ssp_experiments.commands.probe import COLUMNS, as_json, make_rules, rows
from ssp_experiments.config import load_preset, make_config

TABLES = {
    "tiny": ("tiny", None),
    "wiki": ("wiki", None),
    "paper-7b": ("paper-7b", careful),
    "paper-7b-obedient": ("paper-7b", obedient),
}
"""Preset of each table, and the model behind its API."""


def main() -> None:
    """Makes the tables."""
    options = parser(__doc__)
    options.add_argument("--games", type=int, default=200)
    options.add_argument("--only", choices=TABLES, nargs="+", default=list(TABLES))
    settings = options.parse_args()

    settings.out.mkdir(parents=True, exist_ok=True)
    for name in settings.only:
        result = measure(name, settings.games, settings.seed)
        (settings.out / f"{name}.md").write_text(markdown(name, result), encoding="utf-8")


def measure(name: str, games: int, seed: int) -> dict[str, Any]:
    """One table, with where it comes from."""
    preset, script = TABLES[name]
    values = {**load_preset(preset), "seed": seed}

    begun = origin()  # the commit that was loaded, whatever is checked out by the end
    with ChatServer(script) if script is not None else nullcontext() as server:
        if server is not None:
            values["openai"] = {"model": "scripted", "base_url": server.url}
            values |= {"judge": "openai", "game": {**values["game"], "verifier": "openai"}}
        config = make_config(values)
        rules = make_rules(config)
        report = probe(rules, [kind() for kind in CHEATS.values()], games=games, seed=seed)
    return {**as_json(report, config, rules), **begun, "games": games}


def markdown(name: str, result: dict[str, Any]) -> str:
    """The table as people read it."""
    table = [COLUMNS, ["---"] * len(COLUMNS), *rows(result)]
    lines = [
        f"# Who is paid what: {name}",
        "",
        f"{result['games']} games per cheat, margin {result['margin']:g}, seed {result['seed']}; "
        f"{headline(result)}",
        "",
        *(f"| {' | '.join(cells)} |".replace("| pays ", "| **pays** ") for cells in table),
    ]
    gate = result["gate"]
    if gate["precision"] is not None:
        lines += ["", f"The gate: precision {gate['precision']:.3f}, recall {gate['recall']:.3f}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
