"""Normal form, exact match and F1; answers that a text gives away to a reader."""

from __future__ import annotations

import string
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.wording.mention import mentions
from ssp_env.wording.normal import exact_match, f1, in_latin, normalise, squad_form

TEXT = st.text(max_size=24)
MESSY = st.lists(
    st.sampled_from(
        ["a", "The", "who", "!", "...", "-", " ", "é", "\u0301", "ß", "東", "ไ", "\u200b"]
    )
).map("".join)


def test_normal_form() -> None:
    normal = {
        "  The  Eiffel\tTower! ": "eiffel tower",
        "U.S.A.": "usa",
        "Ｐａｒｉｓ": "paris",
        "co\u00adoperate\u200b": "cooperate",
        "東京。": "東京",
        "caf.e.\u0301": "caf\u00e9",
        "The Who": "who",
        "!!!": "!!!",
        " \u200b\t": "",
    }
    assert {text: normalise(text) for text in normal} == normal


@given(st.one_of(TEXT, MESSY))
def test_normal_form_is_stable_and_a_wording_matches_itself_unless_blank(text: str) -> None:
    normal = normalise(text)
    assert normalise(normal) == normal
    assert exact_match(text, [text]) is (normal != "")
    assert f1(text, [text]) == float(squad_form(text) != "")


@pytest.mark.parametrize(
    ("prediction", "wordings", "score"),
    [
        ("Beatles!", ["Stones", "The Beatles"], 1.0),
        ("big apple", ["The big apple city"], 0.8),
        ("x x x y", ["x y y"], 2 * 2 / 7),
        ("Pele", ["Pelé"], 0.0),
        ("กี่", ["กี่"], 1.0),
    ],
)
def test_f1(prediction: str, wordings: list[str], score: float) -> None:
    assert f1(prediction, wordings) == pytest.approx(score)
    assert exact_match(prediction, wordings) is (score == 1.0)


def published(text: str) -> list[str]:
    """Words of SQuAD's normal form, from its description: small letters, no ASCII punctuation, no
    articles, cut at white space. An article is a whole run of letters, figures and underscores."""
    runs: list[str] = [""]
    for letter in text.lower():
        if letter not in string.punctuation:
            joins = bool(runs[-1]) and runs[-1][-1].isalnum() and letter.isalnum()
            runs = [*runs[:-1], runs[-1] + letter] if joins else [*runs, letter]
    return "".join(" " if run in ("a", "an", "the") else run for run in runs).split()


PIECES = ["a", "an", "the", "The", "A", "Paris", "b", "é", "ß", "İ", "10⁶", "106", "5‰", "5%", "½"]
PIECES += [*"  .,;:'\"!?()[]-_+#*/$\t\n\u00a0\u3000", "東京", "。", "’", "Ａ", "3.5", "35", "x"]


def test_exact_match_and_f1_are_those_of_the_published_evaluation_on_random_texts() -> None:
    random = Random(0)
    texts = ["".join(random.choices(PIECES, k=random.randint(1, 6))) for _ in range(2000)]
    for text, other in zip(texts, [*texts[1000:], *texts[:1000]], strict=True):
        for gold in (other, f"The {text}!", text.upper()):
            mine, theirs = published(text), published(gold)
            assert squad_form(text) == " ".join(mine)
            assert exact_match(text, [gold]) is (mine == theirs and normalise(text) != "")
            common = sum(min(mine.count(word), theirs.count(word)) for word in {*mine})
            precision, recall = common / max(1, len(mine)), common / max(1, len(theirs))
            score = 2 * precision * recall / (precision + recall) if common else 0.0
            assert f1(text, [gold]) == pytest.approx(score)


def test_powers_and_shares_keep_apart_in_the_published_forms() -> None:
    for gold, said in (("10⁶", "106"), ("5‰", "5%"), ("β", "v"), ("½", "12")):
        assert not exact_match(said, [gold])
        assert f1(said, [gold]) == 0


@pytest.mark.parametrize(
    ("text", "latin"),
    [
        ("P\u0430ris", "Paris"), ("Łódź", "Lodz"), ("Straße", "Strasse"), ("Hawaiʻi", "Hawai'i"),
        ("β-carotene", "Beta-carotene"), ("TNFα", "TNF Alpha"), ("7 \u00b5m", "7 um"),
        ("10⁶", "10^6"), ("10½", "10 1/2"), ("5 Ω", "5 Ω"), ("章伟", "章伟"), ("Москва", "Москва"),
    ],
)  # fmt: skip
def test_latin_is_for_words_that_have_latin_letters(text: str, latin: str) -> None:
    assert in_latin(text) == latin


