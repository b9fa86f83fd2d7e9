"""Fits the packaged byte-pair encoding to the passages of wiki-mini.

    python -m experiments.wiki_mini.tokenizer            # fits and writes
    python -m experiments.wiki_mini.tokenizer --check    # fits and compares only

The result follows from the packaged passages and the version of ``tokenizers``: it counts pairs in
all passages, titles included, and breaks ties by id.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ssp_env.game.protocol import Tags
from ssp_env.tokenizers.bpe import END, PAD
from ssp_env.worlds import wiki_mini

FOLDER = Path(__file__).resolve().parents[2] / "ssp_env" / "tokenizers" / "data" / "bpe"
SIZE = 8192
"""Entries, special tokens included."""


def fit() -> dict[str, bytes]:
    """The files of the tokenizer by name, as ``transformers`` reads them too."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()

    special = [PAD, END, *Tags().all()]
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=[AddedToken(token, normalized=False, special=True) for token in special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)

    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
    }
    return {
        "tokenizer.json": tokenizer.to_str().encode() + b"\n",
        "tokenizer_config.json": json.dumps(config, indent=2).encode() + b"\n",
    }


def _texts() -> Iterator[str]:
    for document in wiki_mini().corpus:
        yield f"[{document.title}] {document.text}"


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the files, or reports which differ from those that are packaged."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check: bool = parser.parse_args(argv).check

    differing = []
    for name, content in fit().items():
        path = FOLDER / name
        if check:
            differing += [name] if not path.is_file() or path.read_bytes() != content else []
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    for name in differing:
        print(f"{name} is not what the passages give", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
