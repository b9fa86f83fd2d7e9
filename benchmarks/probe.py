"""The tables of ``ssp probe`` on the presets' defaults: who is paid what by cheating.

``wiki-mini`` and ``wiki-sentences`` are the worlds by their own rules; ``paper-7b-gate`` is the
preset with ``closed_book``.
``paper-7b`` is verified and judged by a scripted model behind an API, once by a careful one and
once by one that obeys whatever it reads. Each table is a Markdown file in ``--out``; the figures
follow from seed, settings and commit, whatever the machine.
"""

from __future__ import annotations

from contextlib import nullcontext

import pandas as pd
from tests.scripted_model import ChatServer, careful, obedient

from benchmarks.harness import headline, origin, parser
from ssp_env.probe import CHEATS, find_cheat, probe
from ssp_experiments.commands.probe import COLUMNS, as_json, make_rules, rows
from ssp_experiments.config import load_preset, make_config

TABLES = {
    "tiny": ("tiny", None),
    "wiki-mini": (None, None),
    "wiki-sentences": ("wiki-small", None),
    "wiki": ("wiki", None),
    "paper-7b": ("paper-7b", careful),
    "paper-7b-gate": ("paper-7b", careful),
    "paper-7b-obedient": ("paper-7b", obedient),
}
"""Preset of each table, and the model behind its API."""


def main() -> None:
    """Makes the tables."""
    options = parser(__doc__)
    options.add_argument("--games", type=int, default=200)
    options.add_argument("--only", choices=TABLES, nargs="+", default=list(TABLES))
    options.add_argument("--cheats", choices=CHEATS, nargs="+", default=list(CHEATS))
    settings = options.parse_args()

    settings.out.mkdir(parents=True, exist_ok=True)
    begun = headline(origin())  # the commit that was loaded, whatever is checked out by the end
    for name in settings.only:
        preset, script = TABLES[name]
        start = {"world": name} if preset is None else load_preset(preset)
        values = {**start, "seed": settings.seed}
        if name.endswith("-gate"):
            values["game"] = {**values["game"], "closed_book": True}
        with ChatServer(script) if script is not None else nullcontext() as server:
            if server is not None:
                values["openai"] = {"model": "scripted", "base_url": server.url}
                values |= {"judge": "openai", "game": {**values["game"], "verifier": "openai"}}
            config = make_config(values)
            rules, cheats = make_rules(config), [find_cheat(cheat) for cheat in settings.cheats]
            report = probe(rules, cheats, games=settings.games, seed=settings.seed)

        cells = pd.DataFrame(rows(as_json(report, config, rules)), columns=COLUMNS)
        table = cells.to_markdown(index=False, disable_numparse=True).replace(" pays", " **pays**")
        gate = report.gate
        page = (
            f"# Who is paid what: {name}\n\n{settings.games} games per cheat, margin "
            f"{report.margin:g}, seed {settings.seed}; {begun}\n\n{table}\n"
        )
        if gate.precision is not None:
            recall = "" if gate.recall is None else f", recall {gate.recall:.3f}"
            read = gate.accepted_sound + gate.accepted_unsound
            page += f"\nThe gate: precision {gate.precision:.3f}{recall}, of "
            page += f"{read} accepted questions that the world can read.\n"
        (settings.out / f"{name}.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
