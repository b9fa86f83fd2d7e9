"""Demonstrations on real sentences for the bootstrap of wiki-small, in the game's own format.

What the rules of :mod:`ssp_env.worlds.wiki_language` have read is asked and answered, for both
roles. A reader quotes a sentence as far as the value that it looks for, so that each next token can
be decided by those just before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from ssp_agents.shipped.tiny.traces import Trace
from ssp_env.game.config import GameConfig
from ssp_env.game.prompts import Prompts
from ssp_env.tokenizers.base import Tokenizer
from ssp_env.types import Document
from ssp_env.worlds.wiki import ASKED_FOR, TAUGHT, WikiSentences, cloze, split_of, worth_asking
from ssp_env.worlds.wiki_language import BY_NAME, CHAINED, Relation, subject_of, write_question

PROPOSER_SHARE = 0.45
"""Share of proposer demonstrations."""
CLOZE_SHARE = 0.2
"""Share of clozes among the solver's questions."""
CASUAL = 0.3
"""Share of clozes that are written without capitals and question mark."""
TWO_HOPS_SHARE = 0.2
"""Share of two-hop questions among the solver's questions."""
TWO_HOP_PROPOSALS = 0.4
"""Share of proposals whose answer is known to end a chain of two facts."""
IN_VAIN = 0.1
"""Chance that a proposer of another answer searches for a second fact, too."""
SHUFFLED = 0.25
"""Share of the solver's searches whose documents are shown in random order."""
CUES = {
    "director": "directed by",
    "screenwriter": "written by",
    "author": "written by",
    "producer": "produced by",
    "composer": "music composed by",
    "performer": "song by",
    "born": "born",
    "birthplace": "born in",
    "father": "son daughter of",
    "mother": "son daughter of",
    "spouse": "married wife",
    "founder": "founded by",
    "founded": "founded in",
    "headquarters": "based in",
    "publisher": "published by",
    "developer": "developed by",
    "label": "released on records",
    "club": "plays for",
    "alma mater": "studied at university",
    "namesake": "named after",
    "capital": "capital is",
    "located": "located in",
    "country": "in",
    "sport": "player",
    "genre": "is a",
    "released": "is a",
    "nationality": "is a",
    "occupation": "is a",
    "died": "was",
}
"""Words that a search for a relation adds to the subject."""


