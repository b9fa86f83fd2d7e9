"""The version of the package. Its own module, so that any layer can name it."""

__version__ = "0.2.0"
