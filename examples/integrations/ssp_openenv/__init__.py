"""Search self-play for OpenEnv: a client of the environment server."""

from .client import SspEnv
from .models import SspAction, SspObservation, SspState

__all__ = ["SspAction", "SspEnv", "SspObservation", "SspState"]
