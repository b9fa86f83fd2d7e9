"""The PettingZoo AEC environment: one game at a time, one token an action."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from pettingzoo import AECEnv
from pettingzoo.utils.wrappers import AssertOutOfBoundsWrapper, OrderEnforcingWrapper

from ssp_env.config import MINI_GAME, GameConfig
from ssp_env.errors import ConfigError, UsageError
from ssp_env.game.game import Game
from ssp_env.game.protocol import Role
from ssp_env.game.render import render_ansi, render_human
from ssp_env.game.round import Answers, Round
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import Trajectory
from ssp_env.judge.base import Judge, Verifier
from ssp_env.search.base import Retriever
from ssp_env.tokenizers import ByteTokenizer, Tokenizer, WordTokenizer
from ssp_env.worlds import open_world
from ssp_env.worlds.base import GroundTruth, World
from ssp_env.worlds.mini.lexicon import vocabulary

PROPOSER, SOLVER = "proposer", "solver"


def env(**kwargs: Any) -> AECEnv:
    """The environment with PettingZoo's usual checks; takes what :class:`SearchSelfPlayEnv` takes."""
    return OrderEnforcingWrapper(AssertOutOfBoundsWrapper(raw_env(**kwargs)))


def raw_env(**kwargs: Any) -> SearchSelfPlayEnv:
    """The environment without wrappers."""
    return SearchSelfPlayEnv(**kwargs)


