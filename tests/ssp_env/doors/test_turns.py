"""Many games at once, a whole turn a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from all_doors import ROOMY
from scripted import by_role, propose, solve, turn

import ssp_env
from ssp_env.errors import ServiceError, UsageError
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.tokenizers import ByteTokenizer, Tokenizer
from ssp_env.types import Document
from ssp_env.worlds.mini import MiniWorld


class Counting(BM25Retriever):
    """Counts its calls."""

    calls = 0

    def search(self, queries: Any, k: int) -> list[list[Document]]:
        self.calls += 1
        return super().search(queries, k)


def test_games_are_played_together_and_each_attempt_is_told_apart(mini: MiniWorld) -> None:
    """Each turn names its attempt, and the last info what each attempt has earned."""
    retriever = Counting(mini.corpus)
    batch = ssp_env.GameBatch(6, world=mini, retriever=retriever, game={"attempts": 3})
    encode, script = batch.rules.tokenizer.encode, by_role(propose(1), solve)
    turns, open_turns = batch.reset(seed=1), []
    while turns:
        open_turns.append([(t.game, t.role.value, t.attempt, t.attempts) for t in turns])
        wrong = encode("<answer> nothing </answer>")
        turns = batch.step([wrong if t.attempt == 1 else turn(t.trajectory, script) for t in turns])

    proposers = [(game, "proposer", -1, 3) for game in range(6)]
    solvers = [(game, "solver", attempt, 3) for game in range(6) for attempt in range(3)]
    assert open_turns == [proposers, proposers, solvers, [s for s in solvers if s[2] != 1]]
    assert retriever.calls == 2
    assert batch.done
    for info in batch.infos:
        assert info["attempt_rewards"] == (1.0, 0.0, 1.0)
        assert info["attempt_counts"] == (True,) * 3
        assert (info["attempt"], info["attempts"]) == (-1, 3)


@pytest.mark.parametrize(
    ("written", "logprobs", "message"),
    [
        ([[5]], None, "2 turns are open, but 1 were written"),
        ([[5], [5, 10**6]], None, "turn 1 has a token outside the action space"),
        ([[5], [5]], [[0.0]], "1 with log-probabilities"),
        ([[5], [5, 6]], [[0.0], [0.0]], "turn 1 has 2 tokens, but 1 log-probabilities"),
    ],
)
def test_turns_that_do_not_fit_change_nothing(
    mini: MiniWorld, written: Any, logprobs: Any, message: str
) -> None:
    batch = ssp_env.GameBatch(2, world=mini)
    before = [list(t.ids) for t in batch.reset(seed=1)]
    with pytest.raises(UsageError, match=message):
        batch.step(written, logprobs)
    assert [t.ids for t in batch.turns] == before

    batch.void(batch.turns[:1], ServiceError("engine", "err"))
    assert batch.step([[]]) == batch.step([]) == []
    assert [info["outcome"] for info in batch.infos] == ["void", "invalid"]


def test_turns_carry_the_mask_of_legal_moves() -> None:
    """Before a turn, and after each of its tokens, as the AEC env shows it token by token."""
    batch, env = ssp_env.GameBatch(1, world="small"), ssp_env.raw_env(world="small")
    rng = np.random.default_rng(0)
    turns = batch.reset(seed=4)
    env.reset(seed=4)

    while turns:
        ((turn,), trajectory, written) = turns, env.trajectory, []
        # Until the turn is another's, or an observation has come.
        while env.trajectory is trajectory and len(turn.ids) + len(written) == len(trajectory.ids):
            mask = turn.mask_after(written)
            assert (mask == env.observe(env.agent_selection)["action_mask"]).all()
            assert written or (turn.action_mask == mask).all()
            written.append(int(rng.choice(np.flatnonzero(mask))))
            env.step(written[-1])
        turns = batch.step([written])

    assert env.trajectory is None
    assert batch.infos[0] == env.infos["solver"]


def test_each_writer_reads_what_it_has_not_seen(mini: MiniWorld, tokenizer: Tokenizer) -> None:
    """All that a trajectory was shown, and all that was written in it, is the trajectory."""
    env = ssp_env.TextGame(world=mini, tokenizer=tokenizer, game={**ROOMY, "attempts": 2})
    shown, info = env.reset(seed=1)
    transcripts: dict[int, str] = {}
    flags = (False, False)
    while not any(flags):
        trajectory = next(t for t in env.game.trajectories() if not t.done)
        assert info["role"] == trajectory.role.value
        assert ("<information>" in shown) == bool(trajectory.searches)
        written = str((propose(2) if info["role"] == "proposer" else solve)(trajectory))
        transcripts[trajectory.key] = transcripts.get(trajectory.key, "") + shown + written
        shown, paid, *flags, info = env.step(written)  # type: ignore[assignment]
    assert shown == ""
    assert paid == {"proposer": 0.0, "solver": 1.0}
    for trajectory in env.game.trajectories():
        whole = tokenizer.decode(trajectory.ids)
        assert transcripts[trajectory.key].replace(" ", "") == whole.replace(" ", "")
        if isinstance(tokenizer, ByteTokenizer):
            assert transcripts[trajectory.key] == whole


@pytest.mark.parametrize("text", ["", "I do not know.", "<answer>", "\ud800", "é" * 300])
def test_a_turn_without_an_action_is_a_wrong_one(
    mini: MiniWorld, tokenizer: Tokenizer, text: str
) -> None:
    env = ssp_env.TextRole(
        questions=mini.questions(0, 3), world=mini, tokenizer=tokenizer, game=ROOMY
    )
    env.reset(seed=1)
    shown, reward, terminated, truncated, info = env.step(text)
    assert (shown, reward, terminated, truncated) == ("", 0.0, True, False)
    assert info["outcome"] == "valid"
