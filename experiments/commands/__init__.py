"""What the commands of the training stack do; their options are in ``experiments/cli.py``."""
