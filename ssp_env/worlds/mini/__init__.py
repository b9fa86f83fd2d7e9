"""The mini-wiki: a generated knowledge graph, rendered as short encyclopedia pages."""

from ssp_env.worlds.mini.small import SmallWorld
from ssp_env.worlds.mini.world import MiniWorld

__all__ = ["MiniWorld", "SmallWorld"]
