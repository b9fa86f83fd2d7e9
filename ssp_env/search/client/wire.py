"""Search-R1's protocol: what a request holds, and what a reply has to hold.

Extra fields are passed over; anything else that is not as it should be is refused, because a
ranking that is wrong in silence would be trained on. (Search-R1's own server answers two queries
with the wrong shape where scores are not asked for: we always ask for them.)"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from ssp_env.search.corpus import split_contents
from ssp_env.types import Document


class WrongReply(Exception):
    """A reply that does not answer the request; says what came."""


def well_formed(text: str) -> str:
    """A text that UTF-8 can carry: halves of surrogate pairs that stand alone become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def write_request(queries: Sequence[str], k: int) -> bytes:
    """The body of ``POST /retrieve``."""
    return json.dumps({"queries": queries, "topk": int(k), "return_scores": True}).encode()


def read_reply(raw: bytes, count: int, k: int) -> list[list[Document]]:
    """The rankings that a reply holds, where ``count`` queries asked for ``k`` documents each.

    Raises:
        WrongReply: not JSON, or not one ranking per query of at most ``k`` documents, each once and
            with a finite score.
    """
    try:
        reply = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise WrongReply(f"not JSON ({error})") from error

    match reply:
        case {"result": list(result)} if all(isinstance(ranking, list) for ranking in result):
            pass
        case _:
            raise WrongReply("no JSON object with a list 'result' of lists")
    if len(result) != count:
        raise WrongReply(f"{len(result)} rankings for {count} queries")

    for ranking in result:
        if len(ranking) > k:
            raise WrongReply(f"{len(ranking)} documents where {k} were asked for")
    rankings = [[_document(hit) for hit in ranking] for ranking in result]
    if any(len({found.id for found in ranking}) != len(ranking) for ranking in rankings):
        raise WrongReply("a document twice in one ranking")
    return rankings


def _document(hit: Any) -> Document:
    match hit:
        case {"document": {"contents": str(contents)} as row, "score": int() | float() as score}:
            title, text = split_contents(contents)
        case {"document": {"text": str(text)} as row, "score": int() | float() as score}:
            title = row.get("title", "")
        case _:
            raise WrongReply("a hit that is not {document, score} with contents, or title and text")

    # Search-R1's BM25 sends no id: what is written is what it is. In some corpora it is a number.
    digest = hashlib.sha256(well_formed(f"{title}\n{text}").encode()).hexdigest()
    name = row.get("id", digest[:16])
    if not isinstance(title, str) or not isinstance(name, int | str):
        raise WrongReply("a document whose id or title is not a string")
    # Put this way round, so that NaN fails as well, and an integer beyond any float.
    if isinstance(score, bool) or not abs(score) <= sys.float_info.max:
        raise WrongReply("a score that is not a finite number")
    return Document(well_formed(str(name)), well_formed(title), well_formed(text), float(score))
