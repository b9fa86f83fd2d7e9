"""``ssp imitate``: supervised steps on games that were played well, such as before self-play."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import chain, count, islice
from pathlib import Path

import numpy as np
import torch

from ssp_agents import models
from ssp_agents.architecture import shares_prefix
from ssp_agents.batches import columns_of
from ssp_agents.checksums import check_weights, write_checksums
from ssp_agents.config import LearningConfig
from ssp_agents.engines.base import Engine
from ssp_agents.precision import is_small, passes_dtype, round_frozen
from ssp_agents.rollout import play
from ssp_agents.rows import Row, recorded_row, with_loss_weights
from ssp_agents.scoring import TokenScorer, checkpoint_layers
from ssp_agents.sharding import load_shares, save_shares
from ssp_agents.update import Update, adam, give_back_memory
from ssp_env.config import load
from ssp_env.errors import ConfigError, RunError
from ssp_env.game.batch import GameBatch
from ssp_env.game.outcome import Ending, Outcome
from ssp_env.game.record import GameRecord, record_game
from ssp_env.game.rules import Rules
from ssp_env.players import play_by, scripted_player
from ssp_env.replay import read_games
from ssp_env.types import Question, Role
from ssp_experiments.commands.cards import command_of
from ssp_experiments.config import RunConfig, check_policy
from ssp_experiments.evaluation import engine_of
from ssp_experiments.options import Chosen
from ssp_experiments.planner import check_memory
from ssp_experiments.run.checks import check_answers, check_settings, open_run
from ssp_experiments.run.process import (
    handling,
    interruptible,
    quiet_libraries,
    raise_interruption,
)
from ssp_experiments.run.rundir import RunDirectory, check_empty

SUPERVISED = {
    "game.verifier": "none",
    "game.closed_book": False,
    # With a return of 1, no ratio and no KL, the loss of REINFORCE is the cross-entropy.
    "learning.proposer_algorithm": "reinforce",
    "learning.solver_algorithm": "reinforce",
    "learning.proposer_aggregation": "token",
    "learning.solver_aggregation": "token",
    "learning.kl_coeff": 0.0,
    "learning.minibatches": 1,
    "learning.proposer_weight": 1.0,
}
"""Settings by which the update of self-play learns from examples: for each role the mean over all
of its tokens."""
_SCRIPT, _BEFORE = 0x5C, 0xBE
"""Second numbers of the seeds of scripted games, and of those that the policy is measured by."""


def run(
    chosen: Chosen,
    games: Sequence[str],
    *,
    steps: int,
    lr: float,
    measured: int,
    out: Path,
    resume: bool,
) -> int:
    """Trains; prints the share of well-formed turns before and after."""
    quiet_libraries()
    if not resume:
        check_empty(out)
    config = chosen.config({**SUPERVISED, "steps": steps, "learning.lr": lr})
    check_settings(config)
    check_policy(config)
    planned = check_memory(config)
    rules, questions = open_run(config)
    check_answers(rules)

    roles = config.learning.learning_roles
    scripted = (row for row in _scripted(rules, config.seed) if row.role in roles)
    rows = _recorded(games, rules, config.seed, roles) if games else scripted
    digests = [f"{sha256(Path(file).read_bytes()).hexdigest()}\n" for file in games]
    taught = "".join(digests) or "script\n"

    directory = RunDirectory(out)
    with directory.claimed(config, resume, taught) as taken, handling(raise_interruption):
        engine = engine_of(config, rules)
        if not taken:
            _show("before", rules, engine, questions[:measured], config)
        weights = _learn(planned, rules, rows, directory, taken)
        engine.update_weights(weights, steps)
        _show("after", rules, engine, questions[:measured], config)
    policy = directory.kept_checkpoints()[-1][1] / "policy"
    now = command_of(chosen.config().replace(model=str(policy)))
    print(f"now: {now}", file=sys.stderr)
    return 0


def _learn(
    config: RunConfig, rules: Rules, rows: Iterator[Row], directory: RunDirectory, taken: int
) -> dict[str, torch.Tensor]:
    """Takes the steps that are left, each on ``learning.batch_size`` trajectories; returns plain
    weights, which the last checkpoint holds."""
    learning: LearningConfig = config.learning
    device = torch.device("cpu" if config.compute.gpus == "none" else "cuda")
    lm = models.load_model(config.model_dir)
    vocab, again = rules.tokenizer.vocab_size, bool(learning.gradient_checkpointing)
    share = shares_prefix(lm, vocab, checkpointed=again)
    dtype = passes_dtype(learning.dtype, device, small=is_small(lm))
    if learning.lora_rank:
        models.adapt(lm, learning.lora_rank, config.seed)
        if dtype is not None:
            round_frozen(lm, dtype)
    lm.to(device)
    if learning.gradient_checkpointing:
        checkpoint_layers(lm)
    scorer = TokenScorer(lm, 1.0, vocab, entropies=False, share_prefix=share)
    optimizer = adam([p for p in lm.parameters() if p.requires_grad], learning)
    settle = None if is_small(lm) or device.type != "cpu" else give_back_memory
    update = Update(scorer, optimizer, learning, autocast=dtype, after_pass=settle)
    if latest := directory.latest_checkpoint():
        check_weights(latest[1] / "learner")
        load_shares(lm, optimizer, latest[1] / "learner")
    # The same stream, from where it was left.
    rows = islice(rows, taken * learning.batch_size, None)

    def plain() -> dict[str, torch.Tensor]:
        state = {name: tensor.cpu() for name, tensor in models.state_of(lm).items()}
        return models.plain_weights(state, config.model_dir)

    def save(folder: Path) -> None:
        models.save_policy(plain(), config.model_dir, folder / "policy")
        save_shares(lm, optimizer, folder / "learner")
        write_checksums(folder / "learner")

    stopping = "stopping after this step, with a checkpoint; a second time stops at once"
    with interruptible(lambda: print(stopping, file=sys.stderr)) as seen:
        for step in range(taken, config.steps):
            batch = list(islice(rows, learning.batch_size))
            columns = columns_of(with_loss_weights(batch, learning, len(batch), config.game))
            tensors = {
                name: torch.from_numpy(column).to(device) for name, column in columns.items()
            }
            figures = update(tensors, step)
            if figures["skipped_updates"]:
                raise RunError(f"step {step + 1}: the gradient is not finite; lower --lr")
            # The loss is a sum of one mean for each role.
            loss = figures["loss"] / len({row.role for row in batch})
            directory.append_metrics({"step": step + 1, "imitation_loss": loss})
            print(f"step {step + 1}/{config.steps}: {loss:.3f} nats a token", file=sys.stderr)

            stop = bool(seen)
            if stop or step + 1 == config.steps or (step + 1) % config.checkpoint_every == 0:
                directory.save_checkpoint(step + 1, save, config.checkpoints_kept)
            if stop:
                print("to go on, give the same command with --resume", file=sys.stderr)
                raise seen[0]
    return plain()


# -- games to learn from -----------------------------------------------------------------------


def _scripted(rules: Rules, seed: int) -> Iterator[Row]:
    """The world's own demonstrations, where it names a class that writes them, else scripted games;
    ever new ones."""
    if named := getattr(rules.world, "demonstrations", None):
        writer = load("world.demonstrations", named)(rules.config, rules.tokenizer)
        for trace in writer.stream(np.random.default_rng([seed, _SCRIPT])):
            ids, mask = np.array(trace.ids, np.int32), np.array(trace.mask, np.uint8)
            nobody = np.full(len(ids), np.nan, np.float32)
            yield Row(ids, mask, nobody, trace.role, game=0, advantage=1.0)

    once, player = replace(rules, config=rules.config.replace(attempts=1)), scripted_player(rules)
    for number in count():
        batch = play_by(_proposals(once, 16, [seed, _SCRIPT, number]), player)
        rows = [*_rows(record_game(game, once) for game in batch.games)]
        if not rows and not number:
            why = Counter(game.reason for game in batch.games).most_common(1)[0][0]
            what = f"its script plays no valid game ({why})"
            fix = f"{what}; give a larger game.max_response_tokens, or recorded games by --games"
            raise ConfigError("world", rules.world.name, fix)
        yield from rows


def _recorded(files: Sequence[str], rules: Rules, seed: int, roles: Sequence[str]) -> Iterator[Row]:
    """Trajectories of files of games, over and over, in a new order each time."""
    rows: list[Row] = []
    for saved in chain.from_iterable(map(read_games, files)):
        saved.rules.tokenizer.open(rules.tokenizer)  # it has to be the same
        rows += [row for row in _rows([saved.record]) if row.role in roles]
    if not rows:
        raise ConfigError(
            "--games", list(files), f"they hold nothing valid by {' or '.join(roles)}"
        )
    rng = np.random.default_rng(seed)
    return (rows[i] for _ in count() for i in rng.permutation(len(rows)))


def _rows(records: Iterable[GameRecord]) -> Iterator[Row]:
    """The proposals of valid games, and the attempts that were right."""
    for record in records:
        for played in record.trajectories if record.outcome is Outcome.VALID else ():
            if played.role is Role.PROPOSER or (played.role is Role.SOLVER and played.right):
                row = recorded_row(played, played.role.value, record.initial_state.index)
                # Nobody sampled them: the ratio is 1.
                nobody = np.full_like(row.logprobs, np.nan)
                yield replace(row, logprobs=nobody, advantage=1.0)


def _proposals(rules: Rules, count: int, seed: Sequence[int]) -> GameBatch:
    answers = rules.world.answers
    return GameBatch(
        rules, lambda rng, n: [answers[i] for i in rng.integers(len(answers), size=n)], count, seed
    )


# -- compliance --------------------------------------------------------------------------------


def _show(
    when: str, rules: Rules, engine: Engine, questions: Sequence[Question], config: RunConfig
) -> None:
    """Prints how many of the policy's trajectories end with the action that they were to give."""
    once, seed = replace(rules, config=config.game.replace(attempts=1)), [config.seed, _BEFORE]
    at = config.learning.temperature
    proposed = play(_proposals(once, len(questions), seed), engine, temperature=at)
    solved = play(GameBatch.of_questions(once, questions, seed), engine, temperature=at)
    proposals = [game.proposer for game in proposed.games if game.proposer is not None]
    attempts = [attempt.trajectory for game in solved.games for attempt in game.attempts]
    counts = [
        f"{sum(t.ending is Ending.ACTION for t in played)} of {len(played)} {what}"
        for played, what in ((proposals, "proposals"), (attempts, "attempts"))
    ]
    print(f"{when}: {' and '.join(counts)} in the format")
