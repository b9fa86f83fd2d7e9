"""Games as text."""

from __future__ import annotations

import pytest
from scripted import begin, by_role, play, propose, rules_of, say, solve, turn

from ssp_env.game.transcript import LiveView, render_ansi
from ssp_env.tokenizers import ByteTokenizer, WordTokenizer
from ssp_env.worlds.mini import MiniWorld


def test_a_valid_game(
    mini: MiniWorld, words: WordTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once, and line by line while it is played."""
    played = begin(rules_of(mini, words, attempts=2), slots=1)
    (game,), view, script = played.games, LiveView(played.rules), by_role(propose(), solve)
    while pending := played.pending():
        view.show(game)
        pending[0].feed(turn(pending[0], script))
        played.advance()
    view.show(game)

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
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(text.splitlines())


def test_games_that_are_not_valid(mini: MiniWorld, words: WordTokenizer) -> None:
    played = begin(rules_of(mini, words), slots=1)
    assert render_ansi(played.games[0], played.rules).endswith("outcome: pending")
    play(played, by_role(say([1])))
    text = render_ansi(played.games[0], played.rules)
    assert text.endswith("proposer ended by format\noutcome: invalid (format); proposer 0.0")


def test_tokens_cannot_command_a_terminal(mini: MiniWorld) -> None:
    played = begin(rules_of(mini, ByteTokenizer()), slots=1)
    play(played, by_role(say([*b"\x1b[2J\x07 [bold]red[/bold]", 256])))
    text = render_ansi(played.games[0], played.rules)
    assert {"\x1b", "\x07"}.isdisjoint(text)
    assert "[bold]red[/bold]" in text, "and are not taken for colours"
