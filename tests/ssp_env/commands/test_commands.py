"""``ssp judge``, ``search``, ``index`` and ``serve``: what they print, serve and refuse; how the
process of a command ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from serverkit import ssp_serve

from ssp_env.cli import GROUP, main, uninstalled

ROOT = Path(__file__).parents[3]
TOKEN = "correct-horse-battery"
ROWS = [
    {
        "id": "p1",
        "title": "[bold]Danube[/bold]",
        "text": "A river \x1b[31mthrough\x00 Vienna \ud800.",
    },
    {"id": "p2", "title": "", "text": "Another river."},
    {"id": "p3", "contents": '"Hill"\nNot wet at all.\nBut green.'},
]

Words = Callable[..., str]


@pytest.fixture
def ssp(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Words:
    """What a command prints, as running text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SSP_SERVE_TOKEN", raising=False)
    monkeypatch.setenv("COLUMNS", "400")  # no path is broken into two words

    def run(*arguments: str, status: int = 0) -> str:
        assert main(arguments) == status
        out, err = capsys.readouterr()
        assert (err.count("\n") == 1) or status == 0, err
        return " ".join((err if status else out).split())

    return run


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


@pytest.fixture
def index(corpus: str, tmp_path: Path, ssp: Words) -> str:
    directory = str(tmp_path / "i")
    assert f"{directory}/bm25: 3 passages, " in ssp("index", corpus, "--out", directory)
    return directory


def test_documents_are_printed_in_order_and_text_from_outside_is_not_obeyed(
    corpus: str, ssp: Words
) -> None:
    out = ssp("search", "river", "Vienna", "\x1b[2J [red]", "--in", corpus)
    assert f"2 from {corpus} for: river Vienna \ufffd[2J [red]" in out
    assert out.index("1. ") < out.index("p1") < out.index("2. (no title)") < out.index("p2")
    assert "[bold]Danube[/bold]" in out
    assert "\ufffd[31mthrough\ufffd Vienna \ufffd." in out
    assert not {"\x1b", "\x00"} & set(out)
    assert "2. " not in ssp("search", "river", "-k", "1", "--in", corpus)
    assert "2 from mini" in ssp("search", "capital", "--in", "mini", "-k", "2")


def test_an_index_is_searched_and_not_built_twice(index: str, corpus: str, ssp: Words) -> None:
    assert f"2 from {index}" in ssp("search", "--in", index, "river")
    assert "already complete, 3 passages" in ssp("index", corpus, "--out", index, "--kind", "bm25")
    missing = ssp("search", "--in", f"{index}/dense-flat", "river", status=2)
    assert "there is no such file, directory or world" in missing

    (Path(index) / "passages").rename(Path(index) / ".passages.unfinished")
    for command in (["search", "river"], ["serve", "--port", "0"]):
        says = ssp(*command, "--in", index, status=2)
        assert f"{index}/passages: is half built; run `ssp index` again" in says


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("search river --in mimi", "no such file, directory or world; did you mean 'mini'"),
        ("index c.jsonl --out o --query-prefix q:", "go with --encoder"),
        ("serve --host 0.0.0.0", "SSP_SERVE_TOKEN"),
        ("judge pairs.jsonl --judge exakt", "'exact'?; a judge of your own is MODULE:NAME"),
        ("judge pairs.jsonl --judge json:loads", "judge = 'json:loads': your code raised"),
        ("judge pairs.jsonl --judge openai", "needs --url and --model"),
    ],
)
def test_mistakes(command: str, says: str, ssp: Words) -> None:
    assert says in ssp(*command.split(), status=2)


