"""``ssp report`` and ``ssp plot``: the page's contents, arms, curves, and what is refused."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from small_runs import GAMES, HOSTILE, make_run

from ssp_env.cli import main
from ssp_env.replay import read_games
from ssp_experiments.report import curves
from ssp_experiments.report.page import report as report_command
from ssp_experiments.report.runs import arms_of, open_runs


def held(path: Path) -> dict[str, Any]:
    """The data of a page, by the ids of its elements."""
    found = re.findall(
        r'<script type="text/plain" id="(\w+)">([^<]*)</script>', path.read_text("utf-8")
    )
    return {name: json.loads(zlib.decompress(base64.b64decode(text))) for name, text in found}


def report(*runs: str | Path, out: Path | None = None, tokens: bool = False) -> None:
    named = None if out is None else str(out)
    assert report_command([*map(str, runs)], out=named, tokens=tokens) == 0


def test_a_page_holds_every_game_with_its_tokens(page: Path, two_runs: list[str]) -> None:
    data = held(page)
    assert [run["key"] for run in data["data"]["runs"]] == ["seed0", "seed1"]
    saved = [game.record for game in read_games(Path(two_runs[1]) / "games" / "step_000002.jsonl")]

    row = data["index_1"]["2"][0]
    assert (row["slot"], row["outcome"], row["hops"]) == (0, saved[0].outcome, saved[0].hops)
    assert (row["answer"], row["judged"]) == (saved[0].answer, len(saved[0].attempts))
    right = sum(bool(a.verdict and a.verdict.correct) for a in saved[0].attempts)
    assert row["right"] == right > 0

    games = data["step_2_1"]
    assert len(games) == GAMES
    for record in saved:
        text = unescape(re.sub(r"<[^>]*>", "", games[str(record.slot)]))
        for play in record.trajectories:
            assert all(search.query in text for search in play.searches)
        marked = re.findall(r'<span class="own d\d" title="id (\d+); loss', games[str(record.slot)])
        assert [*map(int, marked)] == [id_ for play in record.trajectories for id_ in play.own]


def test_the_same_runs_give_the_same_page(
    two_runs: list[str], page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(*two_runs, out=tmp_path / "again.html", tokens=True)
    assert (tmp_path / "again.html").read_bytes() == page.read_bytes()
    monkeypatch.chdir(tmp_path)
    report(two_runs[0])
    assert "loss mask" not in str(held(tmp_path / "report-seed0.html"))


def test_a_text_of_a_game_never_becomes_a_part_of_the_page(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "hacked" not in text
    game = held(page)["step_1_0"]["2"]
    assert HOSTILE in unescape(game)
    assert "<script" not in game
    assert "<img" not in game
    assert text.count("<script>") == 1
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "unsafe" not in policy[1]
    assert "default-src &#39;none&#39;" in policy[1]


# -- arms and tables ---------------------------------------------------------------------------


def configure(run: Any, **settings: Any) -> str:
    """Writes other settings into a run; its path."""
    values = run.read_config()
    for name, value in settings.items():
        section, _, last = name.rpartition("__")
        (values[section] if section else values)[last] = value
    run.config.write_text(json.dumps(values))
    return str(run.path)


def test_arms_are_runs_that_differ_in_their_seed_and_named_by_what_differs(tmp_path: Path) -> None:
    def made(name: str, seed: int, **settings: Any) -> str:
        return configure(make_run(tmp_path / name, steps=0), seed=seed, **settings)

    plain = [made("a-seed0", 0), made("a-seed1", 1, compute__env_runners=2)]
    silent = [made(f"b-seed{seed}", seed, game__noise_documents=0) for seed in (0, 1)]
    arms = arms_of(open_runs([*plain, *silent, made("c", 0, game__noise_documents=9)]))
    assert [arm.runs for arm in arms] == [[0, 1], [2, 3], [4]]
    assert [arm.name for arm in arms][1:] == ["noise_documents=0 · 2 seeds", "noise_documents=9"]

    assert [arm.name for arm in arms_of(open_runs(plain))] == ["a · 2 seeds"]
    # Two sets of runs under one command, such as before and after a change of the code.
    again = [made(f"again{seed}", seed) for seed in (0, 1)]
    arms = arms_of(open_runs([*plain, *again]))
    assert [(arm.name, arm.runs) for arm in arms] == [
        ("a · 2 seeds", [0, 1]),
        ("again · 2 seeds", [2, 3]),
    ]


# -- ssp plot ----------------------------------------------------------------------------------


def test_plot_draws_a_line_per_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn: list[Any] = []
    save = curves.save_figure
    monkeypatch.setattr(curves, "save_figure", lambda *given: drawn.append(given) or save(*given))
    paths = []
    for place, last in enumerate((4, 4, 3, 2)):
        run = make_run(tmp_path / f"a-seed{place}", steps=0)
        for step in range(1, last + 1):
            run.append_metrics({"step": step, "solver_reward": place / 4, "valid_rate": None})
        paths.append(configure(run, seed=place, steps=2 if last == 2 else 4))
    out = tmp_path / "plot.png"
    assert main(["plot", *paths, "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    assert "4 runs, 2 lines" in capsys.readouterr().out
    ((figure, _),) = drawn
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["steps=4 · 3 seeds", "steps=2"]
    titles = [axis.get_title() for axis in figure.axes]
    assert titles[0] == "Unseen questions: 1 hop"
    assert titles[4:] == ["Unseen questions: mean", "What each role is paid: solver"]
    lines = [(line.get_xdata().tolist(), line.get_ydata()[-1]) for line in figure.axes[5].lines]
    assert lines == [([1, 2, 3], 0.25), ([1, 2], 0.75)]
    assert len(figure.axes[5].collections) == 1, "the interval over three seeds"

    assert main(["plot", paths[0], "--out", str(tmp_path / "plot.foo")]) == 2
    assert "plot.foo cannot be written" in capsys.readouterr().err
    assert not [*tmp_path.glob("*.foo*")]
