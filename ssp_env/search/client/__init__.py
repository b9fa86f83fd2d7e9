"""A client for servers that speak Search-R1's protocol: theirs and ``ssp serve``."""

from ssp_env.search.client.config import HTTPConfig
from ssp_env.search.client.retriever import HTTPRetriever

__all__ = ["HTTPConfig", "HTTPRetriever"]
