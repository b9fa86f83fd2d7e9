"""The environment server."""
