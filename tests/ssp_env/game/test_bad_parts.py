"""Parts of the user's own that return something wrong: an error per kind names part and value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import ssp_env
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round
from ssp_env.game.verification import NoiseDocument, draw_noise
from ssp_env.judge.base import Verdict
from ssp_env.players import TextPlayer, scripted_player
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.types import Document
from ssp_env.worlds.mini import SmallWorld

SMALL = SmallWorld()
BM25 = BM25Retriever(SMALL.corpus)


class Part:
    """A judge and verifier that gives what ``twist`` makes of the tasks."""

    def __init__(self, twist: Callable[[Sequence[Any]], Any]) -> None:
        self.judge = self.verify = twist


class Retriever:
    """BM25, and then something done to each ranking, or to all of them."""

    def __init__(self, one: Callable[[list[Document]], Any], whole: Any = list) -> None:
        self.one, self.whole = one, whole

    def search(self, queries: Sequence[str], k: int) -> Any:
        return self.whole(self.one(ranking) for ranking in BM25.search(queries, k))


def play(**parts: Any) -> Round:
    """A round of two games, played by the script."""
    rules = ssp_env.raw_env(world=SMALL, **parts).rules
    answers = rules.world.answers
    played = Round(rules, lambda rng, count: [answers[i] for i in range(count)], 2, [0])
    while turns := played.pending():
        scripted_player(rules).play(turns)
        played.advance()
    return played


def test_good_parts_play() -> None:
    """What the tests below twist is played to a valid end as it is."""
    right = Part(lambda tasks: [Verdict(True) for _ in tasks])
    played = play(
        judge=right,
        verifier=right,
        retriever=Retriever(lambda ranking: tuple(ranking)),
        noise=lambda *arguments: list(draw_noise(*arguments)),
        filters={"mine": lambda proposal: False},
        proposer_reward=lambda game: np.float32(0.5),
        solver_reward=lambda game, attempt, weight=1: 2,
    )
    assert [(g.outcome, g.proposer_reward, g.solver_reward) for g in played.games] == [
        (Outcome.VALID, 0.5, 2.0)
    ] * 2
    assert all(len(game.noise) == 1 for game in played.games)


def foreign(document: Document) -> Document:
    return Document(5, document.title, document.text)  # type: ignore[arg-type]


def own_noise(*arguments: Any) -> Any:
    return tuple(NoiseDocument(document, "corpus") for document in arguments[2])


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "judge: type": ({"judge": Part(lambda t: [True for _ in t])}, "the judge gave bool True"),
    "judge: none": ({"judge": Part(lambda t: None)}, "the judge gave None for 2 tasks"),
    "verifier: number": (
        {"verifier": Part(lambda t: [Verdict(True)])},
        r"the verifier gave .* a list of 2 results is wanted",
    ),
    "retriever: type": (
        {"retriever": Retriever(lambda found: [d.text for d in found])},
        r"the retriever gave list .*: at most 1 Documents are wanted",
    ),
    "retriever: id": (
        {"retriever": Retriever(lambda found: [foreign(d) for d in found])},
        r"the retriever gave list .*id=5.*: at most 1 Documents are wanted",
    ),
    "retriever: many": (
        {"retriever": Retriever(lambda found: found * 3)},
        r"the retriever gave list .*: at most 1 Documents are wanted",
    ),
    "retriever: number": (
        {"retriever": Retriever(list, lambda rankings: [*rankings][1:])},
        "the retriever gave 1 rankings for 2 queries",
    ),
    "filter": ({"filters": {"mine": lambda proposal: 0}}, r"the filter 'mine' gave int 0: .*bool"),
    "noise: type": ({"noise": lambda *_: None}, "the noise source gave None"),
    "noise: own": ({"noise": own_noise}, "the noise source gave tuple .* none of them in own"),
    "reward": (
        {"solver_reward": lambda game, attempt: float("nan")},
        "the solver's reward function gave float nan: a finite number is wanted",
    ),
    "reward: type": (
        {"proposer_reward": lambda game: None},
        "the proposer's reward function gave None: a finite number is wanted",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_result_is_refused(name: str) -> None:
    parts, said = BAD[name]
    with pytest.raises(UsageError, match=said) as error:
        play(**parts)
    assert len(str(error.value)) < 300


def test_a_service_error_is_a_result() -> None:
    down = Part(lambda tasks: [ServiceError("judge", "down") for _ in tasks])
    assert {game.outcome for game in play(judge=down).games} == {Outcome.VOID}


def broken(*_: Any) -> Any:
    raise KeyError("a bug")


@pytest.mark.parametrize(
    "parts", [{"judge": Part(broken)}, {"verifier": Part(broken)}, {"filters": {"mine": broken}}]
)
def test_a_part_that_raises_decides_no_game(parts: dict[str, Any]) -> None:
    """Neither invalid nor void: nobody is paid or blamed for code of the user's own."""
    env = ssp_env.GameBatch(2, world=SMALL, **parts)
    player = scripted_player(env.rules)

    def play_on() -> None:
        turns = env.reset(seed=0)
        while turns:
            texts = [player.write(turn.trajectory) for turn in turns]
            turns = env.step([env.rules.tokenizer.encode(text) for text in texts])

    with pytest.raises(KeyError, match="a bug"):
        play_on()
    for game in env.games:
        assert (game.outcome, game.reason, game.proposer_reward) == (Outcome.PENDING, None, None)


def test_settings_that_do_not_fit_are_refused_at_set_up() -> None:
    with pytest.raises(ConfigError, match=r"it is called with \(game, attempt\)") as error:
        ssp_env.raw_env(world=SMALL, solver_reward=lambda game: 1.0)  # type: ignore[arg-type,misc]
    assert error.value.field == "solver_reward"
    short = {"prompts": "plain", "max_prompt_tokens": 3}
    with pytest.raises(ConfigError, match=r"the proposer's prompt alone takes \d{3} tokens"):
        ssp_env.raw_env(world=SMALL, tokenizer="bytes", game=short, view={})


class Mute(TextPlayer):
    def write(self, trajectory: Any) -> Any:
        return None


def test_a_player_that_writes_nothing() -> None:
    with pytest.raises(UsageError, match=r"Mute\.write\(\) gave None for a proposer's turn"):
        ssp_env.SolverEnv(Mute(), world=SMALL).reset(seed=0)
