"""Where sentences of any language begin and end."""

import subprocess
import sys

import hypothesis.strategies as st
import pytest
import regex
import sentencex
from hypothesis import given

from vtrans.text.sentences import WINDOW, begins_sentence, sentences

LANGUAGES = ["", "am", "ar", "de-AT", "el", "en", "hi", "ja", "khm_Khmr", "th", "xx", "zh-Hans"]
TEXTS = st.text(
    st.sampled_from("aBé1٢ .!?…;\u037e。」「“”\"'()।۔።؟។ก \u0301\u3000") | st.characters(exclude_categories=["Cs"])
)


@given(TEXTS, st.sampled_from(LANGUAGES))
def test_the_sentences_of_a_text_are_the_text_again(text: str, language: str) -> None:
    found = sentences(text, language)
    assert "".join(found) == text
    assert all(found)


@given(st.lists(TEXTS, min_size=2, max_size=4), st.sampled_from(["1", "42", "٣", "१२", "M", "É", "я", "ก\u0301"]))
def test_no_sentence_ends_after_a_short_number_or_a_single_letter(texts: list[str], short: str) -> None:
    for sentence in sentences(f" {short}. ".join(texts))[:-1]:
        assert not regex.search(r"(?<![\w\p{M}])(\p{Nd}{1,2}|\p{L}\p{M}*)\.\s*$", sentence)


@pytest.mark.parametrize("line", ["A dog runs. ", "«a. ", '"', "word ", "1. ", "「犬。", "a\u0301. "])
@pytest.mark.parametrize("count", [WINDOW // 10, WINDOW])
def test_sentencex_reads_short_windows_and_little_twice(line: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, segment = [0], sentencex.segment

    def counted(language: str, text: str) -> list[str]:
        assert len(text) <= WINDOW
        seen[0] += len(text)
        return list(segment(language, text))

    monkeypatch.setattr(sentencex, "segment", counted)
    assert "".join(sentences(line * count, "en")) == line * count
    assert seen[0] <= 2 * len(line) * count + WINDOW


def test_sentences_of_a_long_line_are_found_window_by_window() -> None:
    line = "".join(f"The dog number {number} runs in the park. " for number in range(WINDOW // 10))
    assert sentences(line, "en") == sentencex.segment("en", line)
    assert sentences("word " * WINDOW, "en") == ["word " * WINDOW]


@pytest.mark.parametrize(
    ("language", "marked"),
    [
        ("", "One! |Two? |Three."),
        ("am", "ውሻው ይሮጣል። |ድመቷ ትተኛለች። |ምን ነው?"),
        ("ar", "الكلب يجري. |كيف حالك؟ |أنا بخير."),
        ("bn", "কুকুর দৌড়ায়। |বিড়াল ঘুমায়।"),
        ("cs", "Přijel 5. května. |Pes spí."),
        ("de", "Wir haben z. B. Hunde. |Am 3. Mai im 20. Jahrhundert um 5 Uhr. |Ja!"),
        ("de-AT", "Das ist Dr. Müller. |Er ist Prof. in Bonn."),
        ("el", "Ο σκύλος τρέχει. |Τι κάνεις; |Καλά\u037e |Ναι."),
        ("en", "Hello.  |We met Dr. Smith in St. Paul.\t|He said: “Go!” |Use e.g. Python 3.14.2."),
        ("es", "Vive en los EE. UU. desde 1990. |¿Cómo está el Sr. García? |Bien."),
        ("fa", "سگ می‌دود. |چطوری؟ |خوبم."),
        ("fr", "M. Dupont dort. |Qui est-ce ? |C'est lui !"),
        ("hi", "यह एक कुत्ता है। |वह सो रहा है। |ठीक है॥ |अंत।"),
        ("hy", "Շունը վազում է։ |Կատուն քնում է։"),
        ("ja", "犬が走る。|猫が寝ている！|元気？|彼は「犬が走る。猫が寝る。」|と言った。"),
        ("khm_Khmr", "ឆ្កែរត់។ |ឆ្មាដេក។"),
        ("my", "ခွေးပြေးသည်။ |ကြောင်အိပ်သည်။"),
        ("nl", "Ik zie dhr. Jansen. |Hij loopt, d.w.z. snel."),
        ("ru", "Собака бежит. |Кошка спит, т. е. дремлет. |А. С. Пушкин писал."),
        ("ur", "یہ ایک کتا ہے۔ |وہ سو رہا ہے۔ |کیا حال ہے؟"),
        ("zh-Hans", "狗在跑。|猫在睡觉！|“好。”|你好吗？"),
        ("", ""),
    ],
)
def test_sentences_end_at_the_marks_of_their_language(language: str, marked: str) -> None:
    assert "|".join(sentences(marked.replace("|", ""), language)) == marked


BEGINS = ["", "¿", "A. (", "a: “", "¡Hola! ¿", "x. — ", "U.S.", "a… ", "是。「", "है। ", "**"]
GOES_ON = ["a ", "a, ", "etc., ", "a - ", "He’", "a (", "“a” ", "1 "]


@pytest.mark.parametrize("before", [*BEGINS, *GOES_ON])
def test_where_a_sentence_begins(before: str) -> None:
    assert begins_sentence(before) is (before in BEGINS)


def test_sentencex_is_imported_when_a_text_is_cut() -> None:
    program = """
import sys
import vtrans.cli, vtrans.translate.steps.split
from vtrans.text.sentences import sentences
assert "sentencex" not in sys.modules
sentences("A dog.", "en")
assert "sentencex" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
