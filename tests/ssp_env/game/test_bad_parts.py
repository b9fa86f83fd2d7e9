"""Parts of the user's own that give something wrong: errors name the part, what came and what is
wanted.

What is wrong with a part before any play, and with calls of the doors, is in test_bad_input_env.py
as well."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
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
from ssp_env.search.bm25.retriever import BM25Retriever
from ssp_env.search.cache.retriever import CachedRetriever
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
    ("twist", "came"),
    [
        (lambda tasks: [True for _ in tasks], "gave bool True for a task"),
        (lambda tasks: [None for _ in tasks], "gave None for a task"),
        (lambda tasks: None, "gave None for 2 tasks"),
        (lambda tasks: "yes", "gave str 'yes' for 2 tasks"),
        (lambda tasks: (Verdict(True) for _ in tasks), "gave generator .* for 2 tasks"),
        (lambda tasks: [Verdict(True)], "gave 1 results for 2 tasks"),
    ],
)
def test_results_that_are_no_verdicts(
    who: str, twist: Callable[[Sequence[Any]], Any], came: str
) -> None:
    refused(
        f"the {who} {came}: a list is wanted, with one Verdict or ServiceError per task",
        **{who: Part(twist)},
    )


def test_a_service_error_is_a_result() -> None:
    down = Part(lambda tasks: [ServiceError("judge", "down") for _ in tasks])
    assert {game.outcome for game in play(judge=down).games} == {Outcome.VOID}


@pytest.mark.parametrize("correct", ["yes", 1, None, np.True_])
def test_a_verdict_is_true_or_false(correct: Any) -> None:
    with pytest.raises(UsageError, match=r"Verdict\.correct is True or False, not .*: use bool"):
        Verdict(correct)


def test_a_verdicts_detail_is_text() -> None:
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
            lambda ranking: [vars_of(d) for d in ranking],
            r"a ranking with dict \{.*: a list of Documents is wanted",
        ),
        (
            lambda ranking: None,
            r"the retriever gave None for str '.*: a list of Documents is wanted",
        ),
        (
            lambda ranking: "page",
            r"the retriever gave str 'page' for str '.*: a list of Documents is wanted",
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


def vars_of(document: Document) -> dict[str, str]:
    return {"id": document.id, "text": document.text}


@pytest.mark.parametrize("kind", [Retriever, Each])
@pytest.mark.parametrize(
    ("whole", "said"),
    [
        (
            None,
            "the retriever gave None for 2 queries: a list is wanted, with one list of Documents "
            "a query",
        ),
        ({"result": []}, "the retriever gave dict .* for 2 queries: a list is wanted"),
        ([[]], "the retriever gave 1 rankings for 2 queries"),
    ],
)
def test_results_of_a_search_that_are_no_list(kind: type[Retriever], whole: Any, said: str) -> None:
    refused(said, retriever=kind(whole=whole))


def test_a_retriever_behind_a_cache_is_named_too() -> None:
    refused(
        "at most k = 1 are wanted",
        retriever=CachedRetriever(Retriever(lambda ranking: ranking * 3)),
    )


def test_errors_do_not_show_all_of_a_large_value() -> None:
    checked = ssp_env.raw_env(
        world=SMALL, retriever=Retriever(lambda ranking: "x" * 10**6)
    ).rules.checked
    with pytest.raises(UsageError) as error:
        checked.search(["q" * 10**6])
    assert len(str(error.value)) < 300


# -- filters, noise, rewards -------------------------------------------------------------------


@pytest.mark.parametrize("word", [None, "no", 0, np.False_])
def test_a_filter_gives_true_or_false(word: Any) -> None:
    refused(
        r"the filter 'mine' gave .*: True .* or False is wanted; use bool",
        filters={"mine": lambda p: word},
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
        (
            lambda *a: (NoiseDocument("text", "corpus"),),
            "gave NoiseDocument .*: a NoiseDocument is wanted",
        ),  # type: ignore[arg-type]
        (lambda *a: None, "gave None: a tuple of NoiseDocuments is wanted"),
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


@pytest.mark.parametrize("reward", [None, "1", [1.0], 1j, float("nan"), float("inf")])
def test_a_reward_is_a_finite_number(reward: Any) -> None:
    said = "reward function gave .*: a finite number is wanted"
    refused(f"the solver's {said}", solver_reward=lambda game, attempt: reward)
    refused(f"the proposer's {said}", proposer_reward=lambda game: reward)


@pytest.mark.parametrize(
    ("parts", "field", "called"),
    [
        ({"solver_reward": lambda game: 1.0}, "solver_reward", "(game, attempt)"),
        ({"proposer_reward": lambda game, attempt: 1.0}, "proposer_reward", "(game)"),
        ({"noise": lambda rng, count: ()}, "noise", "(rng, count, own, others, corpus)"),
        ({"filters": {"mine": lambda: False}}, "filters['mine']", "(proposal)"),
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


# -- doors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", ["4", 2.0, None, True])
def test_a_number_of_games_is_a_whole_one(count: Any) -> None:
    for field, make in (("num_games", ssp_env.GameBatch), ("num_envs", ssp_env.SolverVectorEnv)):
        with pytest.raises(
            ConfigError,
            match=f"{field} = {count!r}: give a whole number, not {type(count).__name__}",
        ):
            make(count, world=SMALL)


def test_numpys_numbers_are_whole_ones() -> None:
    assert len(ssp_env.GameBatch(np.int64(2), world=SMALL).reset(seed=0)) == 2  # type: ignore[arg-type]


def test_a_batch_takes_token_ids_not_text() -> None:
    batch = ssp_env.GameBatch(2, world=SMALL)
    batch.reset(seed=0)
    for written in (["<search> what </search>"] * 2, [[5], ""]):
        with pytest.raises(
            UsageError,
            match=r"turn \d is text: token ids are wanted; encode it with rules\.tokenizer",
        ):
            batch.step(written)  # type: ignore[arg-type]
    for token in (-1, 10**6, 2.5, "5"):
        with pytest.raises(
            UsageError, match=rf"turn 1 has a token outside the action space: \[5, {token!r}\]"
        ):
            batch.step([[5], [5, token]])  # type: ignore[list-item]
    assert all(len(turn.ids) == turn.trajectory.prompt_length for turn in batch.turns), (
        "nothing was taken"
    )


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ([5, 10**6], r"actions = \[5, 1000000\]: a token is outside the action space 0 \.\. \d+"),
        ([5, -1], r"a token is outside the action space"),
        ([5.0, 5.0], r"actions = \[5\.0, 5\.0\]: a token is a whole number, not float64"),
        (["5", "5"], "a token is a whole number, not str"),
        ([5], "give one token for each of 2 envs"),
        ([[5], [5]], "give one token for each of 2 envs"),
    ],
)
def test_a_vector_says_what_is_wrong_with_its_actions(actions: Any, said: str) -> None:
    env = ssp_env.SolverVectorEnv(2, world=SMALL)
    env.reset(seed=0)
    with pytest.raises(UsageError, match=said):
        env.step(actions)
    env.step(np.array([5, 5], dtype=np.int32))  # type: ignore[arg-type]


def test_looking_before_reset() -> None:
    env = ssp_env.raw_env(world=SMALL)
    for look in (env.last, lambda: env.observe("solver"), lambda: env.game):
        with pytest.raises(UsageError, match=r"call reset\(\) first"):
            look()
    env.reset(seed=0)
    assert env.last(observe=False)[0] is None


def test_an_unknown_agent() -> None:
    env = ssp_env.raw_env(world=SMALL)
    env.reset(seed=0)
    for ask in (env.observe, env.observation_space, env.action_space):
        with pytest.raises(
            UsageError, match="there is no agent 'judge'; the agents are proposer and solver"
        ):
            ask("judge")


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
