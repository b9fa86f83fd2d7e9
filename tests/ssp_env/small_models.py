"""Small models of the kinds that search needs, built on the spot. Needs `transformers` and
`torch`."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

LETTERS = string.ascii_lowercase + string.digits + ":.,?"
SMALL: dict[str, Any] = {
    "vocab_size": 5 + 2 * len(LETTERS),
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}


def bert_encoder(folder: Path, *, seed: int = 0, kind: Any = BertModel, **config: Any) -> Path:
    """A BERT of one layer that reads letter by letter, saved as plain transformers files."""
    torch.manual_seed(seed)
    kind(BertConfig(**SMALL, **config)).save_pretrained(folder)
    _tokenizer(folder).save_pretrained(folder)
    return folder


def bert_cross_encoder(folder: Path, *, labels: int = 1) -> Path:
    """The same with an output for pairs of texts."""
    return bert_encoder(folder, kind=BertForSequenceClassification, num_labels=labels)


def _tokenizer(folder: Path) -> BertTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*special, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "vocab.txt"
    path.write_text("\n".join(vocabulary) + "\n")
    return BertTokenizerFast(
        vocab={token: i for i, token in enumerate(vocabulary)}, model_max_length=64
    )
