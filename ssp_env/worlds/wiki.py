"""wiki-sentences: the passages of wiki-mini, cut into sentences, and rules that read them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import numpy as np

from ssp_env.disk import cache_folder, made_once
from ssp_env.search.base import Retriever, read_passages
from ssp_env.search.index import build_index
from ssp_env.search.store import FORMAT, PASSAGES, PassageStore
from ssp_env.search.words import VERSION
from ssp_env.types import Analysis, Document, GroundTruth, Question
from ssp_env.worlds import wiki_language
from ssp_env.worlds.files import PASSAGES_FILE, WikiMini, open_kept
from ssp_env.worlds.questions import read_answers, read_questions, sample_questions, shared_answers
from ssp_env.worlds.wiki_language import (
    BY_NAME,
    CHAINED,
    DATE,
    LISTS,
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
"""A cloze shows fewer words than this on either side of its gap."""
TAUGHT = ("born", "birthplace", "nationality")
"""Relations that a second hop of a demonstration asks for. The others are left to self-play."""


def split_of(title: str) -> Split:
    """Split of an article: a tenth are for development, a tenth for tests, by the title's hash."""
    tenth = crc32(subject_of(title).encode()) % 10
    return "dev" if tenth == 0 else "test" if tenth == 1 else "train"


class WikiSentences:
    """Real sentences, each a document, and answers that the rules of
    :mod:`ssp_env.worlds.wiki_language` have read in them.

    Self-play is about articles of the split ``train``. Questions are about others: ``relation``,
    ``two hops``, ``new two hops`` (whose second relation is not among :data:`TAUGHT`) and ``cloze``
    by the rules, and those of wiki-mini's benchmarks. What the rules know decides which questions
    are true; of questions in other words they know nothing.
    Sentences, facts and index are made once (half a minute) and kept in
    :func:`ssp_env.disk.cache_folder`."""

    name = "wiki-sentences"
    can_read = True
    per_group = 100
    """Evaluation questions per group, unless the caller says how many."""
    demonstrations = "ssp_agents.shipped.wiki_small.traces:TraceWriter"
    """Class that writes demonstrations for ``ssp imitate``, by name: it stands above this
    package."""

    def __init__(self, split: Literal["dev", "test"] = "test") -> None:
        """``split``: articles that evaluation questions of the rules are about."""
        self.split = split

    @cached_property
    def corpus(self) -> PassageStore:
        return PassageStore(_folder() / PASSAGES)

    @cached_property
    def retriever(self) -> Retriever:
        return open_kept(_folder(), self.name)

    @cached_property
    def stated(self) -> dict[str, list[Stated]]:
        """Facts by the id of the sentence that states them."""
        with open(_folder() / _FACTS, encoding="utf-8") as lines:
            rows = map(json.loads, lines)
            return {row["id"]: [Stated(**fact) for fact in row["facts"]] for row in rows}

    @cached_property
    def facts(self) -> Facts:
        return table_of(
            (self.corpus[int(name)].title, facts) for name, facts in self.stated.items()
        )

    @cached_property
    def answers(self) -> Sequence[GroundTruth]:
        """Values in articles to train on, half of which a question of two facts can lead to. None
        answers an evaluation question of either split."""
        return read_answers(_folder() / _ANSWERS)[0]

    def questions(self, seed: int, per_group: int | None = None) -> list[Question]:
        wanted = self.per_group if per_group is None else per_group
        read = read_questions(_folder() / f"{self.split}.jsonl")
        return sample_questions([*read, *WikiMini().questions(0)], seed, wanted)

    def analyse(self, question: str) -> Analysis | None:
        asked = parse_question(question)
        answers = follow(asked, self.facts) if asked is not None else None
        # Where the rules have read nothing, they cannot tell.
        return Analysis(len(asked.path), answers) if asked is not None and answers else None

    def read(self, question: str, documents: Sequence[Document]) -> frozenset[str] | None:
        if (asked := parse_question(question)) is None:
            return None
        return follow(asked, table_of((d.title, self.stated.get(d.id, ())) for d in documents))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.split,)


def table_of(stated: Iterable[tuple[str, Iterable[Stated]]]) -> Facts:
    """The facts that pages of these titles state."""
    table: Facts = {}
    for title, facts in stated:
        for fact in facts:
            table.setdefault((subject_of(title), fact.relation), set()).add(fact.value)
    return table


ASKED_FOR = CHAINED | {
    "born", "died", "headquarters", "located", "publisher", "developer", "label", "club",
    "alma mater", "namesake",
}  # fmt: skip
"""Relations whose values a search can begin with; a search for "American" finds anything."""


def worth_asking(value: str) -> bool:
    """True for values of more than four characters, but for three of four dates, of which there
    are more than of all others."""
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
    statement = " ".join([*before, "what", *after]).removesuffix(" .")
    question = statement if subject in statement else f"{subject} : {statement}"
    return f"{question} ?", gap[0], gap.start()


# -- kept on disk ------------------------------------------------------------------------------

