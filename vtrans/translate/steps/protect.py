"""Third step: replaces what is copied to translations by codes, and finds the terms of a glossary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice

import regex

from vtrans.storage.pair_counts import PairCounts, number_marks
from vtrans.text.case import in_capitals
from vtrans.text.languages import Languages
from vtrans.text.lines import one_line
from vtrans.text.marks import Marks, localized
from vtrans.text.words import CODE, words_in
from vtrans.translate.steps.copied import CopiedText
from vtrans.translate.steps.line import MOST_PHRASES, Line
from vtrans.translate.translation import Translation
from vtrans.translate.wording.glossary import Glossary
from vtrans.translate.wording.protection import Masked, Protection, masked

_LETTER = regex.compile(r"[\p{L}\p{Cs}]")
_VISIBLE = regex.compile(r"[^\p{C}\p{Z}\s\u2581]")


class Protect:
    """Writes codes in the place of text that is copied: what matches the patterns of `protection`, and what `copied`
    finds. Text around a sentence stays there, and a line without letters besides is its own translation. With
    `required`, the search must write the codes. `glossary` has the terms that translations of this `language` must
    contain, in any case if a line is in capitals. `marks` are those of the numbers of both languages: numbers besides
    get the target's."""

    def __init__(
        self,
        protection: Protection | None,
        copied: CopiedText | None,
        glossary: Glossary | None = None,
        marks: tuple[Marks, Marks] | None = None,
        *,
        language: str = "",
        required: bool = True,
    ) -> None:
        self._protection, self._copied, self._glossary = protection, copied, glossary
        self._marks, self._language, self._required = marks, language, required
        forms = (form for _, forms in glossary.pairs for form in forms) if glossary else ()
        self._codes_of_terms = "\n".join(filter(CODE.search, forms))

    def __call__(self, lines: Sequence[Line]) -> None:
        for line in lines:
            text = line.model_input
            spans, within = list(self._protection.spans(text)) if self._protection else [], (0, len(text))
            if reads := self._copied and not self._copied.src_vocab.names_language(line.text):
                within = within if line.prefix else self._copied.sentence_in(text, spans)
                spans = self._copied.added_to(spans, text, within)
            own, coded = text, None
            if spans or within != (0, len(text)):
                coded = masked(text, spans, asked=f"{line.asked}\n{self._codes_of_terms}", within=within)
                own = "".join(coded.own)
            if (reads or spans) and self._is_copied(line, own):
                line.model_input, line.counts.copied = "", 1
                line.undo.append(partial(Translation.copied, text=text))
                continue
            if coded:
                line.model_input, line.codes = coded.model_input, coded.texts
                line.undo.append(partial(_restored, coded))
                if self._required:
                    line.wording = replace(line.wording, codes=dict(islice(coded.counts().items(), MOST_PHRASES)))
            if self._marks and any(map(str.isdecimal, line.model_input)):
                line.undo.append(partial(with_marks, line.model_input, *self._marks))
            if self._glossary:
                any_case = in_capitals(own)
                found = self._glossary.terms_in(line.model_input, self._language, any_case=any_case)
                line.terms = tuple(islice(found, MOST_PHRASES))
                line.wording = replace(line.wording, terms=tuple(term.forms for term in line.terms))

    def _is_copied(self, line: Line, own: str) -> bool:
        """Returns whether a line has nothing to translate in its own text, that which is not protected."""
        wanted = line.prefix or line.wording.phrases
        return not wanted and not _LETTER.search(own) and bool(_VISIBLE.search(line.model_input))


def both_marks(languages: Languages, pair: PairCounts | None) -> tuple[Marks, Marks] | None:
    """Returns the marks of numbers of both languages. What was counted in the training text wins over CLDR; a language
    that is neither known nor counted keeps the numbers as they are."""
    source, target = number_marks(languages.src, pair, "src"), number_marks(languages.tgt, pair, "tgt")
    return (source, target) if source and target else None


def with_marks(src: str, source: Marks, target: Marks, translation: Translation) -> Translation:
    """Returns the translation of a text whose numbers have the marks of the target."""
    return translation.rewritten(localized(src, translation.text, source, target))


def _restored(line: Masked, translation: Translation) -> Translation:
    """Returns a translation with the protected text and what is around it. Its subwords stay those of the search."""
    restored = line.restored(translation.text)
    links, words = translation.alignment, translation.word_confidences
    src, tgt, sizes = line.words(), restored.words(), (len(words_in(line.text)), len(words_in(restored.text)))
    if links is not None:
        # A code is linked to itself: the model's attention says less.
        src_codes, tgt_codes = line.code_words(), restored.code_words()
        src_taken, tgt_taken = ({*chain(*codes.values())} for codes in (src_codes, tgt_codes))
        links = tuple((i, j) for i, j in links if i not in src_taken and j not in tgt_taken)
        for code in tgt_codes:
            links += tuple(zip(src_codes[code], tgt_codes[code], strict=False))  # it may occur too often or be missing
        first, last = map(min, line.words_around(), restored.words_around())
        kept = {*((i, i) for i in range(first)), *((sizes[0] - i, sizes[1] - i) for i in range(1, last + 1))}
        links = tuple(sorted({(src[i], tgt[j]) for i, j in links} | kept))
    if words is not None:
        least = [1.0] * sizes[1]
        for word, confidence in zip(tgt, words, strict=False):
            least[word] = min(least[word], confidence)
        words = tuple(least)
    return replace(translation, text=one_line(restored.text), alignment=links, word_confidences=words)
