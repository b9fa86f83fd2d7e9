"""Tokenizers: bytes, words, a packaged byte-pair encoding, or any of `transformers`."""

from ssp_env.tokenizers.base import Tokenizer
from ssp_env.tokenizers.bpe import BPETokenizer
from ssp_env.tokenizers.bytes import ByteTokenizer
from ssp_env.tokenizers.huggingface import HuggingFaceTokenizer
from ssp_env.tokenizers.words import WordTokenizer

__all__ = ["BPETokenizer", "ByteTokenizer", "HuggingFaceTokenizer", "Tokenizer", "WordTokenizer"]
