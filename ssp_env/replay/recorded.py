"""Search, judge, verifier and all other parts of a game, as they were when it was played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ssp_env.checks import describe
from ssp_env.errors import ConfigError, ServiceError, UsageError
from ssp_env.game.filters import Filter, Proposal
from ssp_env.game.game import Attempt, Game
from ssp_env.game.noise import NoiseDocument
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.prompts import Prompts
from ssp_env.game.record import TrajectoryRecord, names
from ssp_env.game.rewards import PROPOSER_REWARDS, ProposerReward, SolverReward, right_answer
from ssp_env.game.round import Phase, Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Limits, Trajectory, Waiting
from ssp_env.judge.base import JudgeTask, Verdict, VerifyTask
from ssp_env.replay.saved import SavedGame
from ssp_env.search.corpus import Corpus
from ssp_env.tokenizers import Tokenizer
from ssp_env.types import Analysis, Document, GroundTruth, Question, Role, World

NO_TOKENS = (
    "the game was written without token ids (tokens=False; in a run: record_tokens: false); it can "
    "be printed and rescored, but not replayed"
)


@dataclass(frozen=True)
class OwnCode:
    """Functions of the user's own, which no file holds.

    What a function said is played back where it is not given."""

    filters: Mapping[str, Filter] | None = None
    """Rules for a question, by reason code."""
    proposer_reward: ProposerReward | None = None
    solver_reward: SolverReward | None = None


class Recorded:
    """Everything that a game asked for outside its own code, answered from the document.

    It is retriever, judge, verifier and noise source at once. What the document does not know is
    noted in ``unrecorded`` and is an outage, never an empty answer. In a void game, what is missing
    is what failed then."""

    def __init__(self, saved: SavedGame, strict: bool) -> None:
        """
        Args:
            saved: the game.
            strict: give only what was asked for in the same words; else what was given at the same
                place.
        """
        self._saved, self._strict = saved.record, strict
        self._trajectories = saved.record.named()
        self._round: Round | None = None
        self.unrecorded: list[str] = []

    def watch(self, round_: Round) -> None:
        """Answers for this round from now on."""
        self._round = round_

    @property
    def _game(self) -> Game:
        assert self._round is not None, "watch() comes first"
        return self._round.games[0]

    # -- services ------------------------------------------------------------------------------

    def search(self, queries: Sequence[str], k: int) -> list[list[Document]]:
        """What was found then.

        Raises:
            ServiceError: nothing was.
        """
        due = [(name, t) for name, t in named(self._game).items() if t.waiting is Waiting.SEARCH]
        return [self._found(name, t, query) for (name, t), query in zip(due, queries, strict=True)]

    def judge(self, tasks: Sequence[JudgeTask]) -> list[Verdict | ServiceError]:
        """The verdicts that were reached then."""
        assert self._round is not None, "watch() comes first"
        saved = self._saved

        match self._round.phase:
            case Phase.VERIFY:
                known = [("verifier", saved.verification)]
            case Phase.CLOSED_BOOK:
                known = [("closed_book", saved.closed_book)]
            case _:
                verdicts = dict(enumerate(attempt.verdict for attempt in saved.attempts))
                answered = [
                    i
                    for i, attempt in enumerate(self._game.attempts)
                    if attempt.outage is None and attempt.trajectory.result is not None
                ]
                known = [(f"solver {i + 1}", verdicts.get(i)) for i in answered]

        return [self._verdict(*pair, task) for pair, task in zip(known, tasks, strict=True)]

    def verify(self, tasks: Sequence[VerifyTask]) -> list[Verdict | ServiceError]:
        """The verification's verdict."""
        verdict = self._saved.verification
        if verdict is None or not self._as_then(tasks[0].question, self._saved.question):
            return [self._outage("verifier", f"a verification of {tasks[0].question!r}")]
        return [verdict]

    def noise(
        self,
        rng: np.random.Generator,
        count: int,
        own: Sequence[Document],
        others: Sequence[tuple[int, Document]],
        corpus: Sequence[Document],
    ) -> tuple[NoiseDocument, ...]:
        """The noise that was drawn then.

        Raises:
            ServiceError: the game was void before anything was read: noise was what failed.
        """
        saved = self._saved
        read = saved.verification is not None or "verifier" in self._trajectories
        if saved.outcome is Outcome.VOID and not saved.noise and not read:
            raise self.outage("search")
        return saved.noise

    def _found(self, name: str, trajectory: Trajectory, query: str) -> list[Document]:
        saved, position = self._trajectories.get(name), len(trajectory.searches)
        searches = saved.searches if saved is not None else ()
        if position < len(searches) and self._as_then(query, searches[position].query):
            return list(searches[position].documents)

        if saved is not None and saved.ending is Ending.REFUSED and position == len(searches):
            raise ServiceError("search", "it refused this query", fault="text")
        raise self._outage("search", f"search {position + 1} of {name} for {query!r}")

    def _verdict(
        self, name: str, verdict: Verdict | None, task: JudgeTask
    ) -> Verdict | ServiceError:
        saved = self._trajectories.get(name)
        then = saved.result if saved is not None else None
        same = self._as_then(task.prediction, then) and self._as_then(
            task.question, self._saved.question
        )
        if verdict is not None and same:
            return verdict
        if saved is not None and saved.outage is not None:
            return self.outage("judge", saved)

        # Of a game that other attempts made void, no verdicts are kept.
        if any(attempt.outage is not None for attempt in self._saved.attempts) and same:
            return Verdict(False)
        return self._outage("judge", f"a verdict on {task.prediction!r} ({name})")

    def _as_then(self, asked: str, then: str | None) -> bool:
        return not self._strict or asked == then

    def outage(self, service: str, attempt: TrajectoryRecord | None = None) -> ServiceError:
        """What made the game void then, or an attempt alone.

        An outage of this service, if that is not known.
        """
        then = self._saved.outage if attempt is None else attempt.outage
        if then is not None:
            return ServiceError(then.service, then.what, then.calls)
        return ServiceError(self._saved.reason or service, "it failed when the game was played")

    def _outage(self, service: str, asked: str) -> ServiceError:
        if self._saved.outcome is Outcome.VOID:
            return self.outage(service)
        self.unrecorded.append(asked)
        return ServiceError(service, f"not recorded: {asked}")

    # -- functions of the user's own -----------------------------------------------------------

    def filter(self, code: str) -> Filter:
        """A filter of the user's own, as it found then."""

        def fails(proposal: Proposal) -> bool:
            if not self._as_then(proposal.question, self._saved.question):
                raise UsageError(
                    f"the filter {code!r} is code of your own: pass it to filter other questions"
                )
            return self._saved.outcome is Outcome.INVALID and self._saved.reason == code

        return fails

    def proposer_reward(self, game: Game) -> float:
        """What a reward function of the user's own paid."""
        return self._paid("proposer", self._saved.proposer_reward)

    def solver_reward(self, game: Game, attempt: Attempt) -> float:
        """What a reward function of the user's own paid."""
        if attempt.trajectory.role is Role.CLOSED_BOOK:
            gate = self._saved.play_of(Role.CLOSED_BOOK)
            return self._paid("closed_book", None if gate is None else gate.reward)

        index = next(i for i, one in enumerate(game.attempts) if one is attempt)
        attempts = self._saved.attempts
        return self._paid(
            f"solver {index + 1}", attempts[index].reward if index < len(attempts) else None
        )

    def _paid(self, name: str, reward: float | None) -> float:
        if reward is not None:
            return reward
        if self._strict:
            raise UsageError(
                f"the reward of {name} was paid by code of your own: pass it to pay other games"
            )
        self.unrecorded.append(f"a reward of {name}")
        return 0.0


