"""``ssp report``: what the page holds, how large it is, and what it refuses."""

from __future__ import annotations

import base64
import json
import re
import zlib
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from small_runs import GAMES, HOSTILE, make_run

from experiments.commands import report
from experiments.commands.report import default_name
from experiments.report import page as page_module
from experiments.report.arms import arm_names, arms
from experiments.report.collect import described, open_runs
from experiments.report.figures import charts, spoken
from experiments.report.page import write_page
from experiments.report.tables import mean_interval
from ssp_env.errors import DataError, RunError, SSPError
from ssp_env.replay import read_games

ROOT = Path(__file__).parents[3]


def unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text)))


def held(path: Path) -> dict[str, Any]:
    """The data of a page, by the ids of its elements."""
    found = re.findall(
        r'<script type="text/plain" id="(\w+)">([^<]*)</script>', path.read_text("utf-8")
    )
    return {name: unpacked(text) for name, text in found}


def test_a_page_holds_every_game_with_its_tokens(page: Path, two_runs: list[str]) -> None:
    data = held(page)
    assert [run["key"] for run in data["data"]["runs"]] == ["seed0", "seed1"]
    saved = list(read_games(Path(two_runs[1]) / "games" / "step_000002.jsonl"))

    row = dict(zip(data["data"]["row"], data["index_1"]["2"][0], strict=True))
    first = saved[0].record
    assert (row["slot"], row["outcome"], row["hops"]) == (0, first.outcome, first.hops)
    assert (row["answer"], row["judged"]) == (first.answer, len(first.attempts))
    assert row["right"] == sum(bool(a.verdict and a.verdict.correct) for a in first.attempts) > 0

    chunk = data["step_2_1"]
    assert [game["question"] for game in chunk["games"]] == [s.record.question for s in saved]
    own = chunk["games"][0]["trajectories"][0]["segments"][1]
    assert len(own["ids"]) == len(own["logprobs"]) == own["tokens"]
    spoken = "".join(chunk["pieces"][str(token)] for token in own["ids"][:2])
    assert spoken.strip().startswith("<")


def test_without_tokens_none_is_in_the_page(two_runs: list[str], tmp_path: Path) -> None:
    write_page(open_runs(two_runs[:1]), tmp_path / "a.html", tokens=False)
    text = json.dumps(held(tmp_path / "a.html"))
    assert '"ids"' not in text
    assert '"logprobs"' not in text


def test_the_same_runs_give_the_same_page(two_runs: list[str], page: Path, tmp_path: Path) -> None:
    write_page(open_runs(two_runs), tmp_path / "again.html", tokens=True)
    assert (tmp_path / "again.html").read_bytes() == page.read_bytes()


