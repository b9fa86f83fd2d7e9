"""The mini-wiki: a generated knowledge graph, rendered as short encyclopedia pages."""

from ssp_env.worlds.mini.world import MiniWorld, SmallWorld

__all__ = ["MiniWorld", "SmallWorld"]
