"""What ends a turn: the tokenizer's end token, generation_config's and the chat template's."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hf_tokenizers as hf
import pytest
from scripted import word_tokenizer

from ssp_env.errors import ModelError, TokenizerError
from ssp_env.game.config import GameConfig
from ssp_env.game.outcome import Ending
from ssp_env.game.prompts import Prompts, tags_of
from ssp_env.game.protocol import Tags
from ssp_env.game.trajectory import Limits, Trajectory
from ssp_env.tokenizers import BPETokenizer, ByteTokenizer, HuggingFaceTokenizer
from ssp_env.tokenizers.base import end_ids
from ssp_env.types import Role

FUNCTIONS = (
    "{% for m in messages %}<|im_start|>{{ m['content'] }}"
    "{{ '<|eom_id|>' if m.get('tool_calls') else '<|eot_id|>' }}\n{% endfor %}"
)


def named(tokenizer: HuggingFaceTokenizer) -> set[str]:
    return set(tokenizer.inner.convert_ids_to_tokens(sorted(tokenizer.end_ids)))


def base_model(**options: Any) -> Any:
    """As many base models come: the template ends messages with another token than theirs."""
    return hf.byte_level(tags=True, chat=True, eos_token="<|endoftext|>", **options)


def test_the_end_of_a_message_ends_a_turn(tmp_path: Path) -> None:
    inner = base_model()
    assert named(HuggingFaceTokenizer(inner)) == {"<|endoftext|>", "<|im_end|>"}
    inner.chat_template = None
    inner.save_pretrained(tmp_path)
    assert named(HuggingFaceTokenizer.load(tmp_path)) == {"<|endoftext|>"}

    file, ids = tmp_path / "generation_config.json", inner.convert_tokens_to_ids
    file.write_text(json.dumps({"eos_token_id": [ids("<|eot_id|>"), ids("<|im_end|>"), 999_999]}))
    found = HuggingFaceTokenizer.load(tmp_path)
    assert named(found) == {"<|endoftext|>", "<|eot_id|>", "<|im_end|>"}
    assert found.eos_id == ids("<|endoftext|>")
    file.write_text('{"eos_token_id": "<|im_end|>"}')
    with pytest.raises(ModelError, match=r"eos_token_id is '<\|im_end\|>'; give a token id"):
        HuggingFaceTokenizer.load(tmp_path)


def test_messages_that_call_a_function_end_as_well() -> None:
    inner = hf.byte_level(tags=True)
    inner.chat_template = FUNCTIONS
    assert named(HuggingFaceTokenizer(inner)) == {"<|im_end|>", "<|eot_id|>", "<|eom_id|>"}


def test_without_an_end_token() -> None:
    inner = hf.byte_level(eos_token=None)
    with pytest.raises(TokenizerError, match=r"no token .* ends a turn; set eos_token"):
        HuggingFaceTokenizer(inner)
    inner.chat_template = hf.CHAT
    ended = HuggingFaceTokenizer(inner)
    assert named(ended) == {"<|im_end|>"}
    assert ended.eos_id in ended.end_ids


def test_tokenizers_of_ones_own_may_have_one_end_or_none() -> None:
    for tokenizer in (ByteTokenizer(), BPETokenizer(), word_tokenizer()):
        assert end_ids(tokenizer) == {tokenizer.eos_id}
    assert end_ids(SimpleNamespace(eos_id=None)) == frozenset()  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["<|im_end|>", "<|endoftext|>"])
def test_nothing_behind_an_end_is_taken(end: str) -> None:
    tokenizer = HuggingFaceTokenizer(base_model())
    limits = Limits.of(Role.SOLVER, GameConfig(), tokenizer, Tags())
    written = tokenizer.encode(f"I do not know.{end}<answer> mentor </answer>")
    turn = Trajectory(limits, [])
    taken = turn.feed_turn(written)
    assert turn.ending is Ending.FORMAT
    assert tokenizer.decode(turn.ids) == f"I do not know.{end}"
    assert (len(turn.ids), sum(turn.mask)) == (taken, taken)

    spoken = Trajectory(limits, [])
    spoken.feed_text(f"so<think> {end} </think><answer> mentor </answer>")
    assert spoken.ending is Ending.FORMAT, "also inside a thought"
    # As text in the letters of the alphabet it ends nothing.
    spelled = Trajectory(limits, [])
    letters = [i for letter in end for i in tokenizer.encode(letter)]
    spelled.feed_turn([*letters, *tokenizer.encode("<answer> mentor </answer>")])
    assert spelled.result == "mentor"


def test_a_call_before_an_end_of_a_turn_counts() -> None:
    """Such as Llama's, before ``<|eom_id|>``."""
    inner = hf.byte_level(tags=True)
    inner.chat_template = FUNCTIONS
    tokenizer = HuggingFaceTokenizer(inner)
    tags = Tags(call="tool_call")
    limits = Limits.of(Role.SOLVER, GameConfig(), tokenizer, tags)
    call = '<|python_tag|>{"name": "answer", "parameters": {"text": "mentor"}}'
    for end in ("<|eom_id|>", "<|eot_id|>", "<|im_end|>"):
        turn = Trajectory(limits, [])
        turn.feed_text(f"{call}{end} and more")
        assert turn.result == "mentor"
        assert tokenizer.decode(turn.ids) == call, "what is behind it is not taken"


