"""All steps with text of many languages, by an engine that copies its source."""

from collections.abc import Sequence
from typing import Any

import pytest
from translators import FakeEngine, learned, window

from vtrans.engines.alignments import Links
from vtrans.engines.engine import Source
from vtrans.search.decoder import SubwordPair
from vtrans.text.languages import Languages
from vtrans.text.vocabulary import Vocabulary
from vtrans.text.words import words_in
from vtrans.translate.confidence import FEATURES, Calibration, Logistic
from vtrans.translate.translation import TranslateOptions, Translation
from vtrans.translate.translator import Translator
from vtrans.translate.wording.protection import Protection

LINES = {
    "am": "ውሻው በ2019 ይሮጣል። ድመቷ ትተኛለች።",
    "ar": "رأيت ١٬٢٣٤ كلبًا في عام ٢٠١٩؟ نعم\u200f!",
    "el": "Ο σκύλος τρέχει. ΟΔΟΣ ΣΟΦΙΑΣ;",
    "fa": "سگ می\u200cدود و کتاب\u200cها را ۱٫۵ بار خوانده\u200cام.",
    "he": "הוא אמר \u2067שלום\u2069 ב-3.5 שעות.",
    "hi": "क्\u200dया आपने १,५०,००० रुपये दिए? हाँ।",
    "ja": "犬が１２：３０に公園を走る。「葛\U000e0100城」です。",
    "km": "ឆ្កែ\u200bរត់ក្នុងសួន២៥។ ឆ្មាដេក។",
    "ko": "개가 2019년에 공원에서 뛰었다.",
    "lo": "ໝາແລ່ນໃນສວນ ແມວນອນ ນ້ຳ",
    "my": "ခွေးပြေးသည်။ ကြောင်အိပ်သည်။",
    "th": "สุนัขวิ่งในสวนอายุ ๒๕ ปี ทำน้ำ",
    "tr": "İstanbul'da ILIK bir gün, ışık iyi.",
    "ur": "یہ ۲۰۱۹ میں ایک کتا ہے۔ کیا حال ہے؟",
    "zh": "我在2019年花了１，２３４．５元，是吗？🎉好",
}
AROUND = ["{}", "- {}", "😀{}", "{} 👨\u200d👩\u200d👧", "| {} | {} |", "<b>{}</b> https://a.example/x {}"]


class Copier(FakeEngine):
    """Translates a source as itself, and links each of its subwords to itself. It has learned codes."""

    def __init__(self, vocab: Vocabulary, language: str) -> None:
        super().__init__(vocab)
        self.languages = [Languages(language, language)]

    def answers(self, source: Source) -> list[str]:
        return [self.src_vocab.decode(source.tokens[:-1])]

    def align(self, pairs: Sequence[SubwordPair], words: Any, batch_tokens: int) -> list[Links]:
        return [tuple(set(zip(src, tgt, strict=True))) for src, tgt in words]


def copied(language: str, line: str, **options: Any) -> Translation:
    text = LINES[language]
    vocab = learned([text, *text] * 9 + ["https://a.example/x <b></b> | - A1 B2"], normalization="identity")
    made = Translator(Copier(vocab, language))
    ((best,),) = made.translate_window(window([line]), TranslateOptions(**options))
    assert not made.counts.numbers
    assert not made.counts.short
    return best


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("language", LINES)
def test_a_copy_has_all_characters_and_its_words_are_linked_and_rated(language: str, around: str) -> None:
    even = {name: Logistic((0.0,) * size, (1.0,) * size, (0.0,) * (2 * size + 1)) for name, size in FEATURES.items()}
    rate, line = Calibration(**even, models=(), settings={}), around.format(*[LINES[language]] * 2)
    best = copied(language, line, alignments=True, calibration=rate, protect=Protection())
    words = len(words_in(line))
    assert best.text == line
    assert best.word_confidences is not None
    assert len(best.word_confidences) == words
    assert set(best.alignment or ()) >= {(i, i) for i in range(words)}
    assert all(i < words and j < words for i, j in best.alignment or ())
