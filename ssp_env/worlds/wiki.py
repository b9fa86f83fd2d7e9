"""wiki-sentences: the passages of wiki-mini, cut into sentences, and rules that read them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import numpy as np

from ssp_env.disk import cache_folder, new_folder
from ssp_env.search.base import read_corpus
from ssp_env.search.bm25 import BM25Retriever
from ssp_env.search.index import build_index, open_index
from ssp_env.search.store import FORMAT, PASSAGES, PassageStore
from ssp_env.types import Analysis, Document, GroundTruth, Question
from ssp_env.worlds import wiki_language
from ssp_env.worlds.files import PASSAGES_FILE, WikiMini, sample_questions, shared_answers
from ssp_env.worlds.wiki_language import (
    BY_NAME,
    DATE,
    NAME,
    RELATIONS,
    Facts,
    Stated,
    facts_of,
    follow,
    parse_question,
    sentences,
    subject_of,
    write_question,
)

Split = Literal["train", "dev", "test"]
_SHORTEST = 20
"""Characters of a sentence that is kept."""
_CLOZE = re.compile(rf"(?<= )(?:{NAME}|{DATE})(?= )")
_AROUND = 10
"""Words of a sentence that a cloze shows on either side of its gap, at most."""


def split_of(title: str) -> Split:
    """Split of an article: a tenth are for development, a tenth for tests, by the title's hash."""
    tenth = crc32(subject_of(title).encode()) % 10
    return "dev" if tenth == 0 else "test" if tenth == 1 else "train"


