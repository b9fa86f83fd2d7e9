"""Commands of the training stack; their options are in ``cli.py`` and ``options.py``."""
