"""Words that are left over where one text holds another: which of them change nothing.

A prediction may lead up to the answer and tell more about it; it may leave out what only says what
kind of thing the answer is, or where. Every other word makes it another answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from ssp_env.judge.reading import PEOPLE, Asked
from ssp_env.judge.vocabularies import (
    ADJECTIVES_OF,
    BUILDINGS,
    CALLED,
    CHANGES,
    CITY_KEYS,
    EATEN,
    FORMS,
    FUNCTION,
    JOINS,
    KIN,
    KINDS,
    LINKING,
    LINKS,
    LITTLE,
    ORGANISATIONS,
    PEOPLES_KEYS,
    PLACE,
    PRONOUNS,
    REGION_KEYS,
    SHIPS,
    SORTS,
    STREETS,
    TELLS,
    TRADES,
    TURNS,
)
from ssp_env.wording.dates import DATE_WORDS
from ssp_env.wording.names import TITLES
from ssp_env.wording.words import Word, compact, keys, stem


def may_lead(about: Asked, before: Sequence[Word], answer: Sequence[Word]) -> bool:
    """Whether words before the answer only lead up to it."""
    if not before:
        return True
    if is_ship(before, answer) or keys(before)[-2:] in CALLED or before[-1].key == "aka":
        return True
    if "currency" in about.stems and all(word.key in PEOPLES_KEYS for word in before):
        return True
    for asked, adjectives in ADJECTIVES_OF.items():
        if asked in about.stems and all(word.key in adjectives for word in before):
            return True
    if "animal" in about.stems and all(word.key.endswith("ing") for word in before):
        return True
    decided = _says_what_it_is(about, before, answer)
    if decided is not None:
        return decided
    last = before[-1]
    if keys(before) == ("university", "of"):
        return bool(KINDS["university"] & about.stems)
    if last.key == "of" and len(before) > 1 and before[-2].key in ("made", "died", "consists"):
        return not any(word.key in TURNS or word.is_capital for word in before[1:])
    if any(word.key in TURNS for word in before) or last.key in JOINS or "/" in answer[0].gap:
        return is_form(before, answer)
    # Airports go with and without their town.
    if answer[-1].key == "airport" and len(before) < 3 and all(w.is_capital for w in before):
        return True
    if all_kinds(before):
        return kinds_fit(about, before, answer)
    if all(word.key in TITLES for word in before):
        return about.person or any(word.is_capital for word in answer)
    # "10 Downing Street".
    if answer[-1].key in STREETS and len(before) == 1:
        return is_figure(before[0])
    return _opens_sentence(about, before, answer)


def _says_what_it_is(about: Asked, before: Sequence[Word], answer: Sequence[Word]) -> bool | None:
    """Whether words before the answer only say what kind of thing it is; ``None`` if unclear."""
    last = before[-1]
    # "He is a British celebrity chef."
    if about.stems & TRADES and not answer[0].is_capital and "of" not in keys(before):
        return not any(w.key in CHANGES | TURNS or w.key in JOINS for w in before)
    # "A parliamentary constitutional monarchy".
    if (
        len(answer) > 1
        and not any(map(is_named_word, (*answer, *before)))
        and not any(w.key in CHANGES | TURNS or w.key in FUNCTION or w.key in JOINS for w in before)
    ):
        return True
    # "Breeds of horse".
    sorts = [w for w in before[:-1] if w.key not in LITTLE and w.key not in ("both", "all")]
    if last.key == "of" and sorts and all(stem(word.key) in SORTS for word in sorts):
        return True
    # "It is the county seat of ...", where that ends the question.
    if (
        last.key == "of"
        and about.run[-1:] == ("of",)
        and before[0].key in PRONOUNS
        and not any(w.is_capital for w in before[1:])
    ):
        return not any(w.key in TURNS or is_figure(w) for w in before)
    return None


def _opens_sentence(about: Asked, before: Sequence[Word], answer: Sequence[Word]) -> bool:
    """Whether words before the answer are the beginning of a sentence that says it."""
    last = before[-1]
    # Numbers change an answer unless the question has them ("the 2016 film ...").
    if any(is_figure(word) and word.key not in about.stems for word in before):
        return False
    # "by the Italian Baroque composer Antonio Vivaldi".
    if about.person and len(answer) > 1 and stem(last.key) in PEOPLE and answer[0].is_capital:
        return "," not in answer[0].gap and not any(w.key in CHANGES for w in before)
    # "Jupiter, followed by Saturn".
    if _names_another(about, before):
        return False
    links = last.key in LINKS or last.key in LITTLE
    named = [word for at, word in enumerate(before) if word.is_capital and at]
    strangers = [
        w
        for w in named
        if stem(w.key) not in about.stems and w.key not in LITTLE and not _is_known(about, w)
    ]
    if links:
        return not strangers and not (
            last.key in ("in", "at", "on", "from", "to") and "university" in keys(before)
        )
    if "," in answer[0].gap or any(w.key in CHANGES for w in before):
        return False
    # "It happened 22 times", "there were about 50".
    if before[0].key in PRONOUNS and not any(word.is_capital for word in before[1:]):
        return True
    # Words in front of a name that say what it is: "the American singer", "German composer".
    if (
        answer[0].is_capital
        and not strangers
        and not (before[0].is_capital and not _is_known(about, before[0]))
    ):
        return not last.is_capital or (_is_known(about, last) and stem(last.key) not in about.stems)
    return all(_is_plain(about, word) for word in before)


def _names_another(about: Asked, before: Sequence[Word]) -> bool:
    """Whether something else is named in front of a comma."""
    comma = next((at for at, word in enumerate(before) if at and "," in word.gap), 0)
    return any(
        word.key not in FUNCTION and stem(word.key) not in about.stems for word in before[:comma]
    )


def _is_known(about: Asked, word: Word) -> bool:
    return (
        word.key in TITLES
        or word.key in PEOPLES_KEYS
        or word.key == "usa"
        or word.key in KINDS
        or word.key in LITTLE
    )


def _is_plain(about: Asked, word: Word) -> bool:
    return word.key in LITTLE or (stem(word.key) in about.stems and not word.is_capital)


def may_trail(about: Asked, after: Sequence[Word], answer: Sequence[Word]) -> bool:
    """Whether words after the answer only tell more about it."""
    if not after:
        return True
    first = after[0]
    if "," in first.gap and region_run(after) is not None:
        return answer[-1].is_capital and not is_organisation(answer)
    placed = bool(PLACE & about.stems) and not about.person
    if "," in first.gap and answer[-1].key in STREETS and len(at_commas(after)) == 1:
        return all_capital(after)
    if "," in first.gap and placed and _is_elsewhere(after):
        return len(answer) < 3 and all(word.is_capital and "," not in word.gap for word in answer)
    # "Westminster Abbey, London": where a building stands.
    if "," in first.gap and len(answer) > 1 and answer[-1].key in BUILDINGS and len(after) <= 2:
        return all(word.is_capital for word in after) and bool(PLACE & about.stems)
    # "A pride of lions", where lions are asked about.
    if first.key == "of" and len(after) > 1 and not any(word.is_capital for word in after[1:]):
        return all(stem(word.key) in about.stems for word in after[1:])
    # "Polish-born French", where a nationality is asked for.
    if about.is_origin and first.key == "born" and "-" in first.gap:
        return False
    if any(word.key in ("or", "nor", "maybe", "perhaps", "possibly") for word in after):
        return False
    # "Hope Street, Liverpool", where a street in Liverpool is asked for.
    behind = "," in first.gap or first.key in ("in", "at")
    if behind and "or" not in about.stems and "and" not in keys(after):
        rest = [word for word in after if word.key not in LITTLE]
        if rest and all(word.is_capital and stem(word.key) in about.stems for word in rest):
            return answer[-1].is_capital
    # "A simple majority of the Senate".
    added = first.key in ("of", "with") and "," not in first.gap
    if added and len(answer) > 1 and not any(map(is_named_word, answer)):
        return not any(word.key in TURNS or is_figure(word) for word in after)
    if "eat" in about.stems and all(stem(word.key) in EATEN for word in after):
        return True
    if _is_full_name(answer) and _goes_with(about, after, answer):
        return True
    if first.key in JOINS or "/" in first.gap or ";" in first.gap:
        return False
    # "Extreme close-up shot".
    if len(answer) > 2 and len(after) == 1 and not first.gap and not is_named_word(first):
        return first.key not in ("jr", "sr")
    if all_kinds(after):
        return kinds_fit(about, after, answer)
    # "The Volga River in Russia".
    is_kind = all_kinds(after[:1]) and not first.gap and kinds_fit(about, after[:1], answer)
    if is_kind and may_trail(about, after[1:], (*answer, first)):
        return True
    return _goes_on(about, after, answer)


def _goes_on(about: Asked, after: Sequence[Word], answer: Sequence[Word]) -> bool:
    """Whether words after the answer are the rest of a sentence that says it."""
    first = after[0]
    if first.key in ("jr", "sr") or (is_figure(first) and not is_figure(answer[-1])):
        return False
    if is_figure(answer[-1]):
        # After a number, words may only repeat the question or be a sentence's rest.
        rest = [w for w in after if stem(w.key) not in about.stems]
        if first.key in TELLS or all(w.key in LITTLE for w in rest):
            return True
        # "206 bones in an adult body", where bones are asked about.
        undated = [w for w in rest if w.key not in DATE_WORDS and not _is_year(w)]
        named = undated if answer[0].is_capital else rest
        return rest[0].key in ("in", "on", "at", "of", "between") and not any(map(is_figure, named))
    if first.key == "by" and all(word.is_capital for word in after[1:]) and not about.person:
        return len(after) > 1
    if (
        "," in first.gap
        or "-" in first.gap
        or ":" in first.gap
        or "." in first.gap
        or "(" in first.gap
    ):
        # An apposition: "a French engineer", "which is in ...", "directed by ...".
        told = not first.is_capital or first.key in PEOPLES_KEYS
        return told and not is_figure(first) and len(after) > 1
    if first.key in TELLS and not first.is_capital:
        return not (
            first.key in ("in", "at", "on")
            and not _places(after, about)
            and not about.person
            and len(after) > 3
        )
    return all(_is_plain(about, word) for word in after)


def _is_full_name(answer: Sequence[Word]) -> bool:
    return len(answer) > 1 and all(w.is_capital or w.key in LINKING for w in answer)


def _goes_with(about: Asked, after: Sequence[Word], answer: Sequence[Word]) -> bool:
    """Whether words behind a full name say whom it belongs to (``of Bank of America``) or who else
    took part (``featuring Daya``)."""
    if any(word.key in TURNS or word.key in KIN or is_figure(word) for word in after):
        return False
    if after[0].key in ("featuring", "feat", "ft"):
        return True
    plain = about.person and not any(word.key in TITLES for word in answer)
    return plain and after[0].key == "of" and len(after) > 2


def is_named_word(word: Word) -> bool:
    """Whether a word is a name or a number."""
    return word.is_capital or is_figure(word)


def _places(after: Sequence[Word], about: Asked) -> bool:
    return any(word.is_capital for word in after)


def region_run(after: Sequence[Word]) -> tuple[str, ...] | None:
    """The region that stands behind a town's name, possibly with its country."""
    parts = at_commas(after)
    return keys(parts[0]) if all(is_region(part) for part in parts) else None


