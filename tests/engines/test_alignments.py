"""Word alignments: the decoder's attention, and the word links computed from it."""

from typing import Any

import numpy as np
import pytest
import regex
from networks import align
from translators import learned, loaded, sentences, translator, vocabulary

from vtrans.engines.alignments import ENOUGH, links, pharaoh, spread
from vtrans.text.vocabulary import EOS_ID
from vtrans.text.words import has_spaces, words_in, words_of_ids, words_of_line

LINES = [line for line in sentences(30, seed=3) if line]


@pytest.mark.parametrize(
    ("attention", "src", "tgt", "expected"),
    [
        # Each word of either side is linked to its best one: source word 2, too, which is no target word's best.
        ([[0.8, 0.1, 0.1], [0.1, 0.6, 0.3]], [0, 1, 2], [0, 1], "0-0 1-1 2-1"),
        # A source word whose largest share is below ENOUGH is not linked.
        ([[0.8, 0.1, 0.05], [0.1, 0.6, 0.09]], [0, 1, 2], [0, 1], "0-0 1-1"),
        # Subwords of a source word add up: 0.3 + 0.3 is more than 0.4.
        ([[0.3, 0.3, 0.4]], [0, 0, 1], [0], "0-0 1-0"),
        ([[0.3, 0.3, 0.4], [0.05, 0.05, 0.9]], [0, 0, 1], [0, 1], "0-0 1-1"),
        # Subwords of a target word are averaged.
        ([[0.9, 0.1], [0.3, 0.7], [0.45, 0.55]], [0, 1], [0, 0, 1], "0-0 1-1"),
        # Attention to EOS, the last column here, is ignored.
        ([[0.1, 0.2, 0.7]], [0, 1], [0], "0-0 1-0"),
        ([[0.05, 0.2, 0.75]], [0, 1], [0], "1-0"),
        # Words without subwords leave gaps in the numbers.
        ([[0.9, 0.1], [0.1, 0.9]], [1, 4], [0, 2], "1-0 4-2"),
        ([[0.9, 0.1]], [], [0], ""),
        ([[0.9, 0.1]], [0], [], ""),
    ],
)
def test_words_with_most_attention_are_linked(attention: Any, src: list[int], tgt: list[int], expected: str) -> None:
    assert ENOUGH == 0.1
    assert pharaoh(links(np.array(attention), src, tgt)) == expected


LANGUAGES = {
    "en": "A dog, ½ metre.",
    "fa": "سگ می\u200cدود.",
    "hi": "क्\u200dया यह कुत्ता है।",
    "ja": "犬がNBAの 公園を走る。",
    "km": "ឆ្កែ\u200bរត់\u200bក្នុងសួន។",
    "ko": "개가 공원에서 뛴다.",
    "lo": "ໝາແລ່ນໃນສວນ ນ້ຳ",
    "my": "ခွေးပြေးသည်။",
    "th": "สุนัขวิ่งในสวน ทำน้ำ",
    "zh": "我爱A1北京，不是吗？𠮷野家",
}


@pytest.mark.parametrize("line", LANGUAGES.values(), ids=LANGUAGES)
@pytest.mark.parametrize("known", ["characters", "subwords", "bytes"])
def test_each_subword_belongs_to_the_word_in_which_it_begins(line: str, known: str) -> None:
    text = {"characters": [" ".join(line)], "subwords": [line] * 9, "bytes": ["A dog"]}[known]
    vocab = learned(text, normalization="identity")
    ids = vocab.encode(line)
    numbers, words = words_of_line(line, ids, vocab), words_in(line)
    assert numbers == words_of_ids(ids, vocab)
    assert "".join(words) == line.replace(" ", "")
    assert has_spaces(line) == (words == line.split())
    assert all(regex.fullmatch(r"\X\p{Cf}*", word) for word in words if not has_spaces(word))
    for k, number in enumerate(numbers):
        begin = len(vocab.decode(ids[:k]).rstrip("\ufffd").replace(" ", ""))  # without the first bytes of a character
        assert len("".join(words[:number])) <= begin < len("".join(words[: number + 1]))