class TraceWriter:
    """Endless demonstrations over the articles of the split ``train``."""

    def __init__(self, game: GameConfig, tokenizer: Tokenizer) -> None:
        self.game, self.tokenizer = game, tokenizer
        self.world = WikiSentences()
        self.prompts = Prompts.open(game.prompts, tokenizer)
        self.tags = self.prompts.tags
        self._stated = [
            (self.world.corpus[int(name)], fact)
            for name, facts in self.world.stated.items()
            for fact in facts
            if split_of(self.world.corpus[int(name)].title) == "train"
        ]
        self._chains = [
            (document, fact, second)
            for document, fact in self._stated
            if fact.relation in CHAINED and split_of(fact.value) == "train"
            for second in TAUGHT
            if (fact.value, second) in self.world.facts
        ]
        # Each relation as often as the square root of its number, so that rare ones are learnt.
        counts = Counter(fact.relation for _, fact in self._stated)
        weights = np.array([counts[fact.relation] ** -0.5 for _, fact in self._stated])
        self._cumulative = np.cumsum(weights / weights.sum())
        self._answers = np.array(
            [
                i
                for i, (_, fact) in enumerate(self._stated)
                if fact.relation in ASKED_FOR and worth_asking(fact.value)
            ]
        )

        # The first fact of a chain by its value, and the second facts whose value is asked for.
        self._leads = {
            fact.value: fact.relation for _, fact in self._stated if fact.relation in CHAINED
        }
        self._ends = [
            int(i) for i in self._answers if subject_of(self._stated[i][0].title) in self._leads
        ]

    def stream(self, rng: np.random.Generator) -> Iterator[Trace]:
        """Demonstrations that follow from ``rng``; one stream at a time."""
        self.rng = rng
        solver = (self._cloze, self._two_hops, self._relation)
        shares = (CLOZE_SHARE, TWO_HOPS_SHARE, 1.0 - CLOZE_SHARE - TWO_HOPS_SHARE)
        while True:
            proposes = rng.random() < PROPOSER_SHARE
            made = self._propose if proposes else solver[int(rng.choice(3, p=shares))]
            if (trace := made()) is not None:
                yield trace

    # -- the solver ----------------------------------------------------------------------------

    def _relation(self) -> Trace | None:
        place = int(np.searchsorted(self._cumulative, self.rng.random()))
        # By rounding, the cumulated shares may end a little below 1.
        document, fact = self._stated[min(place, len(self._stated) - 1)]
        subject = subject_of(document.title)
        trace = self._asked(BY_NAME[fact.relation].ask(subject))
        if not self._look_up(trace, subject, CUES[fact.relation]):
            return None
        return self._read(trace, document, fact.value, fact.place)

    def _two_hops(self) -> Trace | None:
        document, fact, second = self._chains[int(self.rng.integers(len(self._chains)))]
        subject = subject_of(document.title)
        relations = BY_NAME[fact.relation], BY_NAME[second]
        trace = self._asked(write_question(subject, relations))
        if not self._look_up(trace, subject, CUES[fact.relation]):
            return None
        evidence = self._quote(trace, document, fact.value, fact.place)
        if evidence is None or not self._look_up(trace, fact.value, CUES[second], evidence):
            return None
        for found in self._documents:
            for stated in self.world.stated.get(found.id, ()):
                if stated.relation == second and subject_of(found.title) == fact.value:
                    return self._read(trace, found, stated.value, stated.place)
        return None

    def _cloze(self) -> Trace | None:
        document = self.world.corpus[int(self.rng.integers(len(self.world.corpus)))]
        made = cloze(document, self.rng) if split_of(document.title) == "train" else None
        if made is None:
            return None
        question, value, place = made
        if self.rng.random() < CASUAL:
            question = question.lower().removesuffix(" ?")
        trace = self._asked(question)
        if not self._look_up(trace, question.removesuffix(" ?"), ""):
            return None
        return self._read(trace, document, value, place)

    def _asked(self, question: str) -> Trace:
        trace = Trace()
        trace.show(self.prompts.solver(question, self.game.max_searches))
        return trace

    def _read(self, trace: Trace, document: Document, value: str, place: int) -> Trace | None:
        """Quotes the sentence as far as the value, and answers with that."""
        evidence = self._quote(trace, document, value, place)
        if evidence is None:
            return None
        self._write(trace, "answer", value, evidence)
        return trace

    # -- the proposer --------------------------------------------------------------------------

    def _propose(self) -> Trace | None:
        chained = self.rng.random() < TWO_HOP_PROPOSALS
        _, fact = self._stated[int(self.rng.choice(self._ends if chained else self._answers))]
        trace = Trace(role="proposer")
        trace.show(self.prompts.proposer(fact.value, 1))
        if not self._look_up(trace, fact.value, ""):
            return None
        step = self._step_back(trace, fact.value, ASKED_FOR)
        if step is None:
            return None

        subject, relation, shown = step
        path = [relation]
        leads = self._leads.get(subject)
        if leads is not None or self.rng.random() < IN_VAIN:
            looked = self._look_up(trace, subject, CUES[leads] if leads else "", shown)
            further = self._step_back(trace, subject, CHAINED) if looked else None
            if further is not None:
                subject, shown = further[0], further[2]
                path.insert(0, further[1])
        self._write(trace, "question", write_question(subject, path), shown, subject)
        return trace

    def _step_back(
        self, trace: Trace, value: str, among: frozenset[str]
    ) -> tuple[str, Relation, range] | None:
        """Quotes the first sentence found that gives somebody this value, up to the value.

        Returns who that is, by which relation, and where the sentence is shown."""
        for document in self._documents:
            for fact in self.world.stated.get(document.id, ()):
                fits = fact.value == value and fact.relation in among
                if not fits or split_of(document.title) != "train":
                    continue
                if self._quote(trace, document, value, fact.place, whole=True) is not None:
                    shown = self._shown[document.id]
                    return subject_of(document.title), BY_NAME[fact.relation], shown
        return None

    # -- turns ---------------------------------------------------------------------------------

    def _look_up(
        self, trace: Trace, words: str, cue: str, copied_from: range | None = None
    ) -> bool:
        """Writes a search, and shows what it finds; false if that is nothing."""
        query = f"{words} {cue}".strip()
        before = range(len(trace.ids)) if copied_from is None else copied_from
        if len(self.tokenizer.encode(query)) > self.game.max_query_tokens:
            return False
        self._write(trace, "search", query, before, words)
        (found,) = self.world.retriever.search([query], self.game.top_k)
        if cue and self.rng.random() < SHUFFLED:
            found = [found[i] for i in self.rng.permutation(len(found))]
        self._documents = found
        if not found:
            return False

        ids = self.prompts.information(found, self.game.max_document_tokens)
        places = trace.show(ids)
        # Documents follow the tag and each other, each with its line break.
        opening = self._tokens_to(self.tags.opening("information"), ids)
        self._shown, start = dict[str, range](), places.start + opening
        for number, document in enumerate(found, 1):
            length = self.prompts.listed(document, self.game.max_document_tokens, number)
            self._shown[document.id] = range(start, min(start + length, places.stop))
            start += length
        return True

    def _tokens_to(self, tag: str, ids: Sequence[int]) -> int:
        """Number of tokens up to the end of a tag's first occurrence: what stands before it, such
        as the opening of a message, depends on the prompt set."""
        text = b""
        for number, token in enumerate(ids, 1):
            text += self.tokenizer.pieces[token]
            if tag.encode() in text:
                return number
        raise ValueError(f"{tag} is not in {text!r:.200}")

    def _quote(
        self, trace: Trace, document: Document, value: str, place: int, *, whole: bool = False
    ) -> range | None:
        """Writes a thought that repeats a document that was just found as far as a value, which
        stands near a place of its text; with the value, if ``whole``.

        Returns the places at which the value is shown, or ``None`` if it is not."""
        shown = self._shown.get(document.id, range(0))
        wanted = self.tokenizer.encode_data(value)
        # The place in tokens, as nearly as the text before it tells.
        near = len(self.tokenizer.encode_data(document.text[:place]))
        starts = _places_of(wanted, trace.ids[shown.start : shown.stop])
        if not starts:
            return None
        start = shown.start + min(starts, key=lambda i: abs(i - near))
        evidence = range(start, start + len(wanted))

        copied = range(shown.start, evidence.stop if whole else evidence.start)
        trace.write(self.tokenizer.encode(self.tags.opening("think")))
        trace.write([trace.ids[i] for i in copied], copied)
        trace.write(self.tokenizer.encode(self.tags.closing("think")))
        return evidence

    def _write(
        self, trace: Trace, tag: str, text: str, copied_from: range, copied: str | None = None
    ) -> None:
        """Appends an action. ``copied`` (all of the text unless told) is looked for in those places
        of the transcript."""
        tokens = self.tokenizer.encode(f"{self.tags.opening(tag)} {text}{self.tags.closing(tag)}")
        source = [-1] * len(tokens)
        wanted = self.tokenizer.encode_data(text if copied is None else copied)
        window = trace.ids[copied_from.start : copied_from.stop]
        here, there = _places_of(wanted, tokens), _places_of(wanted, window)
        for i, token in enumerate(wanted if here else ()):
            if there:
                source[here[0] + i] = copied_from.start + there[0] + i
            elif window.count(token) == 1:
                # Copied in parts, such as the words of a cloze: each from where it occurs once.
                source[here[0] + i] = copied_from.start + window.index(token)
        trace.write(tokens, source)


def _places_of(part: list[int], whole: list[int]) -> list[int]:
    return [i for i in range(len(whole) - len(part) + 1) if whole[i : i + len(part)] == part]
