"""``ssp bootstrap``, ``ssp export``: model directories, in full or not at all; or a GGUF file.
``ssp imitate``: supervised steps that make a model play, and leave a policy to go on with."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import metrics, sets
from safetensors.torch import load_file
from tests.ssp_env.worlds.few import few_passages
from transformers import AutoModelForCausalLM, AutoTokenizer

from ssp_agents.architecture import TOKENS
from ssp_agents.batches import columns_of
from ssp_agents.causal_lm import states_after_prefix
from ssp_agents.checksums import CHECKSUMS
from ssp_agents.models import (
    adapt,
    load_model,
    save_policy,
    shipped_directory,
    tiny_directory,
)
from ssp_agents.rows import Row
from ssp_agents.sharding import save_shares
from ssp_env.cli import main
from ssp_env.tokenizers import HuggingFaceTokenizer
from ssp_experiments.config import RunConfig
from ssp_experiments.run.checks import check_model

IDS = torch.arange(3, 40)[None]


def test_bootstrap_makes_a_model_directory(tmp_path: Path) -> None:
    out = tmp_path / "models" / "base"
    assert main(["bootstrap", "--steps", "2", "--out", str(out)]) == 0
    check_model(out)
    load_model(out)
    assert HuggingFaceTokenizer.load(out).encode("<search>")
    origin = json.loads((out / "origin.json").read_text())
    command = "ssp bootstrap --seed 0 --steps 2 --width 128 --out DIR"
    assert origin["command"] == command
    assert origin["sha256"] == hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
    assert [child.name for child in out.parent.iterdir()] == ["base"]


def test_interrupted_bootstrap_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminated(*_: object) -> None:
        assert (tmp_path / "models" / ".base.unfinished").exists()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("ssp_agents.shipped.tiny.bootstrap.bootstrap", terminated)
    assert main(["bootstrap", "--out", str(tmp_path / "models" / "base")]) == 130
    assert capsys.readouterr().err.endswith("stopped; nothing is kept\nssp: interrupted\n")
    assert not list(tmp_path.iterdir())


def trained(rank: int = 0) -> Any:
    """A model that differs from the one that ships."""
    lm = load_model(tiny_directory())
    if rank:
        adapt(lm, rank, seed=0)
    with torch.no_grad():
        for parameter in lm.parameters():
            if parameter.requires_grad:
                parameter.add_(0.01 * torch.ones_like(parameter))
    return lm


def test_a_policy_is_exported_from_what_learners_wrote(tmp_path: Path) -> None:
    lm, out = trained(rank=2), tmp_path / "out"
    module = torch.nn.ModuleDict({"lm": lm})  # names its weights as RLlib's module does
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad])
    save_shares(module, optimizer, tmp_path / "checkpoint" / "algorithm" / "learner")
    words = ["export", str(tmp_path / "checkpoint"), "--model", str(tiny_directory())]
    assert main([*words, "-o", str(out)]) == 0

    # As somebody else's code loads it.
    AutoTokenizer.from_pretrained(out)
    exported = AutoModelForCausalLM.from_pretrained(out).eval()
    with torch.no_grad():
        torch.testing.assert_close(exported(IDS).logits, lm(IDS).logits, atol=1e-4, rtol=1e-4)
    assert not any("lora" in file.read_text() for file in out.glob("*.json"))


def test_the_newest_checkpoint_of_a_run_is_exported_and_rounded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lm = trained()
    for step, weights in ((2, load_model(tiny_directory())), (10, lm)):
        policy = tmp_path / "run" / "checkpoints" / f"step_{step:06d}" / "policy"
        save_policy(dict(weights.state_dict()), tiny_directory(), policy)

    out = ["-o", str(tmp_path / "out"), "--dtype", "bfloat16"]
    assert main(["export", str(tmp_path / "run"), *out]) == 0
    held = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert {tensor.dtype for tensor in held.values()} == {torch.bfloat16}
    assert all(torch.equal(held[n], w.bfloat16()) for n, w in lm.state_dict().items())

    assert main(["export", str(tmp_path / "run"), *out]) == 2
    assert "is not empty" in capsys.readouterr().err


# -- a GGUF file -------------------------------------------------------------------------------


@pytest.fixture
def gguf_file(stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That model as llama.cpp would write it, and an empty cache."""
    gguf = pytest.importorskip("gguf")
    monkeypatch.setenv("SSP_CACHE", str(tmp_path / "cache"))
    lm, tokenizer = load_model(stranger), AutoTokenizer.from_pretrained(stranger)
    path, config = tmp_path / "stranger.gguf", lm.config
    writer: Any = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])

    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
    merges = json.loads((stranger / "tokenizer.json").read_text())["model"]["merges"]
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, config.num_hidden_layers)
    for name, tensor in lm.named_parameters():
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), tensor.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_is_the_same_model_and_is_converted_once(
    gguf_file: Path, stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunConfig(model=str(gguf_file)).model_dir
    ids = torch.arange(20)[None]
    with torch.no_grad():
        logits = [load_model(path)(input_ids=ids).logits for path in (folder, stranger)]
    assert torch.allclose(*logits, atol=1e-6)

    written = (folder / CHECKSUMS).stat().st_mtime_ns
    assert main(["plan", "--model", str(gguf_file), "--preset", "h200"]) == 0
    assert f"{gguf_file}: " in capsys.readouterr().out
    assert (folder / CHECKSUMS).stat().st_mtime_ns == written


# -- ssp imitate -------------------------------------------------------------------------------

few_passages = few_passages

SMALL = sets("learning.batch_size=16", "game.max_response_tokens=128", "per_group=3")
EVERY = sets("checkpoint_every=5")
WIKI = ["--preset", "wiki-small", *sets("game.max_response_tokens=256")]


def imitate(policy: Path, out: Path, *more: str) -> Path:
    """Runs the command; returns the policy that it left."""
    words = ["imitate", "--model", str(policy), "--out", str(out), "--measured", "2", *SMALL]
    assert main([*words, *more]) == 0
    return max(out.glob("checkpoints/step_*/policy"))


def test_a_script_is_learnt_from(
    untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taught = imitate(untrained, tmp_path / "run", "--steps", "12", "--lr", "4e-3", *EVERY)
    now = f"ssp train --preset tiny --set model={taught} --set per_group=3 "
    assert now in capsys.readouterr().err, "with the settings that are no imitation's own"

    losses = [line["imitation_loss"] for line in metrics(tmp_path / "run")]
    assert len(losses) == 12
    kept = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert kept == ["step_000010", "step_000012"]
    assert losses[-1] < 0.8 * losses[0]
    base, own = (load_file(path / "model.safetensors") for path in (untrained, taught))
    assert base.keys() == own.keys()
    assert not all(torch.equal(base[name], own[name]) for name in base)


def test_interrupted_imitation_goes_on_to_the_same_result(
    untrained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def columns(rows: Sequence[Row]) -> dict[str, np.ndarray]:
        os.kill(os.getpid(), signal.SIGTERM)
        return columns_of(rows)

    monkeypatch.setattr("ssp_experiments.commands.imitate.columns_of", columns)
    run, rank = tmp_path / "run", sets("learning.lora_rank=2")
    words = ["imitate", "--model", str(untrained), "--measured", "2", *SMALL, *rank]
    assert main([*words, "--steps", "3", "--out", str(run)]) == 130
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step_000001"]

    monkeypatch.undo()
    resumed = imitate(untrained, run, "--steps", "3", *rank, "--resume")
    straight = imitate(untrained, tmp_path / "straight", "--steps", "3", *rank)
    assert metrics(run) == metrics(straight.parents[2])
    found, expected = (load_file(path / "model.safetensors") for path in (resumed, straight))
    assert all(torch.equal(found[name], expected[name]) for name in expected)

    # What is not the same command again, or no imitation, is told.
    games = tmp_path / "games.jsonl"
    assert main(["eval", "--per-group", "2", "--out", str(games)]) == 0
    again = [*words, "--steps", "3", "--out", str(run), "--resume"]
    proposer = ["--games", str(games), *sets("learning.learning_roles=[proposer]")]
    for command, says in (
        ([*again, "--games", str(games)], "holds an imitation of other games"),
        ([*again, *sets("learning.kl_coeff=.1")], "say 0.0: leave it out"),
        ([*again, "--verifier", "policy"], "Unknown option: --verifier"),
        ([*words, *proposer, "--out", str(tmp_path / "no")], "nothing valid by proposer"),
        (["train", "--resume", "--out", str(run)], "an imitation, which ssp imitate goes on with"),
        (["imitate", *words[1:], "--lr", "1e30", "--out", str(tmp_path / "no")], "lower --lr"),
    ):
        capsys.readouterr()
        assert main(command) == 2
        assert says in capsys.readouterr().err
    assert main(["export", str(run), "-o", str(tmp_path / "model")]) == 0
    assert "taught by demonstrations" in (tmp_path / "model" / "README.md").read_text()


def test_in_wikipedias_sentences_it_learns_from_demonstrations_of_both_roles(
    few_passages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Row] = []

    def columns(rows: Sequence[Row]) -> dict[str, np.ndarray]:
        seen.extend(rows)
        return columns_of(rows)

    monkeypatch.setattr("ssp_experiments.commands.imitate.columns_of", columns)
    taught = imitate(shipped_directory("wiki-sentences"), tmp_path / "run", "--steps", "1", *WIKI)
    assert {row.role for row in seen} == {"proposer", "solver"}
    decode = HuggingFaceTokenizer.load(taught).decode
    own = [decode(row.ids[row.mask == 1].tolist()) for row in seen]
    assert all("<think>" in text for text in own), "what is found is quoted"


def test_adapters_learn_from_recorded_games_of_the_same_tokens(
    untrained: Path, stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    games = str(tmp_path / "games.jsonl")
    assert main(["eval", "--per-group", "2", "--out", games]) == 0
    capsys.readouterr()
    wiki = ["--world", "wiki-mini", *sets("game.prompts=compact", "game.max_prompt_tokens=999")]
    other = ["imitate", "--model", str(stranger), "--out", str(tmp_path / "no"), "--games", games]
    assert main([*other, *wiki, "--measured", "1"]) == 2
    assert "the game was played with another one" in capsys.readouterr().err

    adapted = ["--games", games, "--steps", "1", *sets("learning.lora_rank=2")]
    taught = imitate(untrained, tmp_path / "run", *adapted)
    names = [load_file(p / "model.safetensors").keys() for p in (untrained, taught)]
    assert names[0] == names[1], "merged"


def test_what_examples_of_a_large_model_begin_with_is_read_once(
    stranger: Path, few_passages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def states(lm: Any, ids: torch.Tensor, prefix: int) -> torch.Tensor:
        prefixes.append(prefix)
        return states_after_prefix(lm, ids, prefix)

    for module in ("ssp_agents.architecture", "ssp_experiments.commands.imitate"):
        monkeypatch.setattr(f"{module}.is_small", lambda lm: False)
    # Frozen weights are rounded on every machine, as on those that multiply so.
    half: Any = lambda *_, **__: torch.bfloat16  # noqa: E731
    monkeypatch.setattr("ssp_experiments.commands.imitate.passes_dtype", half)
    monkeypatch.setattr("ssp_agents.scoring.states_after_prefix", states)
    wiki = ["--world", "wiki-mini", *sets("game.prompts=compact", "game.max_prompt_tokens=999")]
    large = sets("learning.lora_rank=2", "learning.batch_size=4", "game.max_response_tokens=2000")
    adapted = [*wiki, "--steps", "1", *large]

    losses = []
    for checkpointed in ("false", "true"):
        prefixes: list[int] = []
        out = tmp_path / checkpointed
        imitate(stranger, out, *adapted, *sets(f"learning.gradient_checkpointing={checkpointed}"))
        losses.append(metrics(out)[0]["imitation_loss"])
        # The trial of whether a model can do so has one of TOKENS // 2.
        assert (max(prefixes, default=0) > TOKENS // 2) == (checkpointed == "false")
    assert losses[0] == pytest.approx(losses[1], abs=0.01)
