"""Normal form, exact match and F1; answers that a text gives away to a reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.wording.answers import exact_match, f1, normalise
from ssp_env.wording.mention import mentions

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
    assert f1(text, [text]) == pytest.approx(float(normal != ""))


@pytest.mark.parametrize(
    ("prediction", "wordings", "score"),
    [
        ("Beatles!", ["Stones", "The Beatles"], 1.0),
        ("big apple", ["The big apple city"], 0.8),
        ("x x x y", ["x y y"], 2 * 2 / 7),
        ("Pele", ["Pelé"], 0.0),
        ("the", ["A"], 0.0),
        ("กี่", ["กี่"], 1.0),
    ],
)
def test_f1(prediction: str, wordings: list[str], score: float) -> None:
    assert f1(prediction, wordings) == pytest.approx(score)
    assert exact_match(prediction, wordings) is (score == 1.0)


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
