"""Filters: cheap checks of a proposed question, each with a reason code (Section 3.4).

Most look at the proposal. :func:`unsolved` and :func:`outvoted` look at the attempts, once they are
judged and before anybody is paid: where the policy verifies itself, they tell a wrong question far
better than its own reading does. They are for proposed questions alone: one that is played again or
was put together pays no proposer, and refused for a majority that is wrong about it, it would be
lost just where a right minority is to be learnt from.

Of a refused question nothing is learnt, by either role, and nothing enters the pool. Where no
attempt was right, all had the same reward, so that the solver loses no more than its KL term."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from ssp_env.game.config import GameConfig
from ssp_env.game.game import Game, shows
from ssp_env.game.trajectory import Trajectory
from ssp_env.search.base import passage_text
from ssp_env.search.words import query_words
from ssp_env.types import Action, GroundTruth
from ssp_env.wording.mention import FUNCTION_WORDS, mentions
from ssp_env.wording.normal import compatible, count_letters, count_words, nearly_same, normalise


@dataclass(frozen=True)
class Proposal:
    """A question with all that a filter looks at."""

    question: str
    truth: GroundTruth
    trajectory: Trajectory
    config: GameConfig
    past: tuple[str, ...] = ()
    """Questions about this answer that earlier steps asked, as far as they are remembered."""


Filter = Callable[[Proposal], bool]
"""True when the proposal *fails*; the filter's name is the reason code."""


LONGEST_ANSWER = 10
"""Words of an answer that the proposer chooses: a solver has to be able to give it."""


def no_answer(proposal: Proposal) -> bool:
    """No answer of at most ten words, where the proposer is to choose one."""
    return not 0 < count_words(compatible(proposal.truth.answer)) <= LONGEST_ANSWER


def unseen_answer(proposal: Proposal) -> bool:
    """No passage that the proposer found shows the answer."""
    found = (d for search in proposal.trajectory.searches for d in search.documents)
    return not any(shows(document, proposal.truth.wordings) for document in found)


def empty_question(proposal: Proposal) -> bool:
    """Nothing to read between the question tags."""
    # A question of marks alone, such as "???", is empty too.
    return re.search(r"\w", compatible(proposal.question)) is None


def no_search(proposal: Proposal) -> bool:
    """No search that found anything to rest a question on."""
    return not any(search.documents for search in proposal.trajectory.searches)


def short_question(proposal: Proposal) -> bool:
    """Fewer characters than ``question_chars`` asks for; padding does not count, and a character of
    a script without spaces between words counts twice."""
    return count_letters(proposal.question) < proposal.config.question_chars[0]


def long_question(proposal: Proposal) -> bool:
    """More characters than ``question_chars`` allows."""
    return len(proposal.question) > proposal.config.question_chars[1]


def spoiler(proposal: Proposal) -> bool:
    """A reader would see the answer or an alias in the question, in whatever spelling.

    Clues that have to be worked out are left to verification and to the solvers' rewards."""
    return mentions(proposal.question, proposal.truth.wordings) is not None


def few_words(proposal: Proposal) -> bool:
    """Fewer than ten words, as in the paper's released code; in scripts without spaces between
    words, two characters are one."""
    return count_words(compatible(proposal.question)) < 10


def few_searches(proposal: Proposal) -> bool:
    """Fewer than two searches, as in the paper's released code."""
    return len(proposal.trajectory.searches) < 2


def repeated_query(proposal: Proposal) -> bool:
    """The same query was sent twice, up to case, width, spacing and invisible characters."""
    trajectory, search = proposal.trajectory, Action.SEARCH
    # A page that is opened again is read on.
    different = [query for tool, query in trajectory.queries if tool == search]
    return len(different) < sum(each.tool == search for each in trajectory.searches)


def past_question(proposal: Proposal) -> bool:
    """An earlier step asked nearly the same about this answer, so that it may be known by heart.

    Questions are remembered by the strategies of training, see
    :class:`~ssp_env.game.strategies.Remembering`; those of the same step are not compared."""
    return any(nearly_same(proposal.question, past) for past in proposal.past)


def one_document(proposal: Proposal) -> bool:
    """One passage that the proposer found shows the answer and all that the question names, so that
    no chain of documents is needed (after SearchMaster, 2608.01822).

    Names are words with a capital letter, and numbers; without any, all words are. Those that no
    passage has do not count."""
    found = [d for search in proposal.trajectory.searches for d in search.documents]
    words = {d.id: set(query_words(passage_text(d))) for d in found}
    written = re.findall(r"\w+", proposal.question)
    names = " ".join(word for word in written if word != word.lower() or word.isdigit())
    named = {*query_words(names or proposal.question)} - FUNCTION_WORDS
    # If this leaves no name, a passage that shows the answer is enough.
    named &= set().union(*words.values())
    return any(named <= words[d.id] and shows(d, proposal.truth.wordings) for d in found)


FILTERS: dict[str, Filter] = {
    rule.__name__: rule
    for rule in (
        no_answer,
        unseen_answer,
        empty_question,
        no_search,
        short_question,
        long_question,
        spoiler,
        few_words,
        few_searches,
        repeated_query,
        past_question,
        one_document,
    )
}

# -- filters that look at the attempts -----------------------------------------------------------

AttemptFilter = Callable[[Game], bool]
"""True when a game's question *fails* by the attempts at it, which are judged."""


def unsolved(game: Game) -> bool:
    """No attempt that counts is right."""
    return not any(attempt.right for attempt in game.counted)


def outvoted(game: Game) -> bool:
    """More than half of the attempts that count agree on one wrong answer, in its normal form."""
    wrong = [a.trajectory.result for a in game.counted if a.trajectory.result and not a.right]
    votes = Counter(map(normalise, wrong))
    # More than half of all, also of those that gave no answer or were right.
    return 2 * max(votes.values(), default=0) > len(game.counted)


ATTEMPT_FILTERS: dict[str, AttemptFilter] = {"unsolved": unsolved, "outvoted": outvoted}
