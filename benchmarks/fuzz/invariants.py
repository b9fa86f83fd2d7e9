"""What must hold in every game, however it is played; independent of the code that it checks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache

from benchmarks.fuzz.hostile import special_ids
from ssp_env.game.config import GameConfig
from ssp_env.game.game import Game, Origin
from ssp_env.game.outcome import BUDGET_PROMPT, CLOSED_BOOK, UNVERIFIED, Ending, Outcome
from ssp_env.game.protocol import Tags
from ssp_env.game.rules import Rules
from ssp_env.game.trajectory import MAX_ANSWER_TOKENS, Trajectory
from ssp_env.types import Document, Role

SERVICES = {"search", "judge", "verifier", "engine"}
FORGED = "forged"


class Watch:
    """Follows games while they are played, and checks them when they are over."""

    def __init__(self, rules: Rules, thorough: bool) -> None:
        """``thorough`` also looks for look-alikes of tags (slower)."""
        self._rules, self._thorough = rules, thorough
        self._special = special_ids(rules.tokenizer)
        self._written: dict[int, dict[int, float]] = {}
        self._frozen: dict[int, tuple[object, ...]] = {}

    def given(
        self, trajectory: Trajectory, before: int, ids: Sequence[int], logprobs: Sequence[float]
    ) -> None:
        """Notes tokens that the policy wrote when the trajectory had ``before`` tokens."""
        taken = trajectory.ids[before : before + len(ids)]
        assert taken == list(ids), "what was taken is not what was given"
        written = self._written.setdefault(trajectory.key, {})
        written.update(enumerate(logprobs, start=before))

    def look(self, games: Sequence[Game]) -> None:
        """Notes what has ended, and that it stays as it is."""
        for game in games:
            for t in game.trajectories():
                assert t.tokens_left >= 0, "more tokens than the budget allows"
                if t.done:
                    tokens = tuple(t.ids), bytes(t.mask), t.logprobs.tobytes()
                    now = (*tokens, len(t.searches), t.result, t.ending)
                    assert self._frozen.setdefault(t.key, now) == now, "an ended trajectory changed"

    def check(self, games: Sequence[Game]) -> None:
        """Checks games that are over."""
        self.look(games)
        for game in games:
            _check_outcome(game, self._rules.config)
            for trajectory in game.trajectories():
                self._check_tokens(trajectory)
                self._check_budgets(trajectory)
                self._check_turns(trajectory)
                self._check_outside_text(game, trajectory)

    def _check_tokens(self, trajectory: Trajectory) -> None:
        written, places = self._written.get(trajectory.key, {}), range(len(trajectory.ids))
        due = [int(i in written) for i in places]
        assert list(trajectory.mask) == due, "the mask is not 1 on just the policy's tokens"
        given = [written.get(i, 0.0) for i in places]
        assert list(trajectory.logprobs) == given, "a log-probability that was not given"

    def _check_budgets(self, trajectory: Trajectory) -> None:
        config, tokenizer = self._rules.config, self._rules.tokenizer
        assert trajectory.done, "the game is over, but not this trajectory"
        assert len(trajectory.ids) - trajectory.prompt_length <= config.max_response_tokens
        reads = trajectory.role is Role.VERIFIER and not config.verifies_by_attempt
        room = config.max_prompt_tokens + (config.verification_tokens if reads else 0)
        assert trajectory.prompt_length <= room, "a prompt beyond its budget"
        most = 0 if reads or trajectory.role is Role.CLOSED_BOOK else config.max_searches
        assert len(trajectory.searches) <= most, "one search too many"
        if trajectory.library is not None:
            found = {d.id for search in trajectory.searches for d in search.documents}
            assert found <= {d.id for d in trajectory.library}, "verification found something else"

        for search in trajectory.searches:
            length = len(tokenizer.encode_data(search.query))
            assert length <= trajectory.longest_query, "a query beyond its budget"
            assert len(search.documents) <= config.top_k, "more documents than were asked for"

    def _check_turns(self, trajectory: Trajectory) -> None:
        """A naive parser finds the same first call in every turn, complete with its last token."""
        pieces, ending = self._rules.tokenizer.pieces, trajectory.ending
        turns = [(start, stop) for start, stop, own in trajectory.runs() if own]
        calls = []

        for start, stop in turns:
            ids = trajectory.ids[start:stop]
            text = b"".join(pieces[i] for i in ids)
            last = len(text) - len(pieces[ids[-1]])
            think = self._rules.tags.opening("think").encode()
            before, _, _ = without_thoughts(text[:last], self._rules).partition(think)
            actions = trajectory.limits.actions
            early = first_call(before, self._rules, actions)
            assert early is None, "a turn goes on after its call"
            call = first_call(without_thoughts(text, self._rules), self._rules, actions)
            if stop in trajectory.retried:
                assert call is None, "a complete action got another chance"
            else:
                calls.append(call)

        searched: list[object] = [(each.tool, each.query) for each in trajectory.searches]
        assert calls[: len(searched)] == searched, "what was searched for is not what was written"
        rest = calls[len(searched) :]
        assert (trajectory.result is not None) == (ending is Ending.ACTION)

        match ending:
            case Ending.ACTION:
                action = "question" if trajectory.role is Role.PROPOSER else "answer"
                assert rest == [(action, trajectory.result)], "the result is not what was written"
            case Ending.FORGED:
                assert rest == [FORGED]
            case Ending.BUDGET_SEARCHES | Ending.BUDGET_QUERY | Ending.REFUSED:
                assert [call and call[0] in trajectory.limits.tools for call in rest] == [True]
            case Ending.BUDGET_ANSWER:
                assert [call and call[0] for call in rest] == ["answer"]
                tokenizer = self._rules.tokenizer
                assert len(tokenizer.encode_data((rest[0] or "")[1])) > MAX_ANSWER_TOKENS
            case Ending.FORMAT | Ending.BUDGET_TOKENS:
                assert rest in ([None], []), "a complete call counts as none"
            case _:
                assert ending is Ending.OUTAGE
                assert len(rest) <= 1

    def _check_outside_text(self, game: Game, trajectory: Trajectory) -> None:
        """Prompts and observations hold no tags or special tokens but our own, in their places."""
        tokenizer, role = self._rules.tokenizer, trajectory.role
        runs = [(start, stop) for start, stop, own in trajectory.runs() if not own]
        retried, eos = trajectory.retried, tokenizer.eos_id
        observations = [trajectory.ids[i:j] for i, j in runs if i not in retried]
        for message in (trajectory.ids[i:j] for i, j in runs if i in retried):
            due = self._rules.prompts.retry(trajectory.limits.actions)
            assert message in (due, due[due[:1] == [eos] :]), "a retry in other words"
        assert len(retried) <= self._rules.config.retries, "one chance too many"
        prompt = _harmless_prompt(self._rules, role, game.initial_state.asked_searches)
        observed = self._rules.prompts.information([Document("x", "x", "x")], 9)
        unseen = len(trajectory.searches) - len(observations)
        cut_off = trajectory.ending is Ending.BUDGET_TOKENS and unseen == 1
        assert unseen == 0 or cut_off, "observations and searches differ in number"

        texts = [(trajectory.ids[: trajectory.prompt_length], prompt)]
        for ids, ours in [*texts, *((run, observed) for run in observations)]:
            special, expected = ([i for i in run if i in self._special] for run in (ids, ours))
            assert special == expected, f"outside text became special tokens: {special}"
            text, ours_text = (
                b"".join(tokenizer.pieces[i] for i in run).decode("utf-8", "replace")
                for run in (ids, ours)
            )
            seen, known = (_tags_in(t, self._rules.tags) for t in (text, ours_text))
            assert seen == known, f"a tag from outside: {seen}"

            if self._thorough:
                seen, known = (_tags_in(squashed(t), self._rules.tags) for t in (text, ours_text))
                assert seen == known, f"a look-alike of a tag from outside: {seen}"

        before, after = self._rules.prompts.frame_of("information")
        for run in observations:
            text = b"".join(tokenizer.pieces[i] for i in run).decode("utf-8", "replace")
            # Words have no line breaks, and a policy may have ended its message itself.
            begins, ends = text.partition("<information>")[0], text.rpartition("</information>")[2]
            ended = "" if eos is None else tokenizer.decode([eos])
            known_beginnings = {before.strip(), before.removeprefix(ended).strip()}
            assert begins.strip() in known_beginnings, "it begins otherwise"
            assert ends.strip() == after.strip(), "it ends otherwise"


def first_call(text: bytes, rules: Rules, actions: tuple[str, ...]) -> tuple[str, str] | str | None:
    """The first complete call: ``(action, content)``, :data:`FORGED` or ``None``. Naive, slow."""
    opened: tuple[bytes, int] | None = None
    for found in _tag_pattern(rules.tags, actions).finditer(text):
        name = found[0].strip(b"</>")
        if name == rules.tags.information.encode():
            return FORGED

        if not found[0].startswith(b"</"):
            opened = name, found.end()
        elif opened is not None and opened[0] == name:
            return name.decode(), text[opened[1] : found.start()].decode("utf-8", "replace").strip()

    return None


def without_thoughts(text: bytes, rules: Rules) -> bytes:
    """A turn with a space for every complete thought."""
    tags = rules.tags
    opening, closing = (
        re.escape(tag.encode()) for tag in (tags.opening("think"), tags.closing("think"))
    )
    return re.sub(opening + b".*?" + closing, b" ", text, flags=re.DOTALL)


def squashed(text: str) -> str:
    """A text without case, width, accents, spaces and invisible characters."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    return "".join(c for c in folded if not c.isspace() and unicodedata.category(c)[0] not in "CM")


