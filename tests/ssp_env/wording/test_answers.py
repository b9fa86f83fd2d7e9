"""Normal form, exact match and F1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssp_env.wording.answers import exact_match, f1, normalise

TEXT = st.text(max_size=24)
MESSY = st.lists(
    st.sampled_from(
        ["a", "The", "who", "!", "...", "-", " ", "é", "\u0301", "ß", "東", "ไ", "\u200b"]
    )
).map("".join)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("  The  Eiffel\tTower! ", "eiffel tower"),
        ("U.S.A.", "usa"),
        ("“Don’t” — stop…", "dont stop"),
        ("Ｐａｒｉｓ", "paris"),
        ("Straße", "strasse"),
        ("co\u00adoperate\u200b", "cooperate"),
        ("東京。", "東京"),
        ("caf.e.\u0301", "caf\u00e9"),
        ("¿Quién?", "quién"),
        ("The Who", "who"),
        ("The The", "the the"),
        ("!!!", "!!!"),
        (" \u200b\t", ""),
    ],
)
def test_normal_form(text: str, normal: str) -> None:
    assert normalise(text) == normal


@given(st.one_of(TEXT, MESSY))
def test_normal_form_is_stable(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@given(st.one_of(TEXT, MESSY))
def test_a_wording_matches_itself_unless_blank(text: str) -> None:
    blank = normalise(text) == ""
    assert exact_match(text, [text]) is not blank
    assert f1(text, [text]) == pytest.approx(0.0 if blank else 1.0)


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1))
def test_visible_text_has_a_normal_form(text: str) -> None:
    assert normalise(text) != ""


@given(TEXT, st.lists(TEXT, max_size=3))
def test_f1_is_a_fraction_and_agrees_with_exact_match(prediction: str, wordings: list[str]) -> None:
    score = f1(prediction, wordings)
    assert 0.0 <= score <= 1.0
    assert score == 1.0 or not exact_match(prediction, wordings)


@pytest.mark.parametrize(
    ("prediction", "wordings", "score"),
    [
        ("Beatles!", ["Stones", "The Beatles"], 1.0),
        ("big apple", ["The big apple city"], 0.8),
        ("Paris, in France", ["Rome", "Paris"], 0.5),
        ("x x x y", ["x y y"], 2 * 2 / 7),
        ("Pele", ["Pelé"], 0.0),
        ("the", ["A"], 0.0),
        ("МОСКВА", ["Москва"], 1.0),
        ("東京都", ["東京"], 0.8),
        ("กี่", ["กี่"], 1.0),
    ],
)
def test_f1(prediction: str, wordings: list[str], score: float) -> None:
    assert f1(prediction, wordings) == pytest.approx(score)
    assert exact_match(prediction, wordings) is (score == 1.0)
