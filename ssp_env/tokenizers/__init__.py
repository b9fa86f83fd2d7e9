"""Tokenizers: bytes, words, a packaged byte-pair encoding, or any of `transformers`."""

from ssp_env.tokenizers.base import Tokenizer
from ssp_env.tokenizers.huggingface import HuggingFaceTokenizer
from ssp_env.tokenizers.plain import BPETokenizer, ByteTokenizer, WordTokenizer

__all__ = ["BPETokenizer", "ByteTokenizer", "HuggingFaceTokenizer", "Tokenizer", "WordTokenizer"]
