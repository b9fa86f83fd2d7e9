"""docs/run_directory.md explains every figure and field that a run writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

from runs import games, metrics

ROOT = Path(__file__).resolve().parents[3]


def documented(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_0-9…]+)`", text))


def test_every_figure_of_a_run_is_documented(whole_run: tuple[Path, str]) -> None:
    names = documented((ROOT / "docs" / "run_directory.md").read_text(encoding="utf-8"))
    used = {name for line in metrics(whole_run[0]) for name in line}
    used |= {name for line in metrics(whole_run[0]) for name in line["seconds"]}
    hops = {f"share_{hops}hop" for hops in range(1, 5)}
    unknown = {name for name in used - names - hops if not name.startswith("invalid_")}
    assert not unknown


def test_every_field_of_a_file_of_games_is_documented(whole_run: tuple[Path, str]) -> None:
    names = documented((ROOT / "docs" / "run_directory.md").read_text(encoding="utf-8"))
    text = next(iter(games(whole_run[0]).values()))
    header, *lines = map(json.loads, text.splitlines())
    parts = [header, header["parts"], *lines, *(line["start"] for line in lines)]
    for line in lines:
        parts += [*line["noise"], *(item["document"] for item in line["noise"])]
        for played in line["trajectories"]:
            parts += [played, *played["segments"], *played["searches"]]
    assert not {name for part in parts for name in part} - names
