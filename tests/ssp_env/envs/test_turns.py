"""Token by token and turn by turn: what an agent sees and is paid, rendering, vectors of single
envs, and many games at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from all_interfaces import ROOMY
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from scripted import by_role, propose, solve, turn

import ssp_env
from ssp_env.game.transcript import render_ansi
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.tokenizers import ByteTokenizer, Tokenizer
from ssp_env.types import Document
from ssp_env.worlds import open_world
from ssp_env.worlds.mini import MiniWorld


def test_observations_are_the_agents_trajectory(
    mini: MiniWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    """And it is rendered line by line, as it would be at once."""
    env = ssp_env.raw_env(world=mini, game={"attempts": 2}, render_mode="human")
    script = by_role(propose(2), solve)
    env.reset(seed=1)
    assert np.unique(env.observe("solver")["observation"]).tolist() == [0, 1], "nothing, padded"
    turns = 0
    while (trajectory := env.trajectory) is not None:
        observation = env.observe(env.agent_selection)
        assert observation in env.observation_space(env.agent_selection)
        tokens, written = observation["observation"], len(trajectory.ids)
        assert tokens[:written].tolist() == trajectory.ids
        assert set(tokens[written:].tolist()) == {env.rules.tokenizer.pad_id}
        tokens[:] = 9  # an observation is a copy: writing into it does no harm
        for token in turn(trajectory, script):
            env.step(token)
        turns += 1
    assert turns >= 6
    assert env.rewards == {"proposer": 0.0, "solver": 1.0}
    last = env.game.attempts[1].trajectory.ids
    assert env.observe("solver")["observation"][: len(last)].tolist() == last
    text = render_ansi(env.game, env.rules)
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(text.splitlines())


def test_rendering(mini: MiniWorld, capsys: pytest.CaptureFixture[str]) -> None:
    env = ssp_env.SolverEnv(world=mini, render_mode="ansi")
    env.reset(seed=1)
    assert str(env.game.question) in str(env.render())
    assert capsys.readouterr().out == ""

    human = ssp_env.raw_env(world=mini, render_mode="human", game={"invalid_reward": -0.5})
    human.reset(seed=1)
    human.step(20)
    assert capsys.readouterr().out == "", "only whole turns are shown"
    human.step(human.rules.tokenizer.eos_id)
    assert "outcome: invalid (format)" in capsys.readouterr().out
    assert human.terminations == {"proposer": True, "solver": True}, "both end together"
    assert human.rewards == {"proposer": -0.5, "solver": 0.0}
    assert human.last()[1] == -0.5


def test_a_solver_has_one_attempt_and_a_proposer_is_paid_for_all(mini: MiniWorld) -> None:
    env = ssp_env.SolverEnv(world=mini)
    observation, info = env.reset(seed=1)
    assert (info["role"], info["attempts"]) == ("solver", 1)
    assert "solve" in env.rules.tokenizer.decode(observation["observation"][:3].tolist())

    proposer = ssp_env.ProposerEnv(world=mini, game={"attempts": 3})
    proposer.reset(seed=1)
    while not proposer.driver.over:
        for token in turn(proposer.driver.turn, propose(1)):
            step = proposer.step(token)
    assert step[1:4] == (0.0, True, False), "the scripted solver finds every answer"
    assert len(proposer.game.attempts) == 3


def test_games_are_played_together_and_each_attempt_is_told_apart(mini: MiniWorld) -> None:
    """Each turn names its attempt, and the last info what each attempt has earned."""
    index, calls = BM25Retriever(mini.corpus), list[int]()

    def search(queries: Any, k: int) -> list[list[Document]]:
        calls.append(len(queries))
        return index.search(queries, k)

    retriever: Any = SimpleNamespace(search=search)
    batch = ssp_env.TurnVectorEnv(6, world=mini, retriever=retriever, game={"attempts": 3})
    encode, script = batch.rules.tokenizer.encode, by_role(propose(1), solve)
    turns, open_turns = batch.reset(seed=1), []
    while turns:
        open_turns.append([(t.game, t.role.value, t.attempt, t.attempts) for t in turns])
        wrong = encode("<answer> nothing </answer>")
        turns = batch.step([wrong if t.attempt == 1 else turn(t.trajectory, script) for t in turns])

    proposers = [(game, "proposer", -1, 3) for game in range(6)]
    solvers = [(game, "solver", attempt, 3) for game in range(6) for attempt in range(3)]
    assert open_turns == [proposers, proposers, solvers, [s for s in solvers if s[2] != 1]]
    assert calls == [6, 12]
    assert batch.done
    for info in batch.infos:
        assert info["attempt_rewards"] == (1.0, 0.0, 1.0)
        assert info["attempt_counts"] == (True,) * 3
        assert (info["attempt"], info["attempts"]) == (-1, 3)


def test_turns_carry_the_mask_of_legal_moves() -> None:
    """Before a turn, and after each of its tokens, as the AEC env shows it token by token."""
    batch, env = ssp_env.TurnVectorEnv(1, world="small"), ssp_env.raw_env(world="small")
    rng = np.random.default_rng(0)
    turns = batch.reset(seed=4)
    env.reset(seed=4)

    while turns:
        ((turn,), trajectory, written) = turns, env.trajectory, []
        # Until the turn is another's, or an observation has come.
        while env.trajectory is trajectory and len(turn.ids) + len(written) == len(trajectory.ids):
            mask = turn.mask_after(written)
            assert (mask == env.observe(env.agent_selection)["action_mask"]).all()
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


@pytest.mark.parametrize("role", ["Solver", "Proposer"])
def test_gymnasium_makes_vectors(role: str) -> None:
    """Of the games that single envs play."""
    mode, world = AutoresetMode.SAME_STEP, open_world("small")
    kinds: dict[str, Any] = {"vector_kwargs": {"autoreset_mode": mode}, "world": world}
    envs = gymnasium.make_vec(f"ssp/{role}-v0", num_envs=2, **kinds)
    assert envs.metadata["autoreset_mode"] is mode
    singles = [getattr(ssp_env, f"{role}Env")(world=world) for _ in range(2)]
    seen, _ = envs.reset(seed=4)
    alone = [single.reset(seed=4 + i)[0] for i, single in enumerate(singles)]
    for _ in range(30):
        assert data_equivalence(seen, {name: np.stack([o[name] for o in alone]) for name in seen})
        actions = [int(np.flatnonzero(mask)[-1]) for mask in seen["action_mask"]]
        seen, *_ = envs.step(np.array(actions))
        for i, single in enumerate(singles):
            alone[i], _, *over, _ = single.step(actions[i])
            if any(over):
                alone[i], _ = single.reset()