class SearchSelfPlayEnv(AECEnv):  # type: ignore[misc]
    """One game: the proposer writes a question token by token, then the solver attempts it ``attempts`` times.

    With ``verifier="policy"``, the solver first reads the documents of the verification. Both agents live to the
    end of the game and end together. Rewards are paid then: the proposer's reward, and the solver's mean over its
    attempts; an invalid game pays ``invalid_reward`` and 0, a void one nothing. ``infos`` tell the outcome.

    Observations are a dict: ``observation``, int32 (``max_prompt_tokens + max_response_tokens``,), the agent's
    present trajectory, padded on the right; ``action_mask``, int8 (vocabulary,), 1 on every token but padding.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "ssp/SearchSelfPlay-v0",
        "render_modes": ["ansi", "human"],
        "is_parallelizable": False,
    }

    def __init__(
        self,
        world: World | str = "mini",
        tokenizer: Tokenizer | None = None,
        game: GameConfig | None = None,
        *,
        retriever: Retriever | None = None,
        judge: Judge | None = None,
        verifier: Verifier | None = None,
        render_mode: str | None = None,
    ) -> None:
        """
        Args:
            world: corpus and answers, or the name of a world that ships.
            tokenizer: words for the mini-wiki and bytes elsewhere, when not given.
            game: rules; :data:`~ssp_env.config.MINI_GAME` for the mini-wiki, the paper's elsewhere, when not given.
            retriever: BM25 over the world's corpus when not given.
            judge: exact match when not given.
            verifier: in place of the one that ``game.verifier`` names.
            render_mode: ``ansi`` (a string), ``human`` (colours on the terminal, after each turn) or ``None``.

        Raises:
            ConfigError: a setting that cannot work.
            TokenizerError: a tokenizer that cannot spell the tags.
        """
        super().__init__()
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ConfigError("render_mode", render_mode, "choose 'ansi', 'human' or None")
        opened = open_world(world) if isinstance(world, str) else world
        config = game if game is not None else MINI_GAME if opened.name == "mini" else GameConfig()
        if tokenizer is None:
            mini = opened.name == "mini"
            tokenizer = WordTokenizer(vocabulary(), config.tags.all()) if mini else ByteTokenizer()
        self.rules = Rules.build(opened, tokenizer, config, retriever=retriever, judge=judge, verifier=verifier)
        self.render_mode = render_mode
        self.possible_agents = [PROPOSER, SOLVER]
        self._length = config.max_prompt_tokens + config.max_response_tokens
        size = tokenizer.vocab_size
        self._mask = np.ones(size, dtype=np.int8)
        if tokenizer.pad_id != tokenizer.eos_id:
            self._mask[tokenizer.pad_id] = 0
        self.observation_spaces = {agent: self._space(size) for agent in self.possible_agents}
        self.action_spaces: dict[str, gym.Space[Any]] = {a: gym.spaces.Discrete(size) for a in self.possible_agents}
        self._rng: np.random.Generator | None = None
        self._started: Round | None = None

    # -- PettingZoo ------------------------------------------------------------------------------------

    def observation_space(self, agent: str) -> gym.Space[Any]:
        """The same object at each call."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gym.Space[Any]:
        """The same object at each call."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Starts a game.

        Args:
            seed: decides the answer, the noise and every other draw of this and the following games.
            options: ``answer`` (a string, or a ``GroundTruth``) plays about this answer; anything else is ignored.

        Raises:
            UsageError: an ``answer`` of another type.
        """
        if seed is not None or self._rng is None:
            self._rng = np.random.default_rng(seed)
        given = (options or {}).get("answer")
        truth = GroundTruth("given", given) if isinstance(given, str) else given
        if not isinstance(truth, GroundTruth | None):
            raise UsageError(f"options['answer'] is a string or a GroundTruth, not {type(given).__name__}")
        self._started = Round(self.rules, self._answers(truth), 1, [int(self._rng.integers(1 << 62))])
        self.agents = list(self.possible_agents)
        self.agent_selection = PROPOSER
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._windows: dict[str, _Window] = {}
        self._go_on()
        self._accumulate_rewards()

    def step(self, action: int | np.integer[Any] | None) -> None:
        """Takes the selected agent's next token.

        Raises:
            UsageError: a step before the first reset or after the end, or an action outside the space.
        """
        played = self._round
        if not self.agents:
            raise UsageError("the game is over: call reset()")
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        turn_ended = self._current.feed((_token(agent, action),))
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        if turn_ended:
            played.advance()
            self._go_on()
        self._accumulate_rewards()
        if turn_ended and self.render_mode == "human":
            self.render()

    def observe(self, agent: str) -> dict[str, np.ndarray[Any, Any]]:
        """The agent's present trajectory; an agent that has none yet sees a single end (or padding) token."""
        _ = self._round
        window = self._windows.get(agent)
        if window is None:
            tokenizer = self.rules.tokenizer
            tokens = np.full(self._length, tokenizer.pad_id, dtype=np.int32)
            tokens[0] = tokenizer.pad_id if tokenizer.eos_id is None else tokenizer.eos_id
        else:
            tokens = window.look()
        return {"observation": tokens, "action_mask": self._mask.copy()}

    def render(self) -> str | None:
        """The game so far: a string in mode ``ansi``, printed in mode ``human``."""
        if self.render_mode == "ansi":
            return render_ansi(self.game, self.rules)
        if self.render_mode == "human":
            render_human(self.game, self.rules)
            return None
        gym.logger.warn("render() was called without a render_mode")
        return None

    def close(self) -> None:
        """Nothing to close."""

    # -- the game --------------------------------------------------------------------------------------

    @property
    def game(self) -> Game:
        """The game that is played.

        Raises:
            UsageError: there is none before the first reset.
        """
        return self._round.games[0]

    @property
    def _round(self) -> Round:
        if self._started is None:
            raise UsageError("call reset() first")
        return self._started

    def _answers(self, given: GroundTruth | None) -> Answers:
        def draw(rng: np.random.Generator, count: int) -> Sequence[GroundTruth]:
            if given is not None:
                return [given]
            return [self.rules.world.answers[int(rng.integers(len(self.rules.world.answers)))]]

        return draw

    def _go_on(self) -> None:
        """Selects whoever has to write next, or ends the game."""
        pending = self._round.pending()
        if not pending:
            self._finish()
            return
        self._current = pending[0]
        self.agent_selection = PROPOSER if self._current.role is Role.PROPOSER else SOLVER
        window = self._windows.get(self.agent_selection)
        if window is None or window.trajectory is not self._current:
            self._windows[self.agent_selection] = _Window(self._current, self._length, self.rules.tokenizer.pad_id)
        for agent in self.agents:
            self.infos[agent] = {"phase": self._round.phase.value, "role": self._current.role.value}

    def _finish(self) -> None:
        game = self.game
        # Both are None in a void game.
        self.rewards[PROPOSER] = float(game.proposer_reward or 0.0)
        self.rewards[SOLVER] = float(game.solve_rate or 0.0)
        for agent in self.agents:
            self.terminations[agent] = True
            self.infos[agent] = {
                "phase": self._round.phase.value,
                "outcome": game.outcome.value,
                "reason": game.reason,
                "question": game.question,
                "answer": game.truth.answer,
                "solve_rate": game.solve_rate,
            }

    def _space(self, size: int) -> gym.spaces.Dict:
        return gym.spaces.Dict(
            {
                "observation": gym.spaces.Box(0, size - 1, (self._length,), np.int32),
                "action_mask": gym.spaces.Box(0, 1, (size,), np.int8),
            }
        )


class _Window:
    """A trajectory as a padded array. Only new tokens are copied in, so that long transcripts cost no more."""

    def __init__(self, trajectory: Trajectory, length: int, pad_id: int) -> None:
        self.trajectory, self._filled = trajectory, 0
        self._tokens = np.full(length, pad_id, dtype=np.int32)

    def look(self) -> np.ndarray[Any, Any]:
        """A copy of the array as it is now."""
        ids = self.trajectory.ids
        if self._filled < len(ids):
            self._tokens[self._filled : len(ids)] = ids[self._filled :]
            self._filled = len(ids)
        return self._tokens.copy()


def _token(agent: str, action: int | np.integer[Any] | None) -> int:
    if action is None:
        raise UsageError(f"{agent} is alive: it needs a token, not None")
    try:
        return operator.index(action)
    except TypeError:
        raise UsageError(f"a token is a whole number, not {action!r}") from None