def test_an_index_is_served_for_a_token_until_ctrl_c(
    index: str, tmp_path: Path, ssp: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--in", index, "--host", "0.0.0.0"]
    monkeypatch.setenv("SSP_SERVE_TOKEN", TOKEN)
    with ssp_serve(tmp_path / "log", *options) as served:
        assert served.said.startswith(f"ssp serve: ready at http://0.0.0.0:{served.port}, ")
        assert served.retrieve("wet").status_code == 401
        right = {"Authorization": f"Bearer {TOKEN}"}
        result = served.retrieve("river", "wet", headers=right).json()["result"]
        assert [[found["id"] for found in ranking] for ranking in result] == [["p2", "p1"], ["p3"]]
        assert result[1][0] == ROWS[2]

        out = ssp("search", "wet", "--in", served.url, "--token-env", "SSP_SERVE_TOKEN")
        assert f"1 from {served.url} for: wet 1. Hill" in out
        port = str(served.port)
        assert "in use" in ssp("serve", "--port", port, *options, status=2)

        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(60) == 130
        said = served.said + (tmp_path / "log").read_text()
        assert TOKEN not in said
        assert "Traceback" not in said


GOOD = {"question": "Who?", "answers": ["George Smith"], "prediction": "George P. Smith"}


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    """Three pairs: exact match fails the first, passes the second, which is wrong."""
    wrong = {**GOOD, "answers": ["3.5"], "prediction": "35", "right": False}
    rows = [{**GOOD, "right": True}, wrong, {**GOOD, "prediction": "George Smith", "right": True}]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(tmp_path / "pairs.jsonl")


def test_figures_of_a_judge_and_its_errors(pairs: str, ssp: Words) -> None:
    told = json.loads(ssp("judge", pairs, "--judge", "exact", "--json"))
    assert (told["judge"], told["pairs"], told["right"], told["failed"]) == ("exact", 3, 2, [])
    assert (told["precision"], told["recall"]) == (0.5, 0.5)
    assert told["accuracy"] == pytest.approx(1 / 3)
    assert [(pair["line"], pair["prediction"], pair["judged"]) for pair in told["wrong"]] == [
        (1, "George P. Smith", False),
        (2, "35", True),
    ]
    said = ssp("judge", pairs, "--judge", "exact")
    assert "line 2: passes, though wrong: '35' for ['3.5']" in said

    Path(pairs).write_text(json.dumps({**GOOD, "right": "yes"}))
    assert f"{pairs}:1: field 'right'" in ssp("judge", pairs, status=2)


JUDGE = """
class Kind:
    def judge(self, tasks):
        from ssp_env import Verdict
        return [Verdict(True, "kind") for _ in tasks]
kind = Kind()
"""


@pytest.mark.parametrize("name", ["Kind", "kind"])
def test_a_judge_of_the_user_s_is_measured(
    name: str, pairs: str, tmp_path: Path, ssp: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "kind_judge.py").write_text(JUDGE)
    said = ssp("judge", pairs, "--judge", f"kind_judge:{name}")
    assert f"kind_judge:{name} on 3 pairs, 2 of them right" in said
    assert "line 2: passes, though wrong: '35' for ['3.5'] (kind)" in said


PROGRAM = """
import atexit
import sys
import time

from ssp_env import cli


class Kept:
    def __del__(self):
        print("dismantled", file=sys.stderr)


def main():
    global kept
    kept = Kept()
    atexit.register(time.sleep, 1000)  # as a library that waits for something that never comes
    {ending}


cli.main = main
cli.script()
"""


@pytest.mark.parametrize(
    ("ending", "output", "status", "error"),
    [
        ("return 3", "/dev/null", 3, ""),
        ("raise ValueError('a bug')", "/dev/null", 1, "ValueError: a bug\n"),
        ("print('a table')", "/dev/full", 1, "No space left on device"),
    ],
)
def test_the_process_ends_with_the_command_whatever_libraries_wait_for(
    ending: str, output: str, status: int, error: str
) -> None:
    program = [sys.executable, "-c", PROGRAM.format(ending=ending)]
    with open(output, "w") as stdout:
        ended = subprocess.run(program, stdout=stdout, stderr=-1, text=True, timeout=300)
    assert ended.returncode == status
    assert error in ended.stderr
    assert "dismantled" not in ended.stderr
    assert bool(ended.stderr) == bool(error)


def test_a_checkout_that_is_not_installed_has_all_commands(
    ssp: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = {(point.name, point.value) for point in entry_points(group=GROUP)}
    assert {(point.name, point.value) for point in uninstalled(ROOT)} == installed
    monkeypatch.setattr("ssp_env.cli.entry_points", lambda group: [])
    assert "Trains a policy by self-play" in ssp("train", "--help")
    assert uninstalled(ROOT / "ssp_env") == []
