"""What a GGUF file says that `transformers` does not take from it: how text is split before bytes
are merged, and that an embedding stands in it twice.

A byte-level vocabulary is right with one split alone. The file names it (``tokenizer.ggml.pre``);
the patterns are those of the ``tokenizer.json`` files that the models' makers published."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, normalizers, pre_tokenizers

from ssp_env.errors import ModelError

_log = logging.getLogger(__name__)

_ALIKE = 0.95
"""Cosine from which two matrices count as roundings of one: those to four bits have .99 and more,
matrices that were trained apart next to none."""

# Line breaks with the blanks before them, blanks but for the last one before a word, other blanks.
_ENDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_MARKED = r"[^\r\n\p{L}\p{N}]?"
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# Letters that have a case.
_CASED = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅ"
    "ὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇ"
    "Ꞌ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)


def _by_case(suffix: str, digits: str) -> str:
    """Words that end where capitals begin."""
    words = rf"{_MARKED}[{_UPPER}]*[{_LOWER}]+{suffix}|{_MARKED}[{_UPPER}]+[{_LOWER}]*{suffix}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_ENDS}"


def _by_letters(digits: str, letters: str = r"\p{L}") -> str:
    marks = r"\p{M}" if "M" in letters else ""
    words = rf"{_SUFFIX}|{_MARKED}{letters if marks == '' else f'[{letters}]'}+|{digits}"
    return rf"{words}| ?[^\s\p{{L}}{marks}\p{{N}}]+[\r\n]*|{_ENDS}"


@dataclass(frozen=True)
class _Split:
    """How a text is split: by patterns one after the other; none: as GPT-2 does."""

    patterns: tuple[str, ...] = ()
    digits: bool = False
    """Each digit by itself."""
    composes: bool = False
    """The text is composed first (NFC)."""
    whole_words: bool = False
    """A word of the vocabulary is a token, whatever its merges."""


_GPT2, _DIGITS = _Split(), _Split(digits=True)
_LLAMA3 = _Split((_by_letters(r"\p{N}{1,3}"),), whole_words=True)
_CL100K = _Split(_LLAMA3.patterns)
_QWEN2 = _Split((_by_letters(r"\p{N}"),), composes=True)
_QWEN35 = _Split((_by_letters(r"\p{N}", r"\p{L}\p{M}"),), composes=True)
_TEKKEN = _Split((_by_case("", r"\p{N}"),), whole_words=True)
_GPT4O = _Split((_by_case(f"{_SUFFIX}?", r"\p{N}{1,3}"),), whole_words=True)
_DEEPSEEK_LLM = _Split(
    ("[\r\n]", rf"\s?[{_CASED}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", _CJK), digits=True
)
_DEEPSEEK_CODER = _Split(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK), digits=True)
_DEEPSEEK_V3 = _Split(
    (
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _ENDS,
    )
)


def _named(split: _Split, names: str) -> dict[str, _Split]:
    return dict.fromkeys(names.split(), split)


SPLITS: Mapping[str, _Split] = {
    **_named(_GPT2, "gpt-2 phi-2 mpt olmo jais modern-bert roberta-bpe exaone4 granite-docling"),
    **_named(_DIGITS, "smollm starcoder refact codeshell exaone minerva-7b"),
    **_named(_LLAMA3, "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2"),
    **_named(_CL100K, "dbrx smaug-bpe glm4 chatglm-bpe"),
    **_named(_QWEN2, "qwen2 deepseek-r1-qwen kormo megrez"),
    **_named(_GPT4O, "gpt-4o llama4 kanana2"),
    "command-r": _Split(digits=True, composes=True),
    "qwen35": _QWEN35,
    "tekken": _TEKKEN,
    "deepseek-llm": _DEEPSEEK_LLM,
    "deepseek-coder": _DEEPSEEK_CODER,
    "deepseek-v3": _DEEPSEEK_V3,
}
"""Splits of byte-level vocabularies by the names that GGUF files have for them."""


def with_split(tokenizer: Any, file: Path) -> Any:
    """A GGUF file's tokenizer, as `transformers` reads it, with the split that the file names.

    ``ModelError`` for a split that is not known here: with another one, the model would be shown
    tokens that it has never seen side by side."""
    from transformers import PreTrainedTokenizerFast

    model, name = _fields(file, ("tokenizer.ggml.model", "tokenizer.ggml.pre"))
    backend = tokenizer.backend_tokenizer
    if model == "gpt2" and name in (None, "default"):
        _log.warning("%s does not say how its tokenizer splits text: as GPT-2's does", file.name)
    elif model == "gpt2":
        if name not in SPLITS:
            fix = "give a directory with the model's own tokenizer.json, or another file of it"
            what = f"{file} names a split of text that is not known here, {name!r}"
            raise ModelError(f"{what} (tokenizer.ggml.pre); {fix}")
        split = SPLITS[name]
        backend.pre_tokenizer = _pre_tokenizer(split)
        if split.composes:
            backend.normalizer = normalizers.NFC()
        backend.model.ignore_merges = split.whole_words

    # As plain files of the Rust library: classes of some models would put in a split of their own.
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    special = {n: getattr(tokenizer, n) for n in names if getattr(tokenizer, n) is not None}
    plain = PreTrainedTokenizerFast(tokenizer_object=backend, **special)
    plain.chat_template = tokenizer.chat_template
    return plain


def _pre_tokenizer(split: _Split) -> Any:
    steps: list[Any] = [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in split.patterns
    ]
    if split.digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    use_default_pattern = not split.patterns
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_default_pattern))
    return steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)


# -- one embedding, two copies -----------------------------------------------------------------


def tie_copies(lm: Any, file: Path) -> None:
    """Ties output layer and embedding where a GGUF file holds two roundings of one matrix, as of
    models that were trained so; the more exact one stays."""
    embedding, output = lm.get_input_embeddings(), lm.get_output_embeddings()
    if output is None or output.weight is embedding.weight:
        return
    if output.weight.shape != embedding.weight.shape:
        return
    # A look at some rows: vocabularies are large.
    rows = torch.linspace(0, len(output.weight) - 1, 256).long()
    one, other = embedding.weight.data[rows].flatten(), output.weight.data[rows].flatten()
    if torch.cosine_similarity(one, other, dim=0) < _ALIKE:
        return

    sizes, kinds = _tensors(file, ("token_embd.weight", "output.weight"))
    # The larger copy has more bits for each number, so it is the more exact one.
    kept = int(sizes[1] > sizes[0])
    embedding.weight.data = (embedding, output)[kept].weight.data
    output.weight = embedding.weight
    lm.config.tie_word_embeddings = True
    said = "%s holds its embedding twice (%s, %s): tied, and the copy in %s is kept"
    _log.warning(said, file.name, *kinds, kinds[kept])


def _fields(file: Path, names: Iterable[str]) -> list[Any]:
    from gguf import GGUFReader

    fields = GGUFReader(file).fields
    return [fields[name].contents() if name in fields else None for name in names]


def _tensors(file: Path, names: Iterable[str]) -> tuple[list[int], list[str]]:
    from gguf import GGUFReader

    by_name = {tensor.name: tensor for tensor in GGUFReader(file).tensors}
    tensors = [by_name[name] for name in names]
    return [int(tensor.n_bytes) for tensor in tensors], [
        tensor.tensor_type.name for tensor in tensors
    ]
