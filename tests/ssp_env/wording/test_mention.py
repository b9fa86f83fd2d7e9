"""Answers that a text gives away to a reader, and those that it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.wording.mention import mentions

GIVEN_AWAY = [
    ("What is the capital PARIS known for?", "Paris"), ("Who is Paris's mayor?", "Paris"),
    ("Which river crosses P a r i s?", "Paris"), ("Where is NewYork?", "New York"),
    ("What did Jean Paul Sartre write?", "Jean-Paul Sartre"),
    ("Who drew Spider-Man?", "Spiderman"), ("Who wrote as J. R. R. Tolkien?", "JRR Tolkien"),
    ("Where is São Paulo?", "Sao Paulo"), ("Where is Lodz?", "Łódź"),
    ("Who wrote Lord of Rings?", "The Lord of the Rings"),
    ("Which state followed the U. S. S. R.?", "USSR"), ("Which series is M*A*S*H?", "MASH"),
    ("What has 1,000 islands?", "1000"), ("What happened in 2012?", "2012"),
    ("Whose pi is ٣?", "3"), ("Who starred in It as a child?", "It"),
    ("In which US state is it?", "U.S."), ("Who sings in the band !!!?", "!!!"),
    ("ГДЕ ЛЕЖИТ МОСКВА?", "Москва"), ("東 京 タ ワ ーはどこ?", "東京タワー"),
    ("AKB48の劇場はどこ?", "AKB48"),
    ("파리의 시장은?", "파리"), ("กรุงเทพมหานครอยู่ที่ไหน", "กรุงเทพ"), ("أين تقع مـصـر؟", "مصر"),
    ("Who lives in Раris?", "Paris"), ("Who lives in ᴘᴀʀɪꜱ?", "Paris"),
    ("Who lives in 🇵🇦🇷🇮🇸?", "Paris"), ("Who lives in P̶a̶r̶i̶s̶?", "Paris"),
    ("Who lives in \u202esiraP\u202c?", "Paris"), ("Who lives in lran?", "Iran"),
    ("What did PauI write?", "Paul"), ("Who lives in P4r1s?", "Paris"),
    ("Who lives in Pa\x00ris?", "Paris"), ("Who lives in\u200bParis\u200bnow?", "Paris"),
    ("Who lives in Par|is?", "Paris"), ("Who lives in Pa-\nris?", "Paris"),
    ("Where in ParisFrance is it?", "Paris"), ("What was Paris2024?", "Paris"),
    ("What did the Parisians do?", "Paris"),
    ("Who lives in thecastledrogohouse?", "Castle Drogo"), ("Who lives in Pari(s)?", "Paris"),
    ("Who lives in &#80;aris?", "Paris"), ("Who lives in <b>P</b>aris?", "Paris"),
    ("Who was Smith, George?", "George Smith"), ("What began on 12 May 1912?", "May 12, 1912"),
    ("Which store did George P. Smith buy?", "George Smith"),
    ("Where does Roger live?", "Roger (alien)"), ("Who is Mr Mueller?", "Müller"),
    ("Who lives in Goeteborg?", "Göteborg"),
]  # fmt: skip

KEPT_SECRET = [
    ("Who is the veteran?", "Iran"), ("When I ran a marathon, who won?", "Iran"),
    ("What happened in 2012?", "12"), ("What weighs 12.5 tons?", "125"),
    ("Which match ended 1-2?", "12"), ("Which is not able to fly?", "Notable"),
    ("Which of us is it?", "U.S."), ("What is it?", "It"), ("Who sang?", "The Who"),
    ("Which vitamin cures scurvy?", "Vitamin A"), ("Does an ox ford rivers?", "Oxford"),
    ("Where is New Jersey, near York?", "New York"), ("Where is York, New Jersey?", "New York"),
    ("Is it super, a man?", "Superman"), ("2012年12月に何が?", "2月"),
    ("関東、京都はどこ?", "東京"),
    ("What is written in this writing?", "It"), ("Who has siraP in mind?", "Paris"),
    ("Is it a lan party?", "Ian"), ("Is x=y here?", "xy"), ("Who is McDonald?", "Donald"),
    ("Whose son is George W. Bush?", "George H. W. Bush"),
    ("At which heat does it melt?", "Heat (film)"), ("Where is Indiana?", "India"),
    ("Which comparison is right?", "Paris"), ("Who is Finn?", "Finland"),
    ("Did George meet Smith?", "George Smith"), ("Anything at all?", " \u200b "),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wording"), GIVEN_AWAY)
def test_given_away(text: str, wording: str) -> None:
    assert mentions(text, [wording]) == wording


@pytest.mark.parametrize(("text", "wording"), KEPT_SECRET)
def test_kept_secret(text: str, wording: str) -> None:
    assert mentions(text, [wording]) is None


def test_the_first_wording_that_occurs_is_named() -> None:
    assert (
        mentions("Is New York City in New York?", ["Gotham", "New York", "New York City"])
        == "New York"
    )
    assert mentions("Is it in New York?", []) is None


WORDS = st.text(st.sampled_from("bcdfghjklmnpqrvwxzé中ไकж"), min_size=4, max_size=9)


@given(st.lists(WORDS, min_size=1, max_size=3).map(" ".join))
def test_a_wording_is_found_however_it_is_written(wording: str) -> None:
    for written in (wording.upper(), wording.replace(" ", "-"), f"«{wording}»", f"the {wording}'s"):
        assert mentions(f"Tell me: {written}, yes?", [wording]) == wording


@given(WORDS.filter(str.isascii), st.sampled_from("bcdxyz"))
def test_a_longer_word_is_not_the_wording(word: str, more: str) -> None:
    assert mentions(f"Tell me: {word}{more}", [word]) is None
    assert mentions(f"Tell me: {more}{word}!", [word]) is None


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


@given(st.text(max_size=30), st.text(max_size=10))
def test_any_text_can_be_searched(text: str, wording: str) -> None:
    assert mentions(text, [wording]) in (None, wording)
