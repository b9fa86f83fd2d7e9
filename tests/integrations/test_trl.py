"""TRL's GRPOTrainer plays both roles: what its loss sees are our tokens, masks and rewards."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from recorded import SETUP, Recorded

import ssp_env
from ssp_env.envs.chat import reward_of
from ssp_env.errors import ConfigError

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
pytest.importorskip("trl", reason="trl is not installed; run: make integrations")

EXAMPLES = Path(__file__).parents[2] / "examples"
ATTEMPTS = 4
ROWS = ATTEMPTS * (1 + ATTEMPTS)


def trainer_of(
    folder: Path,
    tokenizer: Any,
    rows: list[dict[str, Any]],
    kind: Any = None,
    cut_off: bool = False,
    loss_type: str = "dapo",
    **more: Any,
) -> Any:
    """A trainer of a tiny model, for one step on all rows; ``cut_off``: TRL masks what is."""
    import torch
    from datasets import Dataset
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=32,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    arguments = GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        activation_checkpointing=False,
        dataloader_pin_memory=False,
        max_steps=1,
        per_device_train_batch_size=len(rows),
        num_generations=ATTEMPTS,
        max_completion_length=12,
        scale_rewards="none",
        mask_truncated_completions=cut_off,
        loss_type=loss_type,
        shuffle_dataset=False,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    return (kind or GRPOTrainer)(
        model=Qwen3ForCausalLM(config),
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        **more,
    )


def packaged_tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(Path(ssp_env.__file__).parent / "tokenizers/data/bpe")


def batch_of(folder: Path, recorded: Recorded, **more: Any) -> dict[str, Any]:
    """What TRL's loss gets of recorded games, and the ``loss``."""
    import trl_ssp

    def write(trainer: Any, turns: list[Any]) -> list[Any]:
        said = [recorded.rules.tokenizer.encode(recorded.writing[tuple(t.ids)]) for t in turns]
        return [(ids, [-0.5] * len(ids)) for ids in said]

    rollout = trl_ssp.rollouts(write, rules=recorded.rules)
    rows = [{"prompt": str(seed)} for seed in range(ROWS // ATTEMPTS)] * ATTEMPTS
    given = {"reward_funcs": [trl_ssp.earned], "rollout_func": rollout, **more}
    trainer = trainer_of(folder, packaged_tokenizer(), rows, **given)
    seen: list[Any] = []
    compute = trainer._compute_loss

    def kept(model: Any, inputs: Any) -> Any:
        loss = compute(model, inputs)
        seen.append({**inputs, "loss": loss.item()})
        return loss

    trainer._compute_loss = kept
    trainer.train()
    (batch,) = seen
    return dict(batch)


def test_tokens_masks_and_rewards_equal_ours(tmp_path: Path) -> None:
    recorded = Recorded(ATTEMPTS, game={"attempts": ATTEMPTS})
    batch = batch_of(tmp_path, recorded)
    # TRL shuffles what it has generated, so rows are found by their tokens.
    found = []
    for i in range(ROWS):
        prompt = batch["prompt_ids"][i][batch["prompt_mask"][i] == 1].tolist()
        kept = batch["completion_mask"][i] == 1
        written = batch["completion_ids"][i][kept].tolist()
        mask = batch["tool_mask"][i][kept].tolist()
        found.append((prompt + written, [0] * len(prompt) + mask, float(batch["advantages"][i])))

    expected = []
    groups = [[(g, g.proposer) for g in recorded.games]]
    for game in recorded.games:
        groups.append([(game, attempt.trajectory) for attempt in game.attempts])
    for group in filter(None, groups):
        rewards = [float(reward_of(game, t) or 0.0) for game, t in group]
        mean = sum(rewards) / len(rewards)
        for (_, t), reward in zip(group, rewards, strict=True):
            expected.append((t.ids, list(t.mask), pytest.approx(reward - mean)))
    fillers = ROWS - len(expected)
    expected += [([recorded.rules.tokenizer.pad_id] * 2, [0, 0], 0.0)] * fillers

    assert 0 < fillers < ROWS - ATTEMPTS, "some games are invalid"
    assert sorted(found, key=lambda row: (row[0], row[2])) == sorted(
        expected, key=lambda row: (row[0], getattr(row[2], "expected", row[2]))
    )


def learnt(batch: dict[str, Any]) -> int:
    """Tokens that are in the loss."""
    return int((batch["completion_mask"] * batch["tool_mask"]).sum())


def test_what_trl_takes_for_cut_off_is_what_ran_out_of_tokens(tmp_path: Path) -> None:
    recorded = Recorded(ATTEMPTS, game={"attempts": ATTEMPTS})
    plain = batch_of(tmp_path / "plain", recorded)
    masked = batch_of(tmp_path / "masked", recorded, cut_off=True)
    assert learnt(masked) == learnt(plain) == int(masked["num_items_in_batch"]) > 0


def some(completions: Any, earned: Any, **_: Any) -> list[float | None]:
    """Every other game is void."""
    return [None if i % 2 else reward for i, reward in enumerate(earned)]


def test_a_void_game_is_no_part_of_the_loss(tmp_path: Path) -> None:
    """Of which TRL's own trainer divides by its tokens."""
    import trl_ssp

    recorded = Recorded(ATTEMPTS, game={"attempts": ATTEMPTS})
    theirs = batch_of(tmp_path / "theirs", recorded, reward_funcs=[some])
    ours = batch_of(tmp_path / "ours", recorded, reward_funcs=[some], kind=trl_ssp.Trainer)
    assert 0 < learnt(ours) < learnt(theirs)
    assert int(ours["num_items_in_batch"]) == learnt(ours)
    assert not ours["advantages"][ours["completion_mask"].sum(1) == 0].any()


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo"])
def test_no_loss_divides_by_void_games(loss_type: str, tmp_path: Path) -> None:
    """At the first step, each token's loss is minus the advantage of its row."""
    import trl_ssp

    class Trainer(trl_ssp.Trainer):
        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            batch = super()._generate_and_score_completions(inputs)
            return {**batch, "advantages": batch["advantages"] ** 2}  # their sum is not 0

    recorded = Recorded(ATTEMPTS, game={"attempts": ATTEMPTS})
    given = {"reward_funcs": [some], "kind": Trainer, "loss_type": loss_type}
    batch = batch_of(tmp_path, recorded, **given)
    mask = batch["completion_mask"] * batch["tool_mask"]
    tokens, advantages = mask.sum(1), batch["advantages"]
    counted = int((batch["completion_mask"].sum(1) > 0).sum())
    assert 0 < counted < ROWS
    expected = {
        "dapo": float((advantages * tokens).sum() / tokens.sum()),
        "grpo": float(advantages[tokens > 0].sum() / counted),
        "dr_grpo": float((advantages * tokens).sum() / counted / 12),  # max_completion_length
    }
    assert expected[loss_type] != 0
    assert batch["loss"] == pytest.approx(-expected[loss_type], abs=1e-6)


def test_the_models_own_tokens_are_recorded(tmp_path: Path) -> None:
    """A random model, sampled by transformers: its log-probabilities are what TRL computes."""
    import torch
    import trl_ssp

    rollout = trl_ssp.rollouts(**SETUP, game={"attempts": ATTEMPTS})
    rows = [{"prompt": str(seed)} for seed in range(ROWS // ATTEMPTS)]
    trainer = trainer_of(
        tmp_path,
        packaged_tokenizer(),
        rows * ATTEMPTS,
        reward_funcs=[trl_ssp.earned],
        rollout_func=rollout,
    )
    out = rollout(["3"] * ROWS, trainer)
    assert {len(column) for column in out.values()} == {ROWS}
    ids = torch.tensor([out["prompt_ids"][0] + out["completion_ids"][0]])
    written = len(out["completion_ids"][0])
    logits = trainer.model(input_ids=ids).logits.float().log_softmax(-1)
    exact = logits[0, :-1].gather(-1, ids[0, 1:, None])[-written:, 0].tolist()
    assert out["logprobs"][0] == pytest.approx(exact, abs=1e-4)
    with pytest.raises(ConfigError, match="20 rows in a batch"):
        rollout(["3"] * 8, trainer)


def test_tools_of_both_roles_train_in_one_run(tmp_path: Path) -> None:
    import trl_ssp

    example = runpy.run_path(str(EXAMPLES / "trl_grpo.py"))
    roles = trl_ssp.environments(world="small")
    solver, proposer = roles["solver"](), roles["proposer"]()
    text, own = solver.reset(seed=3), ssp_env.TextRole("solver", world="small")
    assert text == own.reset(3)[0]
    assert solver.search("Danar") == own.step("<search> Danar </search>")[0]
    solver.answer(own.game.truth.answer)
    assert solver.get_reward() == 1.0
    proposer.reset(seed=3)
    proposer.ask("what is the owner of Danar ?")
    assert proposer.get_reward() == 0.0, "asked without a search"

    tools = [solver.search, solver.answer, proposer.search, proposer.ask]
    texts = [str(example["get_json_schema"](tool)) for tool in tools]
    tokenizer = example["make_tokenizer"]([*texts, example["qwen2_5_chat_template"]])
    prompt = [{"role": "user", "content": ""}]
    rows = [
        {"prompt": prompt, "environment": role, "seed": seed}
        for seed, role in enumerate(("solver", "proposer"))
    ]
    trainer = trainer_of(tmp_path, tokenizer, rows * 2, environment_factory=roles)
    trainer.train()
    assert {"rewards/Solver/mean", "rewards/Proposer/mean"} <= trainer.state.log_history[0].keys()


@pytest.mark.parametrize("world", ["mini", "wiki-sentences"])
def test_a_policy_that_ships_is_trained_and_saved(world: str, tmp_path: Path) -> None:
    words = ["--world", world, "--steps", "1", "--attempts", "3"]
    words += ["--save", str(tmp_path / "policy")]
    command = [sys.executable, str(EXAMPLES / "trl_self_play.py"), *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "step 1: mean reward " in ran.stdout
    assert (tmp_path / "policy" / "model.safetensors").is_file()


@pytest.mark.parametrize("setup", [{"world": "small"}, SETUP])
def test_sampling_stops_behind_an_action_and_not_behind_a_thought(setup: Any) -> None:
    import torch
    import trl_ssp

    rules = ssp_env.TextGame(**setup).rules
    stop = trl_ssp._AtTheEndOf(rules)
    for text, ends in {
        "<think> it is Danar </think>": False,
        "<think> it is </think> <search> Danar </search>": True,
        "<answer> Danar": False,
    }.items():
        assert stop(torch.tensor([rules.tokenizer.encode(text)]), None).tolist() == [ends]
