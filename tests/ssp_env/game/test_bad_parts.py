"""Parts of the user's own that return something wrong: an error per kind names part and value."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ssp_env
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.noise import NoiseDocument, draw_noise
from ssp_env.game.outcome import Outcome
from ssp_env.game.round import Round
from ssp_env.judge.base import Verdict
from ssp_env.players import TextPlayer, scripted_player
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.cache import CachedRetriever
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

    def __init__(
        self, one: Callable[[list[Document]], Any] | None = None, whole: Any = None
    ) -> None:
        self.one, self.whole = one, whole

    def search(self, queries: Sequence[str], k: int) -> Any:
        return (
            [self.one(ranking) for ranking in BM25.search(queries, k)] if self.one else self.whole
        )


class Each(Retriever):
    """The same, asked by ``search_each``."""

    def search_each(self, queries: Sequence[str], k: int) -> Any:
        return self.search(queries, k)


def play(**parts: Any) -> Round:
    """A round of two games, played by the script."""
    rules = ssp_env.raw_env(world=SMALL, **parts).rules
    answers = rules.world.answers
    played = Round(rules, lambda rng, count: [answers[i] for i in range(count)], 2, [0])
    while turns := played.pending():
        scripted_player(rules).play(turns)
        played.advance()
    return played


def refused(message: str, **parts: Any) -> None:
    with pytest.raises(UsageError, match=message):
        play(**parts)


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


# -- judge and verifier ------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["judge", "verifier"])
@pytest.mark.parametrize(
    ("twist", "said"),
    [
        (lambda tasks: [True for _ in tasks], "gave bool True for a task"),
        (lambda tasks: None, "gave None for 2 tasks"),
        (lambda tasks: [Verdict(True)], "gave 1 results for 2 tasks"),
    ],
)
def test_results_that_are_no_verdicts(
    who: str, twist: Callable[[Sequence[Any]], Any], said: str
) -> None:
    refused(
        f"the {who} {said}: a list is wanted, with one Verdict or ServiceError per task",
        **{who: Part(twist)},
    )


def test_a_service_error_is_a_result() -> None:
    down = Part(lambda tasks: [ServiceError("judge", "down") for _ in tasks])
    assert {game.outcome for game in play(judge=down).games} == {Outcome.VOID}


def test_a_verdict_is_true_or_false() -> None:
    with pytest.raises(UsageError, match=r"Verdict\.correct is True or False, not .*: use bool"):
        Verdict(np.True_)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"Verdict\.detail is a string, not float 0\.5"):
        Verdict(True, 0.5)  # type: ignore[arg-type]


# -- retriever ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Retriever, Each])
@pytest.mark.parametrize(
    ("one", "said"),
    [
        (
            lambda ranking: [d.text for d in ranking],
            r"a ranking with str '.*: a list of Documents is wanted",
        ),
        (
            lambda ranking: None,
            r"the retriever gave None for str '.*: a list of Documents is wanted",
        ),
        (
            lambda ranking: ranking * 3,
            r"gave 3 documents for str '.* \(one of 2 queries\): at most k = 1 are wanted",
        ),
    ],
)
def test_rankings_that_are_none(
    kind: type[Retriever], one: Callable[[list[Document]], Any], said: str
) -> None:
    refused(said, retriever=kind(one))


@pytest.mark.parametrize("kind", [Retriever, Each])
@pytest.mark.parametrize(
    ("whole", "said"),
    [
        (
            None,
            "the retriever gave None for 2 queries: a list is wanted, with one list of Documents "
            "per query",
        ),
        ([[]], "the retriever gave 1 rankings for 2 queries"),
    ],
)
def test_results_of_a_search_that_are_no_list(kind: type[Retriever], whole: Any, said: str) -> None:
    refused(said, retriever=kind(whole=whole))


def test_a_retriever_behind_a_cache_is_named_too(tmp_path: Path) -> None:
    refused(
        "at most k = 1 are wanted",
        retriever=CachedRetriever(Retriever(lambda ranking: ranking * 3), tmp_path),
    )


def test_errors_do_not_show_all_of_a_large_value() -> None:
    checked = ssp_env.raw_env(
        world=SMALL, retriever=Retriever(lambda ranking: "x" * 10**6)
    ).rules.checked
    with pytest.raises(UsageError) as error:
        checked.search(["q" * 10**6])
    assert len(str(error.value)) < 300


# -- filters, noise, rewards -------------------------------------------------------------------


def test_a_filter_gives_true_or_false() -> None:
    refused(
        r"the filter 'mine' gave .*: True .* or False is wanted; use bool",
        filters={"mine": lambda proposal: 0},
    )


def own_noise(*arguments: Any) -> Any:
    return tuple(NoiseDocument(document, "corpus") for document in arguments[2])


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (
            lambda rng, count, own, others, corpus: tuple(corpus)[:count],
            "gave Document .*: a NoiseDocument is wanted",
        ),
        (lambda *arguments: None, "gave None: a tuple of NoiseDocuments is wanted"),
        (
            own_noise,
            "gave document '.*', which the game's own proposer retrieved: leave out what is in own",
        ),
        (
            lambda r, c, *a: draw_noise(r, c + 1, *a),
            "gave 2 documents: at most noise_documents = 1 are wanted",
        ),
    ],
)
def test_noise_that_is_none(noise: Any, said: str) -> None:
    refused(f"the noise source {said}", noise=noise)


@pytest.mark.parametrize("reward", [None, "1", float("nan")])
def test_a_reward_is_a_finite_number(reward: Any) -> None:
    said = "reward function gave .*: a finite number is wanted"
    refused(f"the solver's {said}", solver_reward=lambda game, attempt: reward)
    refused(f"the proposer's {said}", proposer_reward=lambda game: reward)


@pytest.mark.parametrize(
    ("parts", "field", "called"),
    [
        ({"solver_reward": lambda game: 1.0}, "solver_reward", "(game, attempt)"),
        ({"filters": {"mine": lambda *, proposal: False}}, "filters['mine']", "(proposal)"),
    ],
)
def test_functions_that_cannot_be_called_so(parts: dict[str, Any], field: str, called: str) -> None:
    said = rf"it is called with {re.escape(called)}, but its parameters are \("
    with pytest.raises(ConfigError, match=said) as error:
        ssp_env.raw_env(world=SMALL, **parts)
    assert error.value.field == field


def test_a_function_that_hides_its_parameters_is_let_pass() -> None:
    ssp_env.raw_env(world=SMALL, proposer_reward=max)  # type: ignore[arg-type]


# -- players -----------------------------------------------------------------------------------


class Mute(TextPlayer):
    def write(self, trajectory: Any) -> Any:
        return None


def test_a_player_that_writes_nothing() -> None:
    rules = ssp_env.raw_env(world=SMALL).rules
    turns = Round.of_questions(rules, SMALL.questions(0, 1)[:1], [0]).pending()
    with pytest.raises(
        UsageError,
        match=r"Mute\.write\(\) gave None for a solver's turn: the turn's text is wanted",
    ):
        Mute().play(turns)
    with pytest.raises(UsageError, match=r"Mute\.write\(\) gave None for a proposer's turn"):
        ssp_env.SolverEnv(Mute(), world=SMALL).reset(seed=0)


def test_a_budget_that_no_proposers_prompt_fits() -> None:
    with pytest.raises(
        ConfigError, match=r"the proposer's prompt alone takes \d{3} tokens"
    ) as error:
        ssp_env.raw_env(
            world=SMALL,
            tokenizer="bytes",
            game={"prompts": "plain", "max_prompt_tokens": 3},
            view={},
        )
    assert (error.value.field, error.value.value) == ("game.max_prompt_tokens", 3)
    needed = int(re.findall(r"takes (\d+)", str(error.value))[0])
    game = {"prompts": "plain", "max_prompt_tokens": needed}
    ssp_env.raw_env(world=SMALL, tokenizer="bytes", game=game, view={"legal_moves": False})
    with pytest.raises(ConfigError):
        ssp_env.raw_env(
            world=SMALL, tokenizer="bytes", game={**game, "max_prompt_tokens": needed - 1}, view={}
        )


# -- a part that misbehaves is no player that does ---------------------------------------------


def broken(*_: Any) -> Any:
    raise KeyError("a bug")


@pytest.mark.parametrize(
    ("parts", "who"),
    [
        ({"judge": Part(broken)}, "the judge"),
        ({"verifier": Part(broken)}, "the verifier"),
        ({"filters": {"mine": broken}}, "the filter 'mine'"),
    ],
)
def test_a_part_that_raises_is_named_and_no_game_is_decided(
    parts: dict[str, Any], who: str
) -> None:
    """Neither invalid nor void: nobody is paid or blamed for code of the user's own."""
    env = ssp_env.GameBatch(2, world=SMALL, **parts)
    player = scripted_player(env.rules)

    def play_on() -> None:
        turns = env.reset(seed=0)
        while turns:
            texts = [player.write(turn.trajectory) for turn in turns]
            turns = env.step([env.rules.tokenizer.encode(text) for text in texts])

    with pytest.raises(KeyError, match="a bug") as raised:
        play_on()

    (note,) = raised.value.__notes__
    assert note.startswith(f"{who} (")
    assert note.endswith("raised this: a mistake of its code, not of a player")
    for game in env.games:
        assert (game.outcome, game.reason, game.proposer_reward) == (Outcome.PENDING, None, None)


def test_a_fault_that_does_not_exist_is_no_refusal() -> None:
    with pytest.raises(UsageError, match="fault is one of service, text, not 'player'"):
        ServiceError("judge", "HTTP 400", fault="player")