def test_engines_stop_at_all_of_them() -> None:
    base = pytest.importorskip("ssp_agents.engines.base")
    tokenizer = HuggingFaceTokenizer(base_model())
    stop = base.StopRule.of(GameConfig(), tokenizer)
    assert stop.token_ids >= tokenizer.end_ids
    assert len(tokenizer.end_ids) == 2
    assert tags_of("plain") == Tags()


# -- chat templates ----------------------------------------------------------------------------


def test_today_is_always_the_same_day() -> None:
    inner = hf.byte_level(chat=True)
    dated = "\n{% set now = strftime_now('%-d %B %Y') %}{{ now }}, {{ strftime_now('%Y-%m-%d') }}, "
    inner.chat_template = dated + "{{ date_string }}: " + hf.CHAT
    opening, _ = HuggingFaceTokenizer(inner).chat_frame()
    assert opening == "\n26 July 2024, 2024-07-26, 26 Jul 2024: <|im_start|>user\n"


def test_named_templates() -> None:
    inner = hf.byte_level(chat=True)
    inner.chat_template = {"rag": hf.CHAT, "tool_use": hf.CHAT}
    with pytest.raises(TokenizerError, match=r"templates are rag, tool_use; name one of them def"):
        HuggingFaceTokenizer(inner)
    inner.chat_template = {"default": hf.CHAT, "tool_use": "never"}
    assert HuggingFaceTokenizer(inner).chat_frame()[0] == "<|im_start|>user\n"


def test_added_tokens_that_the_decoder_rewrites() -> None:
    """Gemma's runs of spaces are added tokens that are written as ``▁▁``."""
    inner = hf.sentencepiece()
    inner.add_tokens(["▁▁", "▁▁▁"])
    tokenizer = HuggingFaceTokenizer(inner)
    for token, text in (("▁▁", b"  "), ("▁▁▁", b"   "), ("<s>", b"<s>")):
        assert tokenizer.pieces[inner.convert_tokens_to_ids(token)] == text


@pytest.mark.parametrize("mark", ["[System]", "[system] ", " [ SYSTEM ]\t", "\ufeff[system]"])
def test_prompt_files_are_read_as_what_they_mean(mark: str, tmp_path: Path) -> None:
    tokenizer = HuggingFaceTokenizer(hf.byte_level(chat=True))
    for name in ("proposer", "document", "nothing"):
        (tmp_path / f"{name}.txt").write_text("{answer}{text}"[: 8 if name == "proposer" else 0])
    (tmp_path / "document.txt").write_text("{text}")
    told = f"{mark}\nBe brief.\n[User]\n{{question}}\n"
    (tmp_path / "solver.txt").write_text(told, encoding="utf-8")
    (tmp_path / "verifier.txt").write_text("{documents} {question}")
    text = tokenizer.decode(Prompts.open(str(tmp_path), tokenizer).solver("Who?", 1))
    said = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n"
    assert text == f"{said}<|im_start|>assistant\n"


def test_an_author_that_is_misspelled_is_named(tmp_path: Path) -> None:
    from ssp_env.errors import ConfigError
    from ssp_env.game.prompts.sets import authored

    with pytest.raises(ConfigError, match=r"\[asistant\].*did you mean 'assistant'"):
        authored("solver", "a\n[asistant]\nb")
    assert authored("solver", "a\n[1]\n[Danube] b\n") == [("user", "a\n[1]\n[Danube] b")]