@dataclass(frozen=True)
class RecordedWorld:
    """What a saved game knows of its world: the name, and the one answer that it was about."""

    name: str
    truth: GroundTruth
    can_read: bool = False

    @property
    def answers(self) -> Sequence[GroundTruth]:
        """The answer."""
        return (self.truth,)

    @property
    def corpus(self) -> Corpus:
        """
        Raises:
            UsageError: a saved game holds what was found, not what there was to find.
        """
        raise UsageError("a saved game has no corpus")

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        """None."""
        return []

    def analyse(self, question: str) -> Analysis | None:
        """Unknown."""
        return None

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        """Unknown."""
        return None


def check_saved(value: object) -> None:
    """
    Raises:
        UsageError: something else than a saved game, such as the name of its file.
    """
    if not isinstance(value, SavedGame):
        raise UsageError(
            f"a SavedGame is wanted, not {describe(value)}: read_games(path) gives the games of a "
            f"file"
        )


def check_replayable(value: object) -> None:
    """
    Raises:
        UsageError: not a saved game, or one without the tokens that a replay feeds.
    """
    check_saved(value)
    assert isinstance(value, SavedGame)
    if not value.rules.tokens:
        raise UsageError(NO_TOKENS)


def named(game: Game) -> dict[str, Trajectory]:
    """The trajectories of a game by the names that its record gives them."""
    plays = game.trajectories()
    return dict(zip(names(t.role for t in plays), plays, strict=True))


def recorded_rules(
    saved: SavedGame,
    recorded: Recorded,
    tokenizer: Tokenizer,
    own: OwnCode,
    world: World | None = None,
) -> Rules:
    """The rules that a saved game was played by, with recorded services and own code.

    Raises:
        ConfigError: a saved prompt set that cannot work, or a filter in ``own`` that the game did
            not have.
    """
    filters = {code: (own.filters or {}).get(code) for code in saved.rules.parts.filters}
    for code in own.filters or {}:
        if code not in filters:
            raise ConfigError(
                "filters", code, f"the game had no such filter, but {', '.join(filters)}"
            )
    config, parts, prompts = saved.rules.config, saved.rules.parts, saved.rules.prompts
    return Rules(
        config=config,
        tokenizer=tokenizer,
        prompts=Prompts.of_texts(prompts.texts, prompts.frame, tokenizer, config.tags),
        retriever=recorded,
        corpus=(),
        judge=recorded,
        verifier=None if parts.verifier is None else recorded,
        limits={role: Limits.of(role, config, tokenizer) for role in Role},
        world=world if world is not None else RecordedWorld(parts.world, saved.record.start.truth),
        filters={
            code: given or parts.shipped_filter(code) or recorded.filter(code)
            for code, given in filters.items()
        },
        noise=recorded.noise,
        proposer_reward=own.proposer_reward
        or PROPOSER_REWARDS.get(parts.proposer_reward)
        or recorded.proposer_reward,
        solver_reward=own.solver_reward
        or (recorded.solver_reward if parts.pays_solver_itself else right_answer),
    )
