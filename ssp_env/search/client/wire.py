"""Search-R1's protocol: what a request holds, and what a reply has to hold.

Extra fields are passed over; anything else that is not as it should be is refused, because a
ranking that is wrong in silence would be trained on. (Search-R1's own server answers two queries
with the wrong shape where scores are not asked for: we always ask for them.)"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

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
        reply = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise WrongReply(f"not JSON ({error})") from error

    result = reply.get("result") if isinstance(reply, dict) else None
    if not isinstance(result, list):
        raise WrongReply("no JSON object with a list 'result'")
    if len(result) != count:
        raise WrongReply(f"{len(result)} rankings for {count} queries")
    return [_ranking(ranking, position, k) for position, ranking in enumerate(result)]


def _ranking(ranking: Any, position: int, k: int) -> list[Document]:
    where = f"result[{position}]"
    if not isinstance(ranking, list):
        raise WrongReply(f"{where} is {_kind(ranking)}, not a list")
    if len(ranking) > k:
        raise WrongReply(f"{where} holds {len(ranking)} documents where {k} were asked for")

    documents = [_document(hit, f"{where}[{rank}]") for rank, hit in enumerate(ranking)]
    if len({document.id for document in documents}) != len(documents):
        raise WrongReply(f"{where} holds a document twice")
    return documents


def _document(hit: Any, where: str) -> Document:
    row = hit.get("document") if isinstance(hit, dict) else None
    if not isinstance(row, dict):
        raise WrongReply(f"{where} is not an object with a 'document'")

    score = hit.get("score")
    number = isinstance(score, int | float) and not isinstance(score, bool)
    # Put this way round, so that NaN fails as well, and an integer beyond any float.
    if not (number and abs(score) <= sys.float_info.max):
        raise WrongReply(f"{where}.score is {_kind(score)}, not a finite number")
    if "contents" in row:
        title, text = split_contents(_text(row, "contents", where))
    else:
        title, text = _text(row, "title", where, ""), _text(row, "text", where)

    # Search-R1's BM25 sends no id: what is written is what it is. In some corpora it is a number.
    name: Any = row.get("id", hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:16])
    if isinstance(name, bool) or not isinstance(name, int | str):
        raise WrongReply(f"{where}.document.id is {_kind(name)}, not a string")
    return Document(well_formed(str(name)), title, text, float(score))


def _text(row: dict[str, Any], name: str, where: str, missing: str | None = None) -> str:
    value = row.get(name, missing)
    if not isinstance(value, str):
        raise WrongReply(f"{where}.document.{name} is {_kind(value)}, not a string")
    return well_formed(value)


def _kind(value: Any) -> str:
    return "null or missing" if value is None else type(value).__name__


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")
