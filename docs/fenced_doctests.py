"""Shows the doctests of docstrings as code on the site: to Markdown, ``>>>`` is a quotation."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class FencedDoctests(griffe.Extension):
    """Puts each doctest between fences, as griffe has read its object."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
