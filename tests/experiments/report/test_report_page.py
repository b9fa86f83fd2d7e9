"""``ssp report``: the page's contents, arms, curves, pictures; ``ssp view``: the server's
answers while a run goes on."""

from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from html import unescape
from http.client import HTTPConnection
from itertools import compress
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from small_runs import GAMES, HOSTILE, add_step, make_run

from ssp_env.cli import main
from ssp_env.replay import read_games
from ssp_experiments.commands.report import report as report_command
from ssp_experiments.config import make_config
from ssp_experiments.report import curves
from ssp_experiments.report.page import PARTS, row
from ssp_experiments.report.runs import Arm, arms_of, open_runs
from ssp_experiments.report.server import Viewer
from ssp_experiments.run.rundir import RunDirectory


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

    shown = data["index_1"]["2"][0]
    assert (shown["index"], shown["outcome"], shown["hops"]) == (0, saved[0].outcome, saved[0].hops)
    assert (shown["answer"], shown["judged"]) == (saved[0].answer, len(saved[0].attempts))
    right = sum(bool(a.verdict and a.verdict.correct) for a in saved[0].attempts)
    assert shown["right"] == right > 0

    games = data["step_2_1"]
    assert len(games) == GAMES
    for record in saved:
        text = unescape(re.sub(r"<[^>]*>", "", games[str(record.index)]))
        for play in record.trajectories:
            assert all(search.query in text for search in play.searches)
        marked = re.findall(
            r'<span class="own d\d" title="id (\d+); loss', games[str(record.index)]
        )
        assert [*map(int, marked)] == [
            id_ for play in record.trajectories for id_ in compress(play.ids, play.mask)
        ]


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


def configure(run: RunDirectory, **settings: Any) -> str:
    """Writes other settings into a run; its path."""
    changes = {name.replace("__", "."): value for name, value in settings.items()}
    run.write_config(make_config(run.read_config(), changes))
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


def test_runs_of_two_worlds_share_a_page(tmp_path: Path) -> None:
    mini, wiki = (make_run(tmp_path / name, steps=0) for name in ("mini", "wiki"))
    (line,) = wiki.read_metrics()
    wiki.metrics.unlink()
    names = ("accuracy", "interval", "questions")
    wiki.append_metrics({**line, **{name: {"popqa": line[name]["1"]} for name in names}})
    out = tmp_path / "page.html"
    assert main(["report", str(mini.path), str(wiki.path), "--out", str(out)]) == 0
    titles = {chart["title"] for chart in held(out)["data"]["charts"]}
    assert {"Unseen questions: popqa", "Unseen questions: 1 hop"} <= titles


# -- pictures ----------------------------------------------------------------------------------


def test_a_picture_has_a_line_per_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    save = curves.save_figure
    monkeypatch.setattr(curves, "save_figure", lambda *given: drawn.append(given) or save(*given))
    paths = []
    for place, last in enumerate((4, 4, 3, 2)):
        run = make_run(tmp_path / f"a-seed{place}", steps=0)
        for step in range(1, last + 1):
            run.append_metrics({"step": step, "solver_reward": place / 4, "valid_rate": None})
        paths.append(configure(run, seed=place, steps=2 if last == 2 else 4))
    out = tmp_path / "picture.png"
    runs = open_runs(paths)
    names = ["accuracy.1", "accuracy.2", "accuracy.3", "accuracy.4", "accuracy.mean"]
    curves.draw_runs(out, runs, arms_of(runs), [*names, "solver_reward"], 5)
    assert out.read_bytes().startswith(b"\x89PNG")
    ((figure, _),) = drawn
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["steps=4 · 3 seeds", "steps=2"]
    lines = [(line.get_xdata().tolist(), line.get_ydata()[-1]) for line in figure.axes[5].lines]
    assert lines == [([1, 2, 3], 0.25), ([1, 2], 0.75)]
    assert len(figure.axes[5].collections) == 1, "the interval over three seeds"


def test_a_mean_has_an_interval_from_three_runs_on_within_what_the_figure_can_be() -> None:
    runs = [pd.DataFrame({"y": [y, y]}, index=[1, 2]) for y in (0.0, 0.0, 0.9)]
    assert [*curves.mean_curve(runs[1:], True).columns] == ["y"]
    (low, high) = curves.mean_curve(runs, True)[["low", "high"]].iloc[0]
    assert (low, high) == (0.0, 1.0)
    low, high = curves.mean_curve(runs, False)[["low", "high"]].iloc[0]
    assert low < 0
    assert high > 1


def test_titles_say_a_figure_once() -> None:
    names = ("learner_proposer_entropy", "learner_grad_norm", "learner_kl", "learner_solver_kl")
    found = [curves.titled(name) for name in (*names, "invalid_spoiler", "accuracy.3")]
    assert found == [
        *("Proposer entropy", "Gradient norm", "KL", "Solver KL"),
        *("Why proposals fail: spoiler", "Unseen questions: 3 hops"),
    ]


