"""Search in other scripts than English's: words, queries that find their passage, whole games."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from scripted import begin

from ssp_env.envs.setup import set_up
from ssp_env.game.outcome import Outcome
from ssp_env.players import ClozePlayer, play_by
from ssp_env.search.base import Corpus, Retriever
from ssp_env.search.words import query_words, tokenize
from ssp_env.types import Document
from ssp_env.worlds.files import FileWorld

TEXTS = {
    "zh": "维也纳是奥地利的首都，位于多瑙河畔。",
    "zh2": "布拉格是捷克的首都。城里有一只猫。",
    "ja": "ウィーンはオーストリアの首都で、ドナウ川が流れる。",
    "ja2": "レオナルド・ダ・ヴィンチはモナ・リザを描いた。",
    "hi": "वियना ऑस्ट्रिया की राजधानी है और डेन्यूब नदी पर बसा है।",
    "hi2": "प्राग चेक गणराज्य की राजधानी है।",
    "th": "เวียนนาเป็นเมืองหลวงของประเทศออสเตรีย",
    "th2": "ปรากเป็นเมืองหลวงของสาธารณรัฐเช็ก ก่อตั้งเมื่อ พ.ศ. ๑๔๒๓",
    "km": "ភ្នំពេញជារដ្ឋធានីនៃប្រទេសកម្ពុជា",
    "lo": "ວຽງຈັນເປັນນະຄອນຫຼວງຂອງລາວ",
    "my": "နေပြည်တော်သည် မြန်မာနိုင်ငံ၏ မြို့တော်ဖြစ်သည်။",
    "ko": "빈은 오스트리아의 수도이다.",
    "ru": "Москва́ — столица России, Пётр Ильич Чайковский жил в Клину.",
    "ar": "القُدْسُ مَدِينَةٌ قَدِيمَةٌ",
    "he": "יְרוּשָׁלַיִם עיר הבירה",
    "ta": "சென்னை தமிழ்நாட்டின் தலைநகரம்",
    "tr": "İstanbul'da Galata Kulesi",
    "cs": "Antonín Dvořák composed Rusalka.",
    "haw": "Hawaiʻi and Oʻahu are islands.",
    "de": "Die Straße der Größe",
    "en": "The capital of Hungary is Budapest; Mt. Royal's tower.",
}
CORPUS = Corpus([Document(name, "", text) for name, text in TEXTS.items()])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("奥地利的首都", "zh"), ("捷克的首都", "zh2"), ("猫", "zh2"), ("多瑙河", "zh"),
        ("オーストリアの首都", "ja"), ("ﾄﾞﾅｳ川", "ja"), ("ダ・ヴィンチ", "ja2"), ("モナリザ", "ja2"),
        ("ऑस्ट्रिया की राजधानी", "hi"), ("चेक राजधानी", "hi2"), ("डेन्यूब", "hi"),
        ("เมืองหลวงของออสเตรีย", "th"), ("สาธารณรัฐเช็ก", "th2"), ("1423", "th2"),
        ("រដ្ឋធានី កម្ពុជា", "km"), ("ນະຄອນຫຼວງລາວ", "lo"), ("မြန်မာ မြို့တော်", "my"),
        ("오스트리아 수도", "ko"), ("МОСКВА", "ru"), ("Петр Чайковский", "ru"),
        ("القدس", "ar"), ("ירושלים", "he"), ("தமிழ்நாட்டின்", "ta"),
        ("Istanbul", "tr"), ("ISTANBUL", "tr"), ("Dvorak", "cs"), ("DVOŘÁK", "cs"),
        ("Hawaii", "haw"), ("Hawai'i", "haw"), ("Oahu", "haw"), ("STRASSE", "de"), ("grosse", "de"),
        ("Búdapest", "en"), ("capital of Hungary", "en"),
    ],
)  # fmt: skip
def test_a_query_finds_its_passage(bm25: Retriever, query: str, found: str) -> None:
    assert [each.id for each in bm25.search([query], 5)[0]][:1] == [found]


def test_ascii_text_has_the_words_that_it_always_had() -> None:
    text = "Who's Mr. O'Neill? snake_case 3.5 e-mail A1"
    words = ["who", "s", "mr", "o", "neill", "snake_case", "3", "5", "e", "mail", "a1"]
    assert tokenize(text) == query_words(text) == words
    assert query_words("to be or not to be") == ["to", "be", "or", "not"]
    assert tokenize(f"{text} é") == [*words, "e"], "also beside other text"


@pytest.mark.parametrize(
    "text", ["x" * 10**5, "é" * 10**5, "ʻ" * 10**5, "猫" * 10**5, "x" * 10**5 + "é"]
)
def test_text_without_an_end_takes_no_time(text: str) -> None:
    assert query_words(text)


ZH = ("安宁", "白", "长", "东", "福", "高", "海", "江", "林", "南"), ("川", "阳", "山", "州", "港")
HI = ("अमर", "भद्र", "चन्द्र", "धर्म", "गंगा", "हरि", "इन्द्र", "जय", "कृष्ण", "मित्र"), (
    "पुर", "गढ़", "नगर", "कोट", "वाड़ा",
)  # fmt: skip


def write_world(folder: Path, language: str) -> FileWorld:
    """Fifty passages about fifty towns, each of which is an answer."""
    one, other = ZH if language == "zh" else HI
    towns = [first + second for first, second in product(one, other)]
    said = {
        "zh": "{0}是第{1}区的首府，位于{2}以北{3}公里的平原上，当地居民大多以种植水稻为生。"
        "这里每年{4}月举行庙会。",
        "hi": "{0} {1} नंबर ज़िले का मुख्यालय है और {2} से {3} किलोमीटर उत्तर में बसा हुआ है। "
        "यहाँ हर साल {4} दिनों का मेला लगता है।",
    }[language]
    rows = [
        {
            "id": i,
            "title": "",
            "text": said.format(town, i + 101, towns[i - 7], 37 * i % 97 + 3, i % 12 + 1),
        }
        for i, town in enumerate(towns)
    ]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    answers = [{"answer": town} for town in towns]
    (folder / "answers.jsonl").write_text("\n".join(map(json.dumps, answers)), encoding="utf-8")
    return FileWorld(language, folder / "corpus.jsonl", folder / "answers.jsonl")


@pytest.mark.parametrize("language", ["zh", "hi"])
@pytest.mark.parametrize("tokenizer", ["bytes", "bpe"])
def test_games_of_the_scripted_player_are_valid(
    language: str, tokenizer: str, tmp_path: Path
) -> None:
    world = write_world(tmp_path, language)
    game = {"attempts": 2, "max_query_tokens": 200}
    rules = set_up({"world": world, "tokenizer": tokenizer, "game": game}).rules
    played = play_by(begin(rules, 16), ClozePlayer(rules.tags))
    ends = [(game.outcome, game.reason) for game in played.games]
    assert ends == [(Outcome.VALID, None)] * 16
