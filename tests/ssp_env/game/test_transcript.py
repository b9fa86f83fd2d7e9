"""Games as text."""

from __future__ import annotations

import io

from rich.console import Console
from scripted import begin, by_role, play, propose, rules_of, say, solve, turn

from ssp_env.game.transcript import LiveView, render_ansi
from ssp_env.tokenizers import ByteTokenizer, WordTokenizer
from ssp_env.worlds.mini import MiniWorld


def test_a_valid_game(mini: MiniWorld, words: WordTokenizer) -> None:
    played = play(begin(rules_of(mini, words, attempts=2), slots=1), by_role(propose(), solve))
    (game,) = played.games
    text = render_ansi(game, played.rules)
    outer = [line for line in text.splitlines() if not line.startswith(" ")]
    assert outer[:2] == [f"answer: {game.truth.answer}", "proposer"]
    assert outer[2] == f"question: {game.question}  (1 hop; right in this world: {outer[0][8:]})"
    assert outer[3].startswith("verification: right (the documents support")
    assert outer[4:] == [
        "solver 1",
        "solver 1: right, paid 1",
        "solver 2",
        "solver 2: right, paid 1",
        "outcome: valid; proposer 0.0, solver 1.0",
    ]
    for indented in (f"propose {game.truth.answer} :", "<information> ", "found: ", "read: "):
        assert f"\n    {indented}" in text


def test_games_that_are_not_valid(mini: MiniWorld, words: WordTokenizer) -> None:
    played = begin(rules_of(mini, words), slots=1)
    assert render_ansi(played.games[0], played.rules).endswith("outcome: pending")
    play(played, by_role(say([1])))
    text = render_ansi(played.games[0], played.rules)
    assert text.endswith("proposer ended by format\noutcome: invalid (format); proposer 0.0")


def test_a_live_view_prints_everything_once(mini: MiniWorld, words: WordTokenizer) -> None:
    played, file = begin(rules_of(mini, words, attempts=2), slots=1), io.StringIO()
    view = LiveView(played.rules, Console(file=file, width=10_000))
    script = by_role(propose(), solve)
    while pending := played.pending():
        view.show(played.games[0])
        pending[0].feed(turn(pending[0], script))
        played.advance()
    view.show(played.games[0])
    printed = file.getvalue()
    for once in ("answer: ", "propose ", "</question>", "outcome: "):
        assert printed.count(once) == 1, once
    assert printed.count("</answer>") == printed.count(": right, paid 1") == 2
    assert printed.rstrip().endswith(render_ansi(played.games[0], played.rules).splitlines()[-1])


def test_tokens_cannot_command_a_terminal(mini: MiniWorld) -> None:
    tokenizer = ByteTokenizer()
    played = begin(rules_of(mini, tokenizer), slots=1)
    play(played, by_role(say([*b"\x1b[2J\x07 [bold]red[/bold]", 256])))
    text = render_ansi(played.games[0], played.rules)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]red[/bold]" in text, "and are not taken for colours"