def test_no_two_curves_of_a_page_look_alike() -> None:
    script = (PARTS / "charts.js").read_text()
    dashes = len(json.loads(re.search(r"DASHES = (.*);", script)[1]))  # type: ignore[index]
    colours = int(re.search(r"COLOURS = (\d+)", script)[1])  # type: ignore[index]
    runs = [SimpleNamespace() for _ in range(30)]
    apart = curves.looks_of(runs, [Arm(str(i), [i]) for i in range(30)])  # type: ignore[arg-type]
    seeds = curves.looks_of(runs, [Arm("a", [*range(5)]), Arm("b", [*range(5, 30)])])[:5]  # type: ignore[arg-type]
    for looks in (apart, seeds):
        assert len({(one["colour"] % colours, one["dash"] % dashes) for one in looks}) == len(looks)


def test_a_reason_that_one_run_never_met_counts_as_0_there(tmp_path: Path) -> None:
    paths = []
    for seed, reasons in enumerate(({"invalid_spoiler": 0.5}, {})):
        run = make_run(tmp_path / f"a-seed{seed}", steps=0)
        run.append_metrics({"step": 1, "valid_rate": 0.25, **reasons})
        paths.append(configure(run, seed=seed))
    runs = open_runs(paths)
    (chart,) = (
        c for c in curves.chart_data(runs, arms_of(runs)) if c["title"].startswith("Why proposals")
    )
    assert [each["y"] for each in chart["series"]] == [[0.5], [0.0]]
    assert chart["means"][0]["y"] == [0.25]
    assert [(each["colour"], each["dash"]) for each in chart["series"]] == [(0, 0), (0, 1)]


# -- ssp view ----------------------------------------------------------------------------------


def ask(port: int, path: str, **headers: str) -> tuple[int, Any]:
    """Status and answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Accept-Encoding": "gzip", **headers})
    reply = connection.getresponse()
    text = gzip.decompress(reply.read()).decode()
    connection.request("GET", path, headers=headers)
    assert connection.getresponse().read().decode() == text
    connection.close()
    is_json = reply.headers["Content-Type"].startswith("application/json")
    return reply.status, json.loads(text) if is_json else text


def test_runs_of_a_sweep_are_followed_while_they_go_on(tmp_path: Path) -> None:
    run = make_run(tmp_path / "trials" / "run", steps=1, finished=False)
    with Viewer([str(tmp_path)], "127.0.0.1", 0) as server:
        Thread(target=server.serve_forever, args=(0.02,)).start()
        try:
            check_followed(run, server.server_port)
        finally:
            server.shutdown()


def check_followed(run: RunDirectory, port: int) -> None:
    """The answers at its first step, the second, and when it has begun anew."""
    status, page = ask(port, "/")
    assert status == 200
    assert "connect-src &#39;self&#39;" in page
    assert ask(port, "/api/state")[1]["state"].startswith("at step 1 of ")

    add_step(run, 2)
    with open(run.metrics, "a") as file:
        file.write('{"step": 3, "ga')  # a line that is being written
    _, state = ask(port, "/api/state")
    assert [step for step, _ in state["runs"][0]["steps"]] == [1, 2]
    assert state["state"].startswith("at step 2 of ")

    _, index = ask(port, "/api/index?run=0&steps=2,7")
    records = [saved.record for saved in read_games(run.games / "step_000002.jsonl")]
    assert index == {"2": [row(record) for record in records]}
    _, game = ask(port, "/api/game?run=0&step=2&index=0")
    assert records[0].question in game
    assert "loss mask 1" in game

    # Played again after a resume: another version, other rows.
    versions, before = dict(state["runs"][0]["steps"]), ask(port, "/api/index?run=0&steps=1")
    run.metrics.write_text("".join(run.metrics.read_text().splitlines(True)[:1]))
    add_step(run, 1, seed=5)
    assert dict(ask(port, "/api/state")[1]["runs"][0]["steps"])[1] != versions[1]
    assert ask(port, "/api/index?run=0&steps=1") != before

    make_run(run.path.with_name("before it in the alphabet"), steps=2)
    assert [len(run["steps"]) for run in ask(port, "/api/state")[1]["runs"]] == [2, 2]
    assert {*ask(port, "/api/index?run=1&steps=1,2")[1]} == {"1", "2"}


def test_a_benchmark_of_which_nothing_is_answered_has_its_curve(two_runs: list[str]) -> None:
    runs = open_runs([two_runs[0]])
    groups = [name for name in runs[0].figures if re.fullmatch(r"accuracy\.\d", name)]
    runs[0].figures[groups] *= 0
    (chart,) = (
        c for c in curves.chart_data(runs, arms_of(runs)) if c["title"] == "Unseen questions"
    )
    assert len([s for s in chart["series"] if s["label"] != "mean"]) == len(groups) > 0