_FACTS, _ANSWERS = "facts.jsonl", "answers.jsonl"


def _folder() -> Path:
    """The folder of all that follows from the passages, which is made where it is missing."""
    sources = (Path(__file__), Path(wiki_language.__file__), *LISTS)
    parts = [source.read_bytes() for source in sources]
    parts += [file["sha256"].encode() for file in WikiMini().manifest["files"].values()]
    digest = hashlib.sha256(b"".join(parts)).hexdigest()
    return made_once(cache_folder() / f"wiki-sentences-{digest[:16]}-{FORMAT}.{VERSION}", _write)


def _write(folder: Path) -> None:
    documents, facts = [], list[tuple[Document, list[Stated]]]()
    for i, (title, text, first) in enumerate(_sentences(read_passages(PASSAGES_FILE))):
        subject = subject_of(title)
        # A sentence is found, and understood, by its subject, which "He was born" does not name.
        prefix = "" if text.startswith(subject) else f"{subject} : "
        documents.append(Document(str(i), title, prefix + text))
        stated = [
            replace(fact, place=fact.place + len(prefix)) for fact in facts_of(title, text, first)
        ]
        if stated:
            facts.append((documents[-1], stated))

    kept = folder / "sentences.jsonl"
    _write_lines(kept, ({"id": d.id, "title": d.title, "text": d.text} for d in documents))
    build_index(kept, folder, "bm25")
    kept.unlink()
    rows = ({"id": d.id, "facts": [asdict(fact) for fact in stated]} for d, stated in facts)
    _write_lines(folder / _FACTS, rows)

    table = table_of((document.title, stated) for document, stated in facts)
    askable = [
        (subject_of(document.title), fact.value)
        for document, stated in facts
        if split_of(document.title) == "train"
        for fact in stated
        if fact.relation in ASKED_FOR and worth_asking(fact.value)
    ]
    # A question of two facts can be asked for few answers: of the others, no more are kept.
    led_to = {
        value
        for (subject, relation), values in table.items()
        if relation in CHAINED and split_of(subject) == "train"
        for value in values
    }
    ends = {value: None for subject, value in askable if subject in led_to}
    others = {value: None for _, value in askable if value not in ends}
    chosen = [*ends, *sorted(others, key=lambda value: crc32(value.encode()))[: len(ends)]]
    truths = [GroundTruth(f"wiki-{value}", value) for value in chosen]
    evaluated = WikiMini().questions(0)
    for split in ("dev", "test"):
        questions = list(_questions(split, documents, table))
        evaluated += questions
        rows = ({"id": q.id, "question": q.text, "answers": q.answers, "group": q.group}
                for q in questions)  # fmt: skip
        _write_lines(folder / f"{split}.jsonl", rows)
    # Of both splits and of all benchmarks: training must not know what evaluation asks for.
    taken = {truth.id for truth, _ in shared_answers(truths, evaluated)}
    rows = ({"id": t.id, "answer": t.answer} for t in truths if t.id not in taken)
    _write_lines(folder / _ANSWERS, rows)


def _write_lines(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with open(file, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _sentences(passages: Iterable[Document]) -> Iterator[tuple[str, str, bool]]:
    """Title and text of every sentence once, and true if it is its page's first one."""
    seen, begun = set[tuple[str, str]](), set[str]()
    for passage in passages:
        # Many passages begin with their title, once more.
        text = re.sub(rf"^{re.escape(passage.title)} (?=[A-Z\"])", "", passage.text)
        name = subject_of(passage.title).split(" ")[0]
        begins = passage.title not in begun and text[:1].isupper()
        begun.add(passage.title)
        for i, sentence in enumerate(sentences(text)):
            if len(sentence) >= _SHORTEST and (passage.title, sentence) not in seen:
                seen.add((passage.title, sentence))
                yield passage.title, sentence, begins and i == 0 and name in sentence.split()


def _questions(split: Split, documents: Sequence[Document], facts: Facts) -> Iterator[Question]:
    """Questions about the articles of a split: one relation, two, or a cloze."""
    about = [item for item in facts.items() if split_of(item[0][0]) == split]
    for (subject, name), values in about:
        text = BY_NAME[name].ask(subject)
        yield Question(f"{name} of {subject}", text, tuple(sorted(values)), "relation")

    for (subject, name), values in about:
        # Two hops: the value of the first is the subject of the second.
        first = BY_NAME[name]
        if not first.chains or len(values) > 1:
            continue
        for second in RELATIONS:
            if answers := facts.get((next(iter(values)), second.name)):
                text = write_question(subject, (first, second))
                key = f"{second.name} of {name} of {subject}"
                group = "two hops" if second.name in TAUGHT else "new two hops"
                yield Question(key, text, tuple(sorted(answers)), group)

    for document in documents:
        if split_of(document.title) == split:
            made = cloze(document, np.random.default_rng(crc32(document.text.encode())))
            if made is not None:
                yield Question(f"cloze {document.id}", made[0], (made[1],), "cloze")
