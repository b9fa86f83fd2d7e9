"""The policy wiki-small: its tokenizer, its demonstrations, its training from scratch."""
