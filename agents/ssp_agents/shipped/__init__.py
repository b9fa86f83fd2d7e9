"""Policies that ship: their weights, tokenizers, demonstrations and training from scratch."""
