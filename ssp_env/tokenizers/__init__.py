"""Tokenizers: bytes, words, or any of `transformers`."""

from ssp_env.tokenizers.base import Tokenizer
from ssp_env.tokenizers.bytes import ByteTokenizer
from ssp_env.tokenizers.huggingface import HuggingFaceTokenizer
from ssp_env.tokenizers.words import WordTokenizer

__all__ = ["ByteTokenizer", "HuggingFaceTokenizer", "Tokenizer", "WordTokenizer"]
