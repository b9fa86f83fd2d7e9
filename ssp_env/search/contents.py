"""How Search-R1 writes a passage as one text: the title in double quotes, a newline, the text."""

from __future__ import annotations


def split_contents(contents: str) -> tuple[str, str]:
    """Title and text. Contents of a single line have no title."""
    head, newline, text = contents.partition("\n")
    if not newline:
        return "", contents
    return head.strip().removeprefix('"').removesuffix('"'), text
