"""Settings between plain data and typed dataclasses."""

from ssp_env.settings.reader import check_path, check_types, named, plain, read, read_value
from ssp_env.settings.suggestions import suggestion

__all__ = ["check_path", "check_types", "named", "plain", "read", "read_value", "suggestion"]
