"""A frozen verifier: the policy as it was, named or refreshed, whoever plays and resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from learning import Weights, distance
from playful import GAME, LEARNING, WORLD, make_rules, playful_model

from ssp_agents.models import lm_weights, load_model, shipped_directory, state_of
from ssp_agents.rllib import SSP, SSPConfig
from ssp_agents.rllib.policies import VERIFIER
from ssp_agents.shipped.tiny.bootstrap import save_policy
from ssp_env.errors import ConfigError
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_env.types import Role

KINDS = ("full", "adapters")


def frozen(model_dir: Path, kind: str = "full", **learning: Any) -> SSPConfig:
    """Games in which the verifier reads once, and both roles learn fast."""
    game = {**GAME, "verifier": "frozen", "verifications": (1, 1)}
    env = {"world": "mini", "world_options": WORLD, "game": game, "make_rules": make_rules}
    config = SSPConfig().environment(env_config=env).debugging(seed=5, log_level="ERROR")
    rank = {"lora_rank": 2} if kind == "adapters" else {}
    return config.training(**{**LEARNING, "model_dir": model_dir, **rank, **learning})


def held(algorithm: SSP, name: str) -> Weights:
    """Weights that a policy plays with, and adapters on their own."""
    weights = state_of(algorithm.env_runner.engine.engines[name].model)
    return {name: tensor.clone() for name, tensor in weights.items()}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_policy_before_training_until_it_is_refreshed(
    kind: str, model_dir: Path, tmp_path: Path
) -> None:
    """Every second step; what it says is of its own weights, and a resumed run has the same."""
    config = frozen(model_dir, kind, verifier_refresh=2)
    algorithm = config.build_algo()
    before, seen = held(algorithm, VERIFIER), []
    assert not distance(before, held(algorithm, "llm"))
    for step in range(4):
        algorithm.train()
        seen.append(held(algorithm, VERIFIER))
        if step == 1:
            after = held(algorithm, "llm")
        if step == 2:
            assert algorithm.env_runner.rules.verifier is None
            algorithm.save_to_path(tmp_path)
    games, end = algorithm.last_games, held(algorithm, "llm")
    module = lm_weights(state_of(algorithm.get_module(VERIFIER)))
    assert distance(module, end) == 0.0
    engine = algorithm.env_runner.engine
    if kind == "adapters":
        one, other = (e.model.get_input_embeddings().weight for e in engine.engines.values())
        assert one is other, "the base is there once"
    algorithm.stop()
    assert [distance(weights, before) > 0 for weights in seen] == [False, True, True, True]
    assert [distance(weights, after) for weights in seen[1:3]] == [0.0, 0.0]
    assert distance(seen[3], end) == 0.0
    assert any(t.role is Role.VERIFIER for game in games for t in game.trajectories)

    algorithm = config.copy(copy_frozen=False).build_algo()
    algorithm.restore_from_path(tmp_path)
    assert distance(held(algorithm, VERIFIER), after) == 0.0
    algorithm.train()
    assert algorithm.last_games == games
    assert distance(held(algorithm, VERIFIER), end) == 0.0
    algorithm.stop()


@pytest.mark.usefixtures("cluster")
def test_what_it_says_is_of_its_own_weights(model_dir: Path, tmp_path: Path) -> None:
    """Of a named model: the log-probabilities are that model's."""
    other = playful_model(3)
    save_policy(other, tmp_path)
    algorithm = frozen(model_dir, verifier_model=str(tmp_path)).build_algo()
    algorithm.train()
    algorithm.train()
    games, gap = algorithm.last_games, algorithm.last_gap
    assert distance(held(algorithm, VERIFIER), state_of(load_model(tmp_path))) == 0.0
    assert distance(held(algorithm, VERIFIER), held(algorithm, "llm")) > 1e-4
    with pytest.raises(ConfigError, match="does not learn here"):
        algorithm.save_policy(tmp_path / "saved", VERIFIER)
    algorithm.stop()
    assert gap is not None
    assert gap.mean < 1e-5, "the verifier's tokens are not compared with the learner"
    read = [t for game in games for t in game.trajectories if t.role is Role.VERIFIER]
    model, size = load_model(tmp_path), HuggingFaceTokenizer.load(model_dir).vocab_size
    for trajectory in read[:3]:
        with torch.no_grad():
            logprobs = model(torch.tensor([trajectory.ids])).logits[0, :, :size].log_softmax(-1)
        said = [i for i, own in enumerate(trajectory.mask) if own]
        mine = [float(logprobs[i - 1, trajectory.ids[i]]) for i in said]
        assert mine == pytest.approx(trajectory.logprobs, abs=1e-4)
    assert read


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_remote_env_runners_have_the_same(model_dir: Path) -> None:
    games = []
    for runners in (0, 2):
        config = frozen(model_dir, "full", verifier_refresh=1, round_size=4)
        algorithm = config.env_runners(num_env_runners=runners).build_algo()
        for _ in range(3):
            algorithm.train()
        games.append(algorithm.last_games)
        algorithm.stop()
    assert games[0] == games[1]


REFUSED = [
    ("learning.verifier_refresh", {"verifier": "policy"}, {"verifier_refresh": 2}, "nobody reads"),
    ("learning.verifier_model", {"verifier": "world"}, {"verifier_model": "m"}, "nobody reads"),
    ("learning.verifier_model", {}, {"verifier_model": "m", "verifier_refresh": 2}, "one of them"),
    ("game.verifier", {}, {"engine": "vllm"}, "memory for one model"),
    (
        "learning.verifier_refresh",
        {},
        {"verifier_refresh": 1, "policies": "separate", "learning_roles": ("proposer",)},
        "does not learn",
    ),
]


@pytest.mark.parametrize(("field", "game", "learning", "says"), REFUSED)
def test_what_cannot_work_is_refused(
    field: str, game: dict[str, Any], learning: dict[str, Any], says: str, model_dir: Path
) -> None:
    config = frozen(model_dir, **learning)
    config.env_config["game"].update(game)
    with pytest.raises(ConfigError, match=says) as caught:
        config.validate()
    assert caught.value.field == field


def test_a_verifier_of_other_tokens_is_refused(model_dir: Path) -> None:
    config = frozen(model_dir, verifier_model=str(shipped_directory("wiki-sentences")))
    with pytest.raises(ConfigError, match="its tokenizer is not that of"):
        config.validate()
