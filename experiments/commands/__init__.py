"""Commands of the training stack; their options are in ``experiments/cli.py``."""
