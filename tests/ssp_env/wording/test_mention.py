"""Does a text give an answer away?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.wording.mention import mentions

GIVEN_AWAY = [
    ("What is the capital PARIS known for?", "Paris"),
    ("Who is Paris's mayor?", "Paris"),
    ("Which river crosses (Paris)?", "Paris"),
    ("Which river crosses P a r i s?", "Paris"),
    ("Which river crosses P.a.r.i.s?", "Paris"),
    ("Which river crosses p-a-r-i-s?", "Paris"),
    ("Where is N e w Y o r k?", "New York"),
    ("Where is NewYork?", "New York"),
    ("Where is New-York?", "New York"),
    ("What did Jean Paul Sartre write?", "Jean-Paul Sartre"),
    ("What did JeanPaul Sartre write?", "Jean-Paul Sartre"),
    ("Who drew Spider-Man?", "Spiderman"),
    ("Who drew Spider Man?", "Spiderman"),
    ("Who wrote as J. R. R. Tolkien?", "JRR Tolkien"),
    ("Who wrote as JRR Tolkien?", "J.R.R. Tolkien"),
    ("Where is Sao Paulo?", "São Paulo"),
    ("Where is São Paulo?", "Sao Paulo"),
    ("Where is Sa\u0303o Paulo?", "São Paulo"),
    ("Where is Lodz?", "Łódź"),
    ("Who are beatles?", "The Beatles"),
    ("Who wrote Lord of Rings?", "The Lord of the Rings"),
    ("Who wrote The Lord of the Rings?", "Lord of Rings"),
    ("Which state followed the USSR?", "U.S.S.R."),
    ("Which state followed the U. S. S. R.?", "USSR"),
    ("Which series is M*A*S*H?", "MASH"),
    ("What has 1,000 islands?", "1000"),
    ("What has 1000 islands?", "1,000"),
    ("What has 1 000 islands?", "1000"),
    ("What happened in 2012?", "2012"),
    ("Whose pi is ٣?", "3"),
    ("What did Apollo-11 bring?", "Apollo 11"),
    ("Does Iran lie in Asia?", "Iran"),
    ("Is it Zero\u200bWidth?", "Zerowidth"),
    ("Where do the Who come from?", "The Who"),
    ("Who starred in It as a child?", "It"),
    ('Who directed "It"?', "It"),
    ("In which US state is it?", "U.S."),
    ("US troops left in which year?", "US"),
    ("Who leads Serie A now?", "Serie A"),
    ("Who sings in the band !!!?", "!!!"),
    ("ГДЕ ЛЕЖИТ МОСКВА?", "Москва"),
    ("दिल्ली की आबादी?", "दिल्ली"),
    ("東京の人口は?", "東京"),
    ("東 京 タ ワ ーはどこ?", "東京タワー"),
    ("レオナルドダヴィンチの母は?", "レオナルド・ダ・ヴィンチ"),
    ("AKB48の劇場はどこ?", "AKB48"),
    ("2012年12月に何が?", "12月"),
    ("파리의 시장은?", "파리"),
    ("กรุงเทพมหานครอยู่ที่ไหน", "กรุงเทพ"),
    ("Кто живёт в Риме?", "риме"),
    ("أين تقع مـصـر؟", "مصر"),
    ("Πού είναι η Αθήνα;", "Αθηνα"),
    # the same to the eye
    ("Who lives in Раris?", "Paris"),
    ("Who lives in РАRІЅ?", "Paris"),
    ("Who lives in Р а r і s?", "Paris"),
    ("Who lives in Ρaris?", "Paris"),
    ("Who lives in ᴘᴀʀɪꜱ?", "Paris"),
    ("Who lives in Ⓟⓐⓡⓘⓢ?", "Paris"),
    ("Who lives in 🅟🅐🅡🅘🅢?", "Paris"),
    ("Who lives in 🇵🇦🇷🇮🇸?", "Paris"),
    ("Who lives in 𝓟𝓪𝓻𝓲𝓼?", "Paris"),
    ("Who lives in P̶a̶r̶i̶s̶?", "Paris"),
    ("Who lives in \u202esiraP\u202c?", "Paris"),
    ("Who lives in lran?", "Iran"),
    ("What did PauI write?", "Paul"),
    ("Кто живёт в Mocквe?", "Москве"),
    ("What was the CCCP?", "СССР"),
    ("Which vitamin is С?", "C"),
    # signs for letters
    ("Who lives in P4r1s?", "Paris"),
    ("Who lives in p@ris?", "Paris"),
    ("Who sang as Ke$ha?", "Kesha"),
    ("Who sang as Ke$ha?", "Ke$ha"),
    # nothing in between
    ("Who lives in Pa\x00ris?", "Paris"),
    ("Who lives in Pa\x1bris?", "Paris"),
    ("Who lives in Pa\u034fris?", "Paris"),
    ("Who lives in Pa\u3164ris?", "Paris"),
    ("Who lives in Pa\u00adris?", "Paris"),
    ("Who lives in\u200bParis\u200bnow?", "Paris"),
    ("Who lives in\x00Paris\x00now?", "Paris"),
    ("Who lives in\u3164Paris\u2800now?", "Paris"),
    # signs in between
    ("Who lives in Pa\u2011ris?", "Paris"),
    ("Who lives in Par|is?", "Paris"),
    ("Who lives in P•a•r•i•s?", "Paris"),
    ("Who lives in **P**aris?", "Paris"),
    ("Who lives in Pa-\nris?", "Paris"),
    # glued to something
    ("Where in ParisFrance is it?", "Paris"),
    ("Where in FranceParis is it?", "Paris"),
    ("Who knew xGeorge Smithx?", "George Smith"),
    ("What was Paris2024?", "Paris"),
    ("What did the Parisians do?", "Paris"),
    ("Where is the NewYorkCity hall?", "New York"),
    ("Who lives in thecastledrogohouse?", "Castle Drogo"),
    # split
    ("Who lives in Pari(s)?", "Paris"),
    ("Who lives in (P)aris?", "Paris"),
    ("Who lives in P[ar]is?", "Paris"),
    ("Who lives in Par,is?", "Paris"),
    ("Who lives in Par...is?", "Paris"),
    ("Who lives in Pa ris?", "Paris"),
    # written in HTML
    ("Who lives in &#80;aris?", "Paris"),
    ("Who lives in <b>P</b>aris?", "Paris"),
    ("Who lives in S&atilde;o Paulo?", "São Paulo"),
    # in another order
    ("Who was Smith, George?", "George Smith"),
    ("Who was Lutyens Edwin?", "Edwin Lutyens"),
    ("Who was Smith, George P.?", "George P. Smith"),
    ("What began on 12 May 1912?", "May 12, 1912"),
    # a name more or less complete
    ("Which store did George P. Smith buy?", "George Smith"),
    ("Which store did George Smith buy?", "George P. Smith"),
    ("Where does Roger live?", "Roger (alien)"),
    # letters that keyboards lack
    ("Who is Mr Mueller?", "Müller"),
    ("Who is Mr Müller?", "Mueller"),
    ("Who lives in Goeteborg?", "Göteborg"),
]

KEPT_SECRET = [
    ("Who is the veteran?", "Iran"),
    ("When I ran a marathon, who won?", "Iran"),
    ("What happened in 2012?", "12"),
    ("What weighs 12.5 tons?", "12"),
    ("What weighs 12.5 tons?", "125"),
    ("What has 12,000 seats?", "12"),
    ("Which match ended 1-2?", "12"),
    ("Which match had 12 goals?", "1-2"),
    ("Who is the 12th man?", "12"),
    ("Which is not able to fly?", "Notable"),
    ("Which is a way to go?", "Away"),
    ("Which of us is it?", "U.S."),
    ("What is it?", "It"),
    ("It was founded when?", "It"),
    ("Who sang?", "The Who"),
    ("Which vitamin cures scurvy?", "Vitamin A"),
    ("Does an ox ford rivers?", "Oxford"),
    ("Which banks pay out first?", "Payout"),
    ("Which a city?", "A"),
    ("Where was the artist born?", "The Artists"),
    ("Where is New Jersey, near York?", "New York"),
    ("Where is York, New Jersey?", "New York"),
    ("Is it super, a man, or what?", "Superman"),
    ("Is it super, a man?", "Superman"),
    ("Really!!! Who?", "!!!"),
    ("2012年12月に何が?", "2月"),
    ("関東、京都はどこ?", "東京"),
    ("XAKB48の劇場はどこ?", "AKB48の劇場"),
    ("What is written in this writing?", "It"),
    ("Which letter is first?", "E"),
    ("Which number is 70, or 17?", "7"),
    ("Which number is 7.5?", "7"),
    ("Who has siraP in mind?", "Paris"),
    ("Is it in comparison to others?", "Paris"),
    ("Is it a lan party?", "Ian"),
    ("Are they all in the 11th?", "Ali"),
    ("Какой город лежит в Иране?", "B"),
    ("Кто был там, а кто тут?", "A"),
    ("Is x=y here?", "xy"),
    ("Who is McDonald?", "Donald"),
    ("Whose son is George W. Bush?", "George H. W. Bush"),
    ("At which heat does it melt?", "Heat (film)"),
    ("Where is Indiana?", "India"),
    ("Which comparison is right?", "Paris"),
    ("Who is the 12thman?", "12"),
    ("Which china is polish?", "Poland"),
    ("Who is Finn?", "Finland"),
    ("Did George meet Smith?", "George Smith"),
    ("Which match ended 2-1?", "1-2"),
    ("Is it a man, or super?", "Super Man"),
    ("Anything at all?", ""),
    ("Anything at all?", " \u200b "),
    ("", "Paris"),
]


@pytest.mark.parametrize(("text", "wording"), GIVEN_AWAY)
def test_given_away(text: str, wording: str) -> None:
    assert mentions(text, [wording]) == wording


@pytest.mark.parametrize(("text", "wording"), KEPT_SECRET)
def test_kept_secret(text: str, wording: str) -> None:
    assert mentions(text, [wording]) is None


def test_three_spaced_letters_are_no_mention() -> None:
    assert mentions("Who made c a t?", ["Cat"]) is None


def test_the_first_wording_that_occurs_is_named() -> None:
    assert (
        mentions("Is New York City in New York?", ["Gotham", "New York", "New York City"])
        == "New York"
    )
    assert mentions("Is it in New York?", []) is None


WORDS = st.text(st.sampled_from("bcdfghjklmnpqrvwxzé中ไकж"), min_size=4, max_size=9)


@given(st.lists(WORDS, min_size=1, max_size=3).map(" ".join))
def test_a_wording_is_found_between_other_words_however_it_is_written(wording: str) -> None:
    for written in (
        wording,
        wording.upper(),
        wording.replace(" ", "-"),
        f"«{wording}»",
        f"the {wording}'s",
    ):
        assert mentions(f"Tell me: {written}, yes?", [wording]) == wording


@given(
    st.text(st.sampled_from("bcdfghjklmnpqrvwxz"), min_size=1, max_size=9),
    st.sampled_from("bcdxyz"),
)
def test_a_longer_word_is_not_the_wording(word: str, more: str) -> None:
    assert mentions(f"Tell me: {word}{more}", [word]) is None
    assert mentions(f"Tell me: {more}{word}!", [word]) is None


LOOK_ALIKES = {
    "a": "аαᴀ",
    "c": "сᴄⅽ",
    "e": "еεᴇ",
    "i": "іιɪ",
    "o": "оοᴏ",
    "p": "рρᴘ",
    "s": "ѕꜱ",
    "x": "хⅹ",
    "y": "уγʏ",
}
INVISIBLE = "\u200b\u200d\u2060\ufeff\u00ad\u034f\ufe0f\x00\x07\u0301\u0336\U000e0020"


@given(st.text(st.sampled_from("aceiopsxy"), min_size=4, max_size=9), st.data())
def test_letters_that_look_the_same_are_the_same(wording: str, data: st.DataObject) -> None:
    written = "".join(
        data.draw(st.sampled_from(letter + LOOK_ALIKES[letter])) for letter in wording
    )
    assert mentions(f"Tell me: {written}, yes?", [wording]) == wording


@given(st.text(st.sampled_from("bcdfghjkmnpqrtvwxz"), min_size=2, max_size=9), st.data())
def test_what_does_not_show_hides_nothing(wording: str, data: st.DataObject) -> None:
    between = data.draw(
        st.lists(st.text(st.sampled_from(INVISIBLE), max_size=3), min_size=len(wording))
    )
    written = "".join(letter + nothing for letter, nothing in zip(wording, between, strict=False))
    assert mentions(f"Tell me: {written}, yes?", [wording]) == wording


@given(st.text(max_size=30), st.text(max_size=10))
def test_any_text_can_be_searched(text: str, wording: str) -> None:
    assert mentions(text, [wording]) in (None, wording)
