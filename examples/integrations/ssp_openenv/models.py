"""What goes over the wire."""

from __future__ import annotations

from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class SspAction(Action):
    """A whole turn."""

    text: str = Field(description="a turn, ending with its first complete <search>, <answer>, ...")


class SspObservation(Observation):
    """What the player has not seen yet. A void game is done and has no reward; ``metadata`` holds
    the infos of every interface."""

    text: str = Field(default="", description="the prompt, later what a search found")


class SspState(State):
    """The game so far."""

    role: str = "solver"
    outcome: str = "pending"