def _is_elsewhere(after: Sequence[Word]) -> bool:
    """Whether a name behind a comma is of something that a place lies in, not another place."""
    if not all(word.is_capital for word in after) or len(at_commas(after)) > 2:
        return False
    return len(after) <= 4 and not any(compact(keys(p)) in CITY_KEYS for p in at_commas(after))


def is_region(part: Sequence[Word]) -> bool:
    return keys(part) in REGION_KEYS or keys(part) in (("usa",), ("uk",), ("us",))


def at_commas(run: Sequence[Word]) -> list[list[Word]]:
    """Cuts a run at its commas."""
    parts: list[list[Word]] = []
    for at, word in enumerate(run):
        if at == 0 or "," in word.gap:
            parts.append([])
        parts[-1].append(word)
    return parts


def all_kinds(run: Sequence[Word]) -> bool:
    """Whether all words say what kind of thing something is."""
    return all(stem(word.key) in KINDS for word in run)


def kinds_fit(about: Asked, run: Sequence[Word], answer: Sequence[Word]) -> bool:
    """Whether words that say what kind of thing it is may come and go: those that name the kind
    asked for, and those that never tell two things apart."""
    for word in run:
        kind = stem(word.key)
        cues = KINDS[kind]
        if kind == "state":
            if "state" not in about.stems:
                return False
        elif cues and not cues & about.stems:
            return False
        if kind == "city" and keys(answer) != ("new", "york") and len(answer) < 3:
            return False
        if "," in word.gap and kind not in ("inc", "ltd", "corp", "co", "llc", "plc"):
            return False
    return not (keys(answer) == ("new", "york") and "city" in keys(run) and "state" in about.stems)


def is_ship(before: Sequence[Word], answer: Sequence[Word]) -> bool:
    """``HMS`` before a name: a ship goes with and without it."""
    only = len(before) == 1 and before[0].key in SHIPS and before[0].cased.isupper()
    return only and answer[0].is_capital


def is_form(before: Sequence[Word], answer: Sequence[Word]) -> bool:
    """``Kingdom of`` before a country, ``University of`` before a town that stands for it."""
    head = keys(before)
    return (
        len(head) >= 2
        and head[-1] == "of"
        and all(key in FORMS for key in head[:-1])
        and keys(answer) != ("china",)
        and "university" not in head
    )


def all_capital(run: Sequence[Word]) -> bool:
    """Whether all words are written like names."""
    return all(word.is_capital for word in run)


def is_organisation(run: Sequence[Word]) -> bool:
    """Whether what follows a comma is part of the name ("University of California, Berkeley")."""
    return run[-1].key in ("college", "school") or not ORGANISATIONS.isdisjoint(keys(run))


def _is_year(word: Word) -> bool:
    return word.key.isdigit() and len(word.key) == 4


def is_figure(word: Word) -> bool:
    """Whether a word is or has a number."""
    return word.key[0].isdigit() or word.key[-1].isdigit()
