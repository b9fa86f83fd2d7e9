"""``ssp replay``: plays saved games again, offline, and shows where they come out another way."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from ssp_env.commands.base import Command
from ssp_env.errors import DataError, SSPError
from ssp_env.game.render import render_human
from ssp_env.judge.base import Judge
from ssp_env.judge.exact import ExactMatchJudge, F1Judge
from ssp_env.replay import Replay, Rescored, SavedGame, read_games, replay, rescore
from ssp_env.tokenizers import HuggingFaceTokenizer

JUDGES: dict[str, type[Judge]] = {"exact": ExactMatchJudge, "f1": F1Judge}
_UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="saved games: JSON lines, plain or gzip")
    parser.add_argument(
        "--game", type=int, metavar="N", help="only the N-th game of the file, from 1"
    )
    parser.add_argument(
        "--tokenizer", metavar="DIR", help="directory of the tokenizer that was played with"
    )
    parser.add_argument(
        "--judge", choices=sorted(JUDGES), help="also rescore the answers with this judge"
    )
    parser.epilog = "exit status: 0 if all games are identical, 1 if one differs, 2 for a mistake"


def _run(arguments: Namespace) -> int:
    tokenizer = (
        None if arguments.tokenizer is None else HuggingFaceTokenizer.load(arguments.tokenizer)
    )
    judge = None if arguments.judge is None else JUDGES[arguments.judge]()
    console, shown, differing = Console(), 0, 0
    for number, saved in _chosen(arguments.file, arguments.game):
        replayed = replay(saved, tokenizer)
        shown, differing = shown + 1, differing + (not replayed.identical)
        _show(console, number, saved, replayed)
        if judge is not None:
            _show_scores(console, rescore([saved], judge, tokenizer=tokenizer)[0], arguments.judge)
    if shown > 1:
        console.print(f"{shown - differing} of {shown} games are identical", style="bold")
    return 1 if differing else 0


def _chosen(file: str, wanted: int | None) -> Iterator[tuple[int, SavedGame]]:
    number = 0
    for number, saved in enumerate(read_games(file), start=1):
        if wanted in (None, number):
            yield number, saved
        if wanted == number:
            return
    if number == 0:
        raise DataError(file, "holds no game")
    if wanted is not None:
        raise SSPError(f"--game {wanted}: {file} holds the games 1 to {number}")


def _show(console: Console, number: int, saved: SavedGame, replayed: Replay) -> None:
    console.print(
        f"game {number}: saved by ssp-env {saved.package}, world {saved.parts.world}", style="dim"
    )
    render_human(replayed.game, replayed.rules, console)
    if replayed.identical:
        console.print("identical", style="bold green")
    if replayed.as_saved:
        _print(
            console,
            f"not checked, since it is code of your own: {', '.join(replayed.as_saved)}",
            "yellow",
        )
    for difference in replayed.differences:
        _print(console, f"differs: {difference}", "bold red")
    console.print()


def _show_scores(console: Console, scored: Rescored, judge: str) -> None:
    before, after = scored.before, scored.after
    if not before.attempts or before.solve_rate is None:
        console.print(
            f"{judge}: nothing to rescore in a game that is {before.outcome}\n", style="bold"
        )
        return
    for i, (then, now) in enumerate(zip(before.attempts, after.attempts, strict=True), start=1):
        _print(
            console, f"{judge}: solver {i}: {_word(then.verdict)} -> {_word(now.verdict)}", "bold"
        )
    rewards = [
        f"proposer {game.proposer_reward}, solver {game.solver_reward}" for game in (before, after)
    ]
    console.print(f"{judge}: {rewards[0]} -> {rewards[1]}\n", style="bold")


def _word(verdict: object) -> str:
    return "right" if getattr(verdict, "correct", False) else "wrong"


def _print(console: Console, text: str, style: str) -> None:
    """Prints text from outside: as it is, without what a terminal would obey or cannot encode."""
    console.print(Text(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text), style=style))


COMMAND = Command(
    name="replay",
    help="play saved games again, offline, and tell where they differ",
    configure=_configure,
    run=_run,
)