class WikiSentences:
    """Real sentences, each a document, and answers that the rules of
    :mod:`ssp_env.worlds.wiki_language` have read in them.

    Self-play is about articles of the split ``train``. Questions are about others: ``relation``,
    ``two hops`` and ``cloze`` by the rules, and those of wiki-mini's benchmarks. What the rules
    know decides which questions are true; of questions in other words they know nothing.
    Sentences, facts and index are made once (half a minute) and kept in
    :func:`ssp_env.disk.cache_folder`."""

    name = "wiki-sentences"
    can_read = True
    per_group = 100
    """Evaluation questions per group, unless the caller says how many."""

    def __init__(self, split: Literal["dev", "test"] = "test") -> None:
        """``split``: articles that evaluation questions of the rules are about."""
        self.split = split

    @cached_property
    def corpus(self) -> PassageStore:
        return PassageStore(_folder() / PASSAGES)

    @cached_property
    def retriever(self) -> BM25Retriever:
        retriever = open_index(_folder(), "bm25")
        assert isinstance(retriever, BM25Retriever)
        retriever.corpus.name = self.name
        return retriever

    @cached_property
    def stated(self) -> dict[str, list[Stated]]:
        """Facts by the id of the sentence that states them."""
        with open(_folder() / _FACTS, encoding="utf-8") as lines:
            rows = map(json.loads, lines)
            return {row["id"]: [Stated(**fact) for fact in row["facts"]] for row in rows}

    @cached_property
    def facts(self) -> Facts:
        return self._table(self.corpus[int(name)] for name in self.stated)

    @cached_property
    def answers(self) -> Sequence[GroundTruth]:
        """Values that lead somewhere, in articles to train on: names, and a quarter of the dates.
        None answers an evaluation question of any split."""
        found: dict[str, None] = {}
        for name, stated in self.stated.items():
            if split_of(self.corpus[int(name)].title) == "train":
                found.update((f.value, None) for f in stated if f.relation in ASKED_FOR)
        truths = [GroundTruth(f"wiki-{value}", value) for value in found if worth_asking(value)]
        others = [q for split in ("dev", "test") for q in self._questions(split)]
        taken = {truth.id for truth, _ in shared_answers(truths, others)}
        return tuple(truth for truth in truths if truth.id not in taken)

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        wanted = self.per_group if per_group is None else per_group
        return sample_questions(self._questions(self.split), seed, wanted)

    def analyse(self, question: str) -> Analysis | None:
        asked = parse_question(question)
        found = follow(asked, self.facts) if asked is not None else None
        # Where the rules have read nothing, they cannot tell.
        return Analysis(len(asked.path), found) if asked is not None and found else None

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        asked = parse_question(question)
        return None if asked is None else follow(asked, self._table(documents))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.split,)

    def _table(self, documents: Iterable[Document]) -> Facts:
        table: Facts = {}
        for document in documents:
            for fact in self.stated.get(document.id, ()):
                subject = subject_of(document.title)
                table.setdefault((subject, fact.relation), set()).add(fact.value)
        return table

    def _questions(self, split: str) -> list[Question]:
        groups = {"relation": self._relations, "two hops": self._two_hops, "cloze": self._clozes}
        own = (
            Question(f"{group}-{i}", text, answers, group)
            for group, made in groups.items()
            for i, (text, answers) in enumerate(made(split))
        )
        return [*own, *WikiMini().questions(0)]

    def _relations(self, split: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        for (subject, relation), values in self._of(split):
            yield BY_NAME[relation].ask(subject), tuple(sorted(values))

    def _two_hops(self, split: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        for (subject, name), values in self._of(split):
            first = BY_NAME[name]
            if first.noun is None or len(values) > 1:
                continue
            for second in RELATIONS:
                if found := self.facts.get((next(iter(values)), second.name)):
                    yield write_question(subject, (first, second)), tuple(sorted(found))

    def _of(self, split: str) -> Iterator[tuple[tuple[str, str], set[str]]]:
        return (item for item in self.facts.items() if split_of(item[0][0]) == split)

    def _clozes(self, split: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        for document in self.corpus:
            if split_of(document.title) != split:
                continue
            rng = np.random.default_rng(crc32(document.text.encode()))
            if (made := cloze(document, rng)) is not None:
                yield made[0], (made[1],)


ASKED_FOR = frozenset(r.name for r in RELATIONS if r.noun is not None) | {
    "born", "died", "headquarters", "located", "publisher", "developer", "label", "club",
    "alma mater", "namesake",
}  # fmt: skip
"""Relations whose values a search can begin with; a search for "American" finds anything."""


def worth_asking(value: str) -> bool:
    """False for a single year, and for most dates, of which there are more than of all others."""
    return len(value) > 4 and (not value[-1].isdigit() or crc32(value.encode()) % 4 == 0)


def cloze(document: Document, rng: np.random.Generator) -> tuple[str, str, int] | None:
    """A sentence with ``what`` in place of a name or date, what stood there, and where."""
    text, subject = document.text, subject_of(document.title)
    gaps = [
        gap
        for gap in _CLOZE.finditer(text)
        if gap[0] not in subject and gap.start() > 20 and len(gap[0]) > 3
    ]
    if not gaps:
        return None
    gap = gaps[int(rng.integers(len(gaps)))]
    before = text[: gap.start()].split()
    after = text[gap.end() :].split()
    before, after = before[-int(rng.integers(4, _AROUND)) :], after[: int(rng.integers(_AROUND))]
    told = " ".join([*before, "what", *after]).removesuffix(" .")
    question = told if subject in told else f"{subject} : {told}"
    return f"{question} ?", gap[0], gap.start()


# -- kept on disk ------------------------------------------------------------------------------

_FACTS = "facts.jsonl"


def _folder() -> Path:
    """The folder of sentences, facts and index, which is made where it is missing."""
    rules = Path(wiki_language.__file__).read_bytes() + Path(__file__).read_bytes()
    passages = WikiMini().manifest["files"][PASSAGES_FILE.name]["sha256"]
    digest = hashlib.sha256(rules + passages.encode()).hexdigest()
    folder = cache_folder() / f"wiki-sentences-{digest[:16]}-{FORMAT}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder) as made:
            _write(made)
    return folder


def _write(folder: Path) -> None:
    kept, facts = folder / "sentences.jsonl", folder / _FACTS
    with open(kept, "w", encoding="utf-8") as out, open(facts, "w", encoding="utf-8") as found:
        for i, (title, text, first) in enumerate(_sentences(read_corpus(PASSAGES_FILE))):
            subject = subject_of(title)
            prefix = "" if text.startswith(subject) else f"{subject} : "
            row = {"id": str(i), "title": title, "text": prefix + text}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")

            stated = [asdict(fact) for fact in facts_of(title, text, first)]
            for fact in stated:
                fact["place"] += len(prefix)
            if stated:
                line = json.dumps({"id": str(i), "facts": stated}, ensure_ascii=False)
                found.write(line + "\n")
    build_index(kept, folder, "bm25")
    kept.unlink()


def _sentences(passages: Iterable[Document]) -> Iterator[tuple[str, str, bool]]:
    """Title and text of every sentence once, and true if its page's first one."""
    seen: set[tuple[str, str]] = set()
    for passage in passages:
        # Many passages begin with their title, once more.
        text = re.sub(rf"^{re.escape(passage.title)} (?=[A-Z\"])", "", passage.text)
        for i, sentence in enumerate(sentences(text)):
            if len(sentence) >= _SHORTEST and (passage.title, sentence) not in seen:
                seen.add((passage.title, sentence))
                whole = subject_of(passage.title).split(" ")[0] in sentence
                yield passage.title, sentence, i == 0 and whole
