"""``ssp judge``: its figures, and how it refuses files that hold no pairs."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from ssp_env import cli

GOOD: dict[str, Any] = {
    "question": "Who?",
    "answers": ["George Smith"],
    "prediction": "George P. Smith",
    "right": True,
}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("judge", "ssp_env.commands.judge:judge", cli.GROUP)
    monkeypatch.setattr(cli, "entry_points", lambda group: [point])


def written(path: Path, *rows: object) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    """Three pairs: exact match fails the first, passes the second, which is wrong."""
    return written(
        tmp_path / "pairs.jsonl",
        GOOD,
        {**GOOD, "answers": ["3.5"], "prediction": "35", "right": False},
        {**GOOD, "prediction": "George Smith"},
    )


def test_figures_and_errors_as_json(pairs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["judge", pairs, "--judge", "exact", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {name: told[name] for name in ("judge", "pairs", "right", "failed")} == {
        "judge": "exact",
        "pairs": 3,
        "right": 2,
        "failed": [],
    }
    assert (told["precision"], told["recall"]) == (0.5, 0.5)
    assert told["accuracy"] == pytest.approx(1 / 3)
    assert [(pair["line"], pair["prediction"], pair["judged"]) for pair in told["wrong"]] == [
        (1, "George P. Smith", False),
        (2, "35", True),
    ]


def test_figures_for_people(pairs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["judge", pairs, "--judge", "exact"]) == 0
    assert "line 2: passes, though wrong: '35' for ['3.5']" in capsys.readouterr().out


def test_a_line_that_is_no_pair_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "pairs.jsonl", GOOD, {**GOOD, "right": "yes"})
    assert cli.main(["judge", path]) == 2
    assert f"{path}:2: field 'right'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["missing.jsonl"], "missing.jsonl"),
        (["/dev/null"], "holds no pair"),
        (["{pairs}", "--judge", "exakt"], "exact"),
        (["{pairs}", "--judge", "openai"], "needs --url and --model"),
        (["{pairs}", "--model", "m"], "go with --judge openai"),
    ],
)
def test_mistakes(
    arguments: list[str], complaint: str, pairs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["judge", *(word.format(pairs=pairs) for word in arguments)]) == 2
    assert complaint in capsys.readouterr().err


def test_an_outage_leaves_pairs_out(
    pairs: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens on that port: no verdict, no figure, and another exit status."""
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.001)
    address = "http://127.0.0.1:9/v1"
    command = ["judge", pairs, "--judge", "openai", "--url", address, "--model", "m", "--json"]
    assert cli.main(command) == 1
    told = json.loads(capsys.readouterr().out)
    assert len(told["failed"]) == 3
    assert (told["precision"], told["accuracy"], told["wrong"]) == (None, None, [])
