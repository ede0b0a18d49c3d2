"""Third step: replaces what is copied to translations by codes, and finds the terms of a glossary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import regex

from vtrans.lines.around import between, sentence_in
from vtrans.lines.line import MOST_PHRASES, Line
from vtrans.lines.local_numbers import LocalNumbers
from vtrans.lines.names import CopiedWords
from vtrans.lines.unknown import UnknownText
from vtrans.text.case import in_capitals
from vtrans.text.lines import one_line
from vtrans.text.words import CODE
from vtrans.translate.translation import Translation
from vtrans.wording.glossary import Glossary
from vtrans.wording.protect import Masked, Protection, Span, masked

_LETTER = regex.compile(r"[\p{L}\p{Cs}]")
_VISIBLE = regex.compile(r"[^\p{C}\p{Z}\s\u2581]")


class Protect:
    """Writes codes in the place of text that is copied: what matches the patterns of `protection`, and what is
    `unknown` to the vocabularies, and words that the pair of languages copies. A line without letters besides is its
    own translation. With `required`, the search must write the codes. `glossary` has the terms that translations must
    contain, in any case if a line is in capitals. `numbers` writes the numbers besides in their local form."""

    def __init__(
        self,
        protection: Protection | None,
        unknown: UnknownText | None,
        glossary: Glossary | None = None,
        words: CopiedWords | None = None,
        numbers: LocalNumbers | None = None,
        *,
        required: bool = True,
    ) -> None:
        self._protection, self._unknown, self._glossary = protection, unknown, glossary
        self._words, self._numbers, self._required = words, numbers, required

        forms = (form for _, forms in glossary.pairs for form in forms) if glossary else ()
        self._codes_of_terms = "\n".join(filter(CODE.search, forms))

    def __call__(self, lines: Sequence[Line]) -> None:
        for line in lines:
            text = line.model_text
            spans = self._spans(text)
            if reads := self._unknown and self._unknown.characters.may_change(line.text):
                begin, end = sentence_in(text, spans, self._unknown.characters)
                if (begin > 0 or end < len(text)) and not line.prefix:
                    line.undo.append(partial(between, text, text[:begin], text[end:]))
                    text = line.model_text = text[begin:end]
                    spans = self._spans(text)
                spans = self._unknown.added_to(spans, text)
                spans = self._words.added_to(spans, text) if self._words else spans
            coded = masked(text, spans, asked=f"{line.asked}\n{self._codes_of_terms}")
            if (reads or spans) and self._is_copied(line, coded):
                line.model_text, line.counts.copied = "", 1
                line.undo.append(partial(Translation.copied, text=text))
                continue
            if spans:
                line.model_text, line.codes = coded.masked, coded.texts
                line.undo.append(partial(_restored, coded))
                if self._required:
                    line.wording = replace(line.wording, codes=dict(islice(coded.counts().items(), MOST_PHRASES)))
            if self._numbers and any(map(str.isdecimal, line.model_text)):
                line.undo.append(partial(self._numbers, line.model_text))
            if self._glossary:
                found = self._glossary.terms_in(line.model_text, any_case=in_capitals("".join(coded.own)))
                line.terms = tuple(islice(found, MOST_PHRASES))
                line.wording = replace(line.wording, terms=tuple(term.forms for term in line.terms))

    def _spans(self, text: str) -> list[Span]:
        return list(self._protection.spans(text)) if self._protection else []

    def _is_copied(self, line: Line, coded: Masked) -> bool:
        wanted = line.prefix or line.wording.phrases
        return not wanted and not _LETTER.search("".join(coded.own)) and bool(_VISIBLE.search(coded.text))


def _restored(line: Masked, translation: Translation) -> Translation:
    """Returns a translation with the protected text. Its subwords stay those of the search."""
    restored = line.restored(translation.text)
    links, words = translation.alignment, translation.word_confidences
    if links is not None:
        # A code is linked to itself: the model's attention says less.
        src_codes, tgt_codes = line.code_words(), restored.code_words()
        src_taken = {i for code in src_codes for i in src_codes[code]}
        tgt_taken = {j for code in tgt_codes for j in tgt_codes[code]}
        links = tuple((i, j) for i, j in links if i not in src_taken and j not in tgt_taken)
        for code in tgt_codes:
            links += tuple(zip(src_codes[code], tgt_codes[code], strict=False))  # it may occur too often or be missing
        src, tgt = line.words(), restored.words()
        links = tuple(sorted({(src[i], tgt[j]) for i, j in links}))
    if words is not None:
        least = [1.0] * len(restored.text.split())
        for word, confidence in zip(restored.words(), words, strict=False):
            least[word] = min(least[word], confidence)
        words = tuple(least)
    return replace(translation, text=one_line(restored.text), alignment=links, word_confidences=words)