def _check_outcome(game: Game, config: GameConfig) -> None:
    proposed = game.origin is Origin.PROPOSED
    hit = [a for a in game.attempts if a.outage is not None]
    assert all(a.verdict is None and a.reward is None for a in hit), "a void attempt pays"
    assert {a.outage.service for a in hit if a.outage} <= SERVICES
    counted = [a for a in game.attempts if a.outage is None]
    enough = len(counted) >= max(config.attempts / 2, min(config.attempts, 2))
    match game.outcome:
        case Outcome.VALID:
            assert game.reason is None
            assert len(game.attempts) == config.attempts
            assert enough, "too few attempts count"
            free = not config.closed_book or game.origin is Origin.GIVEN
            earned = [float(a.right and (free or game.has_read(a))) for a in counted]
            assert all(a.verdict for a in counted)
            assert [a.reward for a in counted] == earned, "the solver's reward is not its due"
            p = sum(a.right for a in counted) / len(counted)
            expected = 1 - p if config.proposer_reward == "1-p" else 4 * p * (1 - p)
            due = expected if proposed else None
            assert game.proposer_reward == due, "the proposer's reward is not its due"
            assert not proposed or (game.verification is not None and game.verification.correct)
        case Outcome.INVALID:
            known = {ending.value for ending in Ending} - {"action", "outage"}
            known |= {*(config.filters or ()), UNVERIFIED, BUDGET_PROMPT, CLOSED_BOOK}
            assert game.reason in known, game.reason
            assert game.proposer_reward == (config.invalid_reward if proposed else None)
            assert not any(a.reward for a in game.attempts)
        case Outcome.VOID:
            assert game.reason in SERVICES, game.reason
            assert game.proposer_reward is None
            assert not any(a.verdict or a.reward is not None for a in counted), "a void game pays"
            assert not game.attempts or not enough, "enough attempts remain"
        case _:
            raise AssertionError("the game is over, but has no outcome")
    assert (game.solve_rate is not None) == (game.outcome is Outcome.VALID)


def _tags_in(text: str, tags: Tags) -> list[str]:
    return re.findall("|".join(map(re.escape, tags.all())), text)


@cache
def _tag_pattern(tags: Tags, actions: tuple[str, ...]) -> re.Pattern[bytes]:
    names = ["information", *actions]
    known = [tag for name in names for tag in (tags.opening(name), tags.closing(name))]
    return re.compile("|".join(map(re.escape, known)).encode())


def _harmless_prompt(rules: Rules, role: Role, asked: int) -> list[int]:
    match role:
        case Role.PROPOSER:
            return rules.prompts.proposer("x", asked)
        case Role.VERIFIER if rules.config.verification_prompt == "documents":
            return rules.prompts.verifier("x", [], 9)
        case Role.VERIFIER if not rules.config.verifies_by_attempt:
            searched = rules.prompts.search("x") + rules.prompts.information([], 9)
            return rules.prompts.solver("x", rules.config.max_searches) + searched
        case Role.CLOSED_BOOK:
            return rules.prompts.closed_book("x")

    return rules.prompts.solver("x", rules.config.max_searches)