def test_a_text_of_a_game_never_becomes_a_part_of_the_page(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "hacked" not in text
    assert HOSTILE in json.dumps(held(page)["step_1_0"]).replace('\\"', '"')
    assert text.count("<script>") == 1
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "unsafe" not in policy[1]
    assert "default-src 'none'" in policy[1]


def test_games_that_do_not_fit_lie_beside_the_page(
    two_runs: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "report.html"
    monkeypatch.setattr(page_module, "LARGEST", 60_000)
    report.run(Namespace(runs=two_runs, out=str(out), tokens=True))
    folder = tmp_path / "report_games"
    assert "keep the two together" in capsys.readouterr().out
    names = {"index_0", "index_1"} | {f"step_{s}_{r}" for s in (1, 2) for r in (0, 1)}
    assert {file.stem for file in folder.iterdir()} == names
    assert held(out)["data"]["beside"] == "report_games"
    assert held(out).keys() == {"data"}
    code = re.fullmatch(
        r'ssp\.arrived\("step_1_0", "([^"]*)"\);\n', (folder / "step_1_0.js").read_text()
    )
    assert code is not None
    assert len(unpacked(code[1])["games"]) == GAMES

    # A smaller page takes the folder away; one that it did not write is never touched.
    monkeypatch.undo()
    write_page(open_runs(two_runs), out, tokens=False)
    assert not folder.exists()
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="not a report's folder"):
        write_page(open_runs(two_runs), out, tokens=False)
    assert (folder / "mine.txt").read_text() == "mine"


def test_runs_that_differ_in_their_seed_get_a_mean_with_an_interval(two_runs: list[str]) -> None:
    data = described(open_runs(two_runs), tokens=False, live=False)
    assert data["arms"] == [[0, 1]]
    (mean,) = data["tables"]["accuracy"]["arms"]
    assert mean["values"]["1"] == pytest.approx([0.2, 0.2, 0.2])
    assert [row["name"] for row in data["settings"] if row["differ"]] == ["seed"]
    assert mean_interval([0.4, 0.6, 0.8]) == pytest.approx((0.6, 0.6 - 0.4968, 0.6 + 0.4968), 1e-3)
    assert mean_interval([0.4]) is None


def test_runs_of_other_settings_or_of_the_same_seed_are_not_averaged(
    two_runs: list[str], tmp_path: Path
) -> None:
    longer, again = make_run(tmp_path / "longer", seed=1, steps=3), make_run(tmp_path / "again")
    data = described(
        open_runs([*two_runs, str(longer.path), str(again.path)]), tokens=False, live=False
    )
    assert data["arms"] == [[0, 1], [2], [3]]
    assert [mean["runs"] for mean in data["tables"]["accuracy"]["arms"]] == [2]

    base = {"seed": 0, "steps": 4, "game.attempts": 5, "compute.env_runners": 0}
    for name, apart in (
        ("record_tokens", True),
        ("health.patience", True),
        ("game.attempts", True),
        ("compute.env_runners", False),
    ):
        other = base | {"seed": 1, name: 1}
        assert (len(arms([base, other])) == 2) == apart, name
    # Two sets of runs under one command, such as before and after a change of the code.
    assert arms([base | {"seed": seed} for seed in (0, 1, 0, 1)]) == [[0, 1], [2, 3]]


def test_a_mean_over_runs_is_of_steps_that_all_of_them_have(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"seed{seed}", seed, steps=3) for seed in (0, 1)]
    lines = runs[1].metrics.read_text().splitlines(keepends=True)
    runs[1].metrics.write_text("".join(lines[:2]))
    tables = described(open_runs([str(run.path) for run in runs]), tokens=False, live=True)[
        "tables"
    ]
    (mean,) = tables["accuracy"]["arms"]
    assert mean["step"] == 1
    assert mean["values"]["1"] == pytest.approx([0.1, 0.1, 0.1])
    first = [json.loads(run.metrics.read_text().splitlines()[1]) for run in runs]
    (arm,) = tables["last"]["arms"]
    assert arm["values"]["solver_tokens"] == pytest.approx(
        mean_interval([line["solver_tokens"] for line in first])
    )


def test_arms_are_called_what_their_runs_share() -> None:
    keys = ["self-play-seed0", "self-play-seed1", "fixed-seed0"]
    assert arm_names([[0, 1], [2]], keys) == ["self-play", "fixed-seed0"]
    assert arm_names([[0, 1]], ["seed0", "seed1"]) == ["seed0, seed1"]
    assert arm_names([[0, 1], [2, 3]], ["a-1", "a-2", "a-3", "a-4"]) == ["a-1, a-2", "a-3, a-4"]


def test_a_reason_that_nothing_failed_for_has_share_0_there(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert lines[1].pop("invalid_format") == lines[2]["invalid_format"] == 0.2
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))

    data = described(open_runs([str(run.path)]), tokens=False, live=True)
    # Before the first step, nothing is proposed at all.
    assert data["runs"][0]["figures"]["invalid_format"] == [None, 0.0, 0.2]
    assert data["tables"]["last"]["runs"][0]["invalid_format"] == pytest.approx(0.1)


def test_one_hop_is_no_plural() -> None:
    assert [spoken(f"share_{hops}hop") for hops in (1, 2)] == ["1 hop", "2 hops"]


def test_every_documented_figure_is_drawn_once_and_a_new_one_too() -> None:
    text = (ROOT / "docs" / "run_directory.md").read_text(encoding="utf-8")
    table = text[text.index("## A line of") : text.index("## A file of games")]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert len(documented) > 25

    figures = [*dict.fromkeys(documented), "seconds.engine", "learner_brand_new", "something_else"]
    dealt = charts(figures)
    assert sorted(name for chart in dealt for name in chart.figures) == sorted(figures)
    place = {name: (chart.group, chart.title) for chart in dealt for name in chart.figures}
    assert place["learner_brand_new"] == ("Health of learning", "Brand new")
    assert place["something_else"] == ("Other figures", "Something else")
    assert place["proposer_reward"] == place["solver_reward"]
    assert place["learner_grad_norm"][0] == place["learner_kl"][0] == "Health of learning"


# -- bad input ---------------------------------------------------------------------------------


