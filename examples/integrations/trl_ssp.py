"""Search self-play for TRL's GRPOTrainer, in both of its ways.

``environments(...)`` are classes whose methods are tools, for ``environment_factory``; the column
``environment`` of the data set says which role a row plays, its column ``seed`` which game.

``rollouts(...)`` is a ``rollout_func`` with exact tokens, in which one model plays both roles. A
batch of G * (1 + G) rows, where G is ``num_generations``, is G games: a group of their proposals,
then a group of attempts for each. The tokenizer has to be the model's.

``Trainer`` is TRL's, with void games left out of its loss, whichever ``loss_type`` it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import torch
from transformers import StoppingCriteria, StoppingCriteriaList
from trl import GRPOTrainer

import ssp_env
from ssp_env.envs.chat import reward_of
from ssp_env.envs.setup import Setup, set_up
from ssp_env.envs.turns import Turn
from ssp_env.errors import ConfigError, require_version
from ssp_env.game.outcome import Ending
from ssp_env.tokenizers.base import end_ids

require_version("trl", "1.16.0")

Written = tuple[list[int], list[float]]
"""Token ids of a turn, and their log-probabilities."""


class _Tools:
    """One role; a script plays the other one."""

    role: str
    setup: Setup

    def __init__(self) -> None:
        self._game = ssp_env.TextRole(self.role, **self.setup)

    def reset(self, seed: int, **row: Any) -> str:
        """Begins a game; what is returned is shown to the model."""
        self._reward: float | None = 0.0
        self._over = False
        return self._game.reset(seed)[0]

    def search(self, query: str) -> str:
        """Searches the encyclopedia.

        Args:
            query: The name to look up.

        Returns:
            The pages that were found.
        """
        return self._act("search", query)

    def get_reward(self) -> float | None:
        """What the role earned; ``None`` for a void game, which :class:`Trainer` leaves out."""
        return self._reward

    def _act(self, action: str, content: str) -> str:
        if self._over:
            return "The game is over."
        tags = self._game.rules.tags
        turn = f"{tags.opening(action)} {content} {tags.closing(action)}"
        shown, reward, terminated, void, _ = self._game.step(turn)
        self._reward = None if void else reward
        self._over = terminated or void
        return shown


class _SolverTools(_Tools):
    role = "solver"

    def answer(self, text: str) -> str:
        """Gives the final answer.

        Args:
            text: The answer.

        Returns:
            Nothing more.
        """
        return self._act("answer", text)


class _ProposerTools(_Tools):
    role = "proposer"

    def ask(self, question: str) -> str:
        """Proposes the question.

        Args:
            question: A question that has exactly the given answer.

        Returns:
            Nothing more.
        """
        return self._act("question", question)


def environments(**setup: Unpack[Setup]) -> dict[str, Callable[[], _Tools]]:
    """Both roles, by name."""
    ready: Setup = {"rules": set_up(setup).rules}
    solver = type("Solver", (_SolverTools,), {"setup": ready})
    proposer = type("Proposer", (_ProposerTools,), {"setup": ready})
    return {"solver": solver, "proposer": proposer}


def rollouts(
    write: Callable[[Any, Sequence[Turn]], list[Written]] | None = None, **setup: Unpack[Setup]
) -> Callable[[list[Any], Any], dict[str, Any]]:
    """A ``rollout_func``; ``reward_funcs`` is then ``[earned]``.

    Prompts of the data set are seeds, as text: a batch plays the games from its first one on.

    Args:
        write: writes turns, given the trainer; by the trainer's own model when not given.
        setup: of the games; attempts are as many as TRL's generations.
    """
    rules = set_up(setup).rules

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        size = rules.config.attempts
        if trainer.num_generations != size or len(prompts) != size * (1 + size):
            fix = f"give {size} = game.attempts, and {size * (1 + size)} rows in a batch"
            got = (trainer.num_generations, len(prompts))
            raise ConfigError("num_generations", got, fix)
        env = ssp_env.TurnVectorEnv(size, rules=rules)
        turns = env.reset(seed=int(prompts[0]))
        while turns:
            written = write(trainer, turns) if write else sample(rules, trainer, turns)
            turns = env.step([ids for ids, _ in written], [own for _, own in written])

        rows = [_row(game, game.proposer) for game in env.games]
        for game in env.games:
            own = [_row(game, attempt.trajectory) for attempt in game.attempts]
            rows += own + [_row(game, None)] * (size - len(own))
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        finished = columns.pop("finished")
        if getattr(trainer, "mask_truncated_completions", False):
            # TRL takes all for cut off that does not end in this token; no loss sees it.
            end = trainer.processing_class.eos_token_id
            for name, more in (("completion_ids", end), ("logprobs", 0.0), ("env_mask", 0)):
                both = zip(columns[name], finished, strict=True)
                columns[name] = [[*own, more] if done else own for own, done in both]
        return columns

    def _row(game: ssp_env.Game, own: ssp_env.Trajectory | None) -> dict[str, Any]:
        reward = None if own is None else reward_of(game, own)
        if own is None:
            # No attempt was made: a token that no loss sees.
            filler = [rules.tokenizer.pad_id]
            ids, mask, logprobs, start = filler * 2, [0, 0], [0.0, 0.0], 1
        else:
            ids, start, logprobs = own.ids, own.prompt_length, list(own.logprobs)
            mask = list(own.mask) if reward is not None else [0] * len(ids)
        return {
            "prompt_ids": ids[:start],
            "completion_ids": ids[start:],
            "logprobs": logprobs[start:],
            "env_mask": mask[start:],
            "earned": reward,
            "finished": own is not None and own.ending is not Ending.BUDGET_TOKENS,
        }

    return rollout


def earned(completions: Sequence[Any], earned: Sequence[float | None], **_: Any) -> list[Any]:
    """The game's rewards; ``None`` is left out of groups."""
    return list(earned)


class Trainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's, with void games no part of the loss. TRL leaves a reward of ``None`` out of its group,
    but still divides by that row's tokens, or counts it among the rows of a mean."""

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
        self._rewards = super()._calculate_rewards(*args, **kwargs)
        return self._rewards

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        counts = ~self._rewards.isnan().all(dim=1)  # of all processes
        first = self.accelerator.process_index * len(inputs)
        own = counts[first : first + len(inputs), None].int()
        seen = batch["completion_mask"] = batch["completion_mask"] * own
        if "tool_mask" in batch:
            seen = seen * batch["tool_mask"]
        batch["num_items_in_batch"] = self.accelerator.gather(seen.sum()).sum()
        batch["rows_for_each_that_counts"] = counts.numel() / counts.sum().clamp(min=1)
        return batch

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)
        by_rows = self.loss_type in ("grpo", "sapo", "dr_grpo", "luspo")
        # A mean over B rows, of which V are void, times B / (B - V) is one over the others.
        return loss * inputs["rows_for_each_that_counts"] if by_rows else loss


class _AtTheEndOf(StoppingCriteria):  # type: ignore[misc]
    """Stops a row behind an action; transformers' own stop strings want byte-level ids."""

    def __init__(self, rules: ssp_env.Rules) -> None:
        self._tokenizer = rules.tokenizer
        actions = {*rules.config.tools, *ssp_env.Action}
        self._closings = tuple(rules.tags.closing(action) for action in actions)
        self._longest = max(len(tag.encode()) for tag in self._closings)

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        ends = [self._tokenizer.decode(row) for row in input_ids[:, -self._longest :].tolist()]
        done = [end.rstrip().endswith(self._closings) for end in ends]
        return torch.tensor(done, device=input_ids.device)


def sample(rules: ssp_env.Rules, trainer: Any, turns: Sequence[Turn]) -> list[Written]:
    """Samples turns from the trainer's model by transformers, up to the end of an action."""
    tokenizer, device = trainer.processing_class, trainer.accelerator.device
    model = trainer.accelerator.unwrap_model(trainer.model)
    width, pad = max(len(turn.ids) for turn in turns), tokenizer.pad_token_id
    rows = [[pad] * (width - len(turn.ids)) + turn.ids for turn in turns]
    seen = [[0] * (width - len(turn.ids)) + [1] * len(turn.ids) for turn in turns]
    longest = min(trainer.max_completion_length, max(t.trajectory.tokens_left for t in turns))
    with torch.no_grad():
        out = model.generate(
            input_ids=torch.tensor(rows, device=device),
            attention_mask=torch.tensor(seen, device=device),
            do_sample=True,
            temperature=trainer.temperature,
            top_k=0,
            max_new_tokens=longest,
            stopping_criteria=StoppingCriteriaList([_AtTheEndOf(rules)]),
            pad_token_id=pad,
            eos_token_id=sorted(end_ids(rules.tokenizer)),
            return_dict_in_generate=True,
            output_logits=True,
        )
    ids = out.sequences[:, width:]
    scores = torch.stack(out.logits, 1).float() / trainer.temperature
    logprobs = scores.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    # Padding behind the end of a turn is dropped by the game, with all that follows an action.
    return list(zip(ids.tolist(), logprobs.tolist(), strict=True))
