"""``ssp search``: what it prints, and what it refuses."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path

import pytest

from ssp_env.commands.base import Command
from ssp_env.commands.search import COMMAND
from ssp_env.errors import ConfigError, DataError, UsageError

ROWS = [
    {
        "id": "p1",
        "title": "[bold]Danube[/bold]",
        "text": "A river \x1b[31mthrough\x00 Vienna \ud800.",
    },
    {"id": "p2", "title": "", "text": "Another river."},
    {"id": "p3", "title": "Hill", "text": "Not wet at all."},
]


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


def run(*argv: str) -> int:
    parser = ArgumentParser(prog="ssp search")
    COMMAND.configure(parser)
    return COMMAND.run(parser.parse_args(argv))


def test_command() -> None:
    assert isinstance(COMMAND, Command)
    assert COMMAND.name == "search"


def test_documents_are_printed_in_order(corpus: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("river", "Vienna", "--corpus", corpus) == 0
    out = capsys.readouterr().out
    assert "2 of 3 passages" in out
    assert "for: river Vienna" in " ".join(out.split())
    assert out.index("1. ") < out.index("p1") < out.index("2. (no title)") < out.index("p2")
    assert "p3" not in out


def test_text_from_outside_is_shown_and_not_obeyed(
    corpus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("danube \x1b[2J [red]", "--corpus", corpus)
    out = capsys.readouterr().out
    assert "[bold]Danube[/bold]" in out
    assert "[red]" in out
    assert "\x1b" not in out
    assert "\x00" not in out
    assert "\ufffd[31mthrough\ufffd Vienna \ufffd." in out


def test_k_limits_the_list(corpus: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("river", "-k", "1", "--corpus", corpus)
    assert "2. " not in capsys.readouterr().out


def test_nothing_found_is_said(corpus: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("zebra", "--corpus", corpus) == 0
    assert "No passage was found" in capsys.readouterr().out


def test_mini_world(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("capital", "--world", "mini", "-k", "2") == 0
    assert "2 of" in capsys.readouterr().out


@pytest.mark.parametrize("k", ["0", "-1", "2.5", "many"])
def test_bad_k(corpus: str, k: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("river", f"-k={k}", "--corpus", corpus)
    assert "whole number" in capsys.readouterr().err


def test_world_and_corpus_exclude_each_other(corpus: str) -> None:
    with pytest.raises(SystemExit):
        run("river", "--world", "mini", "--corpus", corpus)


def test_token_env_is_for_a_server(corpus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="goes with --url"):
        run("river", "--token-env", "TOKEN", "--corpus", corpus)
    monkeypatch.delenv("ABSENT_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="ABSENT_TOKEN"):
        run("river", "--url", "http://127.0.0.1:9", "--token-env", "ABSENT_TOKEN")


def test_unknown_world() -> None:
    with pytest.raises(ConfigError, match="did you mean 'mini'"):
        run("river", "--world", "mimi")


def test_missing_corpus(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        run("river", "--corpus", str(tmp_path / "absent.jsonl"))