def refused(run: Path, says: str, kind: type[SSPError] = RunError) -> None:
    """The page is refused with these words, and nothing is written."""
    out = run.parent / "page.html"
    with pytest.raises(kind, match=says):
        report.run(Namespace(runs=[str(run)], out=str(out), tokens=False))
    assert [path.name for path in run.parent.iterdir() if path != run] == []


def test_incomplete_runs_are_refused_with_the_place(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", steps=2)
    whole = run.metrics.read_text()
    lines = whole.splitlines(keepends=True)
    run.metrics.write_text("".join(lines[:2]) + lines[2][:40])
    refused(run.path, r"metrics\.jsonl:3: cut off")
    run.metrics.write_text(lines[0] + lines[2])
    refused(run.path, r"metrics\.jsonl:2: step 2 where step 1 is due")
    for other in ({"interval": {}}, {"accuracy": [0.5]}, {"accuracy": {"1": "high"}}):
        first = {**json.loads(lines[0]), "accuracy": {"1": 0.5}, "interval": {"1": [0.4, 0.6]}}
        run.metrics.write_text(json.dumps(first | other) + "\n" + "".join(lines[1:]))
        refused(run.path, r"metrics\.jsonl:1: .*another version")
    run.metrics.unlink()
    refused(run.path, "holds no metrics")
    run.metrics.write_text(whole)

    run.summary.write_text("{")
    refused(run.path, r"summary\.json: not JSON")
    run.summary.unlink()
    games = run.games / "step_000002.jsonl"
    text = games.read_text(encoding="utf-8")
    games.write_text(text.replace('"format":4', '"format":3', 1), encoding="utf-8")
    refused(run.path, r"step_000002\.jsonl:1: .*version that wrote it", DataError)
    games.write_text(text[:-40], encoding="utf-8")
    refused(run.path, r"step_000002\.jsonl:6: cut off", DataError)
    games.write_text(text, encoding="utf-8")
    file = run.games / "step_000002.jsonl"
    file.write_text(file.read_text().replace('"outcome":"', '"outcome":"splendid ', 1))
    refused(run.path, r"step_000002\.jsonl:2: field 'outcome'", DataError)
    run.config.unlink()
    refused(run.path, "is no run directory: it holds no config.yaml")
    with pytest.raises(RunError, match="is no run directory"):
        open_runs([str(tmp_path / "nothing")])


def test_a_page_is_named_after_its_runs_and_replaces_no_other(
    two_runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def report(*runs: str, out: str | None = None) -> None:
        report.run(Namespace(runs=[*runs], out=out, tokens=False))

    report(two_runs[0])
    report(two_runs[0])
    report(*two_runs)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "report-seed0-seed1.html",
        "report-seed0.html",
    ]
    assert default_name(["a/x", "b/y/", "z"]) == "report-x-and-2-more.html"

    other = make_run(tmp_path / "elsewhere" / "seed0", steps=1)
    before = Path("report-seed0.html").read_bytes()
    with pytest.raises(RunError, match="is a report of other runs"):
        report(str(other.path))
    assert Path("report-seed0.html").read_bytes() == before
    report(str(other.path), out="report-seed0.html")
    report("elsewhere/seed0")
    Path("report-seed0.html").write_text("<p>mine</p>")
    with pytest.raises(RunError, match="is no report"):
        report(two_runs[0])


def test_a_folder_of_runs_is_told_from_a_run(tmp_path: Path) -> None:
    make_run(tmp_path / "sweep" / "trials" / "a-seed0", steps=0)
    with pytest.raises(RunError, match=r"directory of a sweep, .* its runs, as .*trials/\* does"):
        open_runs([str(tmp_path / "sweep")])
    with pytest.raises(RunError, match=r"a folder of runs, .*/trials/\* does"):
        open_runs([str(tmp_path / "sweep" / "trials")])


def test_a_run_that_is_named_twice_is_refused(two_runs: list[str]) -> None:
    with pytest.raises(RunError, match="named twice"):
        open_runs([two_runs[0], two_runs[0]])


def test_an_impossible_output_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    for out, says in ((tmp_path, "is a directory"), (tmp_path / "a" / "b.html", "no directory")):
        with pytest.raises(SSPError, match=says):
            report.run(Namespace(runs=["nowhere"], out=str(out), tokens=False))


def test_a_run_without_games_is_shown_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", steps=0, finished=False)
    report.run(Namespace(runs=[str(run.path)], out=str(tmp_path / "page.html"), tokens=False))
    assert "holds no games" in capsys.readouterr().out