GIVEN_AWAY = [
    ("What is the capital PARIS known for?", "Paris"), ("Who is Paris's mayor?", "Paris"),
    ("Which river crosses P a r i s?", "Paris"), ("Where is NewYork?", "New York"),
    ("Where is São Paulo?", "Sao Paulo"), ("Where is Lodz?", "Łódź"),
    ("Which state followed the U. S. S. R.?", "USSR"), ("Which series is M*A*S*H?", "MASH"),
    ("Whose pi is ٣?", "3"), ("Who starred in It as a child?", "It"),
    ("In which US state is it?", "U.S."), ("Who sings in the band !!!?", "!!!"),
    ("파리의 시장은?", "파리"), ("กรุงเทพมหานครอยู่ที่ไหน", "กรุงเทพ"), ("أين تقع مـصـر؟", "مصر"),
    ("Who lives in 🇵🇦🇷🇮🇸?", "Paris"), ("Who lives in P̶a̶r̶i̶s̶?", "Paris"),
    ("Who lives in \u202esiraP\u202c?", "Paris"), ("Who lives in lran?", "Iran"),
    ("What did PauI write?", "Paul"), ("Who lives in P4r1s?", "Paris"),
    ("Where in ParisFrance is it?", "Paris"), ("What was Paris2024?", "Paris"),
    ("Who lives in thecastledrogohouse?", "Castle Drogo"), ("Who lives in Pari(s)?", "Paris"),
    ("Who lives in &#80;aris?", "Paris"), ("Who lives in <b>P</b>aris?", "Paris"),
    ("Who was Smith, George?", "George Smith"), ("What began on 12 May 1912?", "May 12, 1912"),
    ("Which store did George P. Smith buy?", "George Smith"),
    ("Where does Roger live?", "Roger (alien)"), ("Who is Mr Mueller?", "Müller"),
    ("Who founded K i e v?", "Kiev"), ("Who founded k, i, e, v?", "Kiev"),
    ("Who lives in P, a, r, i, s?", "Paris"), ("Who is N/e/w/Y/o/r/k?", "New York"),
    ("What began in 18 42?", "1842"), ("What began in (18)(42)?", "1842"),
    ("What began in 1 8 4 2?", "1842"),
    ("What began in 1,8,4,2?", "1842"), ("What are the 1842s?", "1842"),
    ("What is year1842x?", "1842"), ("What began on May 12, 19 12?", "1912"),
    ("Who ruled Viena?", "Vienna"), ("Who ruled Viennna?", "Vienna"), ("Where is Kieev?", "Kiev"),
    ("Who met Gorge Smith?", "George Smith"), ("What did Shakespear write?", "Shakespeare"),
    ("Who met George Smmith?", "George Smith"), ("Where is argentia?", "Argentina"),
]  # fmt: skip

KEPT_SECRET = [
    ("Who is the veteran?", "Iran"), ("When I ran a marathon, who won?", "Iran"),
    ("What happened in 2012?", "12"), ("What weighs 12.5 tons?", "125"),
    ("Which match ended 1-2?", "12"), ("Which is not able to fly?", "Notable"),
    ("Which of us is it?", "U.S."), ("What is it?", "It"), ("Who sang?", "The Who"),
    ("Which vitamin cures scurvy?", "Vitamin A"), ("Does an ox ford rivers?", "Oxford"),
    ("関東、京都はどこ?", "東京"),
    ("What is written in this writing?", "It"), ("Who has siraP in mind?", "Paris"),
    ("Whose son is George W. Bush?", "George H. W. Bush"),
    ("At which heat does it melt?", "Heat (film)"), ("Where is Indiana?", "India"),
    ("Which comparison is right?", "Paris"), ("Who is Finn?", "Finland"),
    ("What came in the 1990s?", "1990"), ("What has 18.42 tons?", "1842"),
    ("Who is between 18 and 42?", "1842"), ("What weighs 11842 tons?", "1842"),
    ("Is the lack of it new?", "Black"), ("Who is Ian?", "Iran"), ("Who is from Cuba?", "Cuban"),
    ("Who is from Australia?", "Australian"), ("Who is Louis?", "Louise"),
    ("Who was Ferdinand I?", "Ferdinand IV"), ("Who met Ann?", "Anna"),
    ("Did George meet Smith?", "George Smith"), ("Anything at all?", " \u200b "),
]  # fmt: skip


def test_what_is_given_away_and_what_is_kept_secret() -> None:
    told = {(text, wording): mentions(text, [wording]) for text, wording in GIVEN_AWAY}
    assert told == {pair: pair[1] for pair in GIVEN_AWAY}
    kept = {(text, wording): mentions(text, [wording]) for text, wording in KEPT_SECRET}
    assert kept == dict.fromkeys(KEPT_SECRET)


WORDS = st.text(st.sampled_from("bcdfghjklmnpqrvwxzé中ไकж"), min_size=4, max_size=9)


@given(st.lists(WORDS, min_size=1, max_size=3).map(" ".join))
def test_a_wording_is_found_however_it_is_written(wording: str) -> None:
    for written in (wording.upper(), wording.replace(" ", "-"), f"«{wording}»", f"the {wording}'s"):
        assert mentions(f"Tell me: {written}, yes?", [wording]) == wording


@given(WORDS.filter(str.isascii), st.sampled_from("bcdxyz"))
def test_a_longer_word_is_not_the_wording(word: str, more: str) -> None:
    assert mentions(f"Tell me: {word}{more} {more}{word}!", [word]) is None


ALIKE = {"a": "аαᴀ", "c": "сᴄⅽ", "e": "еεᴇ", "i": "іιɪ", "o": "оοᴏ", "p": "рρᴘ", "s": "ѕꜱ"}
INVISIBLE = "\u200b\u200d\u2060\ufeff\u00ad\u034f\ufe0f\x00\x07\u0301\u0336\U000e0020"


@given(st.text(st.sampled_from("aceiopsbdm"), min_size=4, max_size=9), st.data())
def test_look_alikes_and_what_does_not_show_hide_nothing(wording: str, data: st.DataObject) -> None:
    between, hides = st.text(st.sampled_from(INVISIBLE), max_size=3), data.draw(st.booleans())
    alike = [letter if hides else letter + ALIKE.get(letter, "") for letter in wording]
    written = "".join(
        data.draw(st.sampled_from(letters)) + data.draw(between if hides else st.just(""))
        for letters in alike
    )
    assert mentions(f"Tell me: {written}, yes?", [wording]) == wording