def test_characters_of_a_subword_have_its_links() -> None:
    assert spread(((0, 0), (2, 1)), "我爱北京 吧", "I love") == ((0, 0), (1, 0), (2, 1), (3, 1))
    assert spread(((0, 1),), "a b", "吧 北京") == ((0, 1), (0, 2))


@pytest.mark.parametrize(
    "line", [" the  dog ", "Łódź läuft\tpark", "park\u00a0dog", "it´s a dog", "a \u200b dog", "½ park"]
)
def test_the_words_of_a_line_are_split_at_its_spaces(line: str) -> None:
    vocab = vocabulary()
    ids = vocab.encode(line)
    numbers = words_of_line(line, ids, vocab)
    assert len(numbers) == len(ids)
    assert numbers == sorted(numbers)
    assert set(numbers) <= set(range(len(line.split())))
    for i, word in enumerate(line.split()):
        own = [id for id, number in zip(ids, numbers, strict=True) if number == i]
        if "´" not in line and word not in ("\u200b", "½"):
            assert vocab.decode(own).strip() == word


@pytest.mark.parametrize(
    ("pieces", "text", "expected"),
    [
        ("▁a ▁dog", "a dog", [0, 1]),
        ("a ▁dog", "a dog", [0, 1]),  # the first subword need not begin with a space
        ("▁ a ▁dog", "a dog", [0, 0, 1]),  # a lone space belongs to the word after it
        ("▁a ▁ ▁ ▁dog", "a dog", [0, 1, 1, 1]),
        ("▁a <0x20> a", "a a", [0, 1, 1]),
        ("▁a <0xC3> <0xA4> ▁dog", "aä dog", [0, 0, 0, 1]),
        ("▁a <0xC3> ▁dog", "a\ufffd dog", [0, 0, 1]),  # the byte of an incomplete character
        ("▁dog ▁ <0xC3>", "dog \ufffd", [0, 1, 1]),
        ("<s> ▁a <unk> ▁dog", "a dog", [0, 0, 1, 1]),
        ("▁ <unk>", "", [0, 0]),
        ("", "", []),
    ],
)
def test_words_of_ids_are_the_words_of_the_decoded_text(pieces: str, text: str, expected: list[int]) -> None:
    vocab = vocabulary()
    known = {vocab.piece(i): i for i in range(len(vocab))}
    ids = [known[piece] for piece in pieces.split()]
    assert vocab.decode(ids).split() == text.split()
    assert words_of_ids(ids, vocab) == expected


def test_links_refer_to_words_of_the_line_and_its_translation() -> None:
    made = translator()
    plain = list(made.nbest([*LINES, "", " "], 3, raw=True))
    translations = list(made.nbest([*LINES, "", " "], 3, alignments=True, raw=True))
    vocab, model = vocabulary(), loaded().model
    met = 0
    for line, a, b in zip([*LINES, "", " "], plain, translations, strict=True):
        for s, t in zip(a, b, strict=True):
            assert (s.text, s.tokens, s.alignment) == (t.text, t.tokens, None)
            assert t.alignment is not None
            assert all(i < len(line.split()) and j < len(t.text.split()) for i, j in t.alignment)
            if t.text.strip():
                assert {j for _, j in t.alignment} == set(range(len(t.text.split()))), "each target word is linked"
                tokens = [token for token in t.tokens if token != EOS_ID]
                words = (words_of_line(line, vocab.encode(line), vocab), words_of_ids(tokens, vocab))
                (alone,) = align(model, [(vocab.encode(line), tokens)], [words], 1)
                assert tuple(sorted(alone)) == t.alignment
                met += 1
            else:
                assert t.alignment == ()
    assert met > 20
