"""Fourth step: rewrites all-caps lines in sentence case, and their translations in capitals.

Models trained on clean text mistranslate all-caps lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import regex

from vtrans.text.case import WORD, SentenceCase, in_capitals, lower, upper
from vtrans.text.languages import Languages
from vtrans.text.vocabulary import Vocabulary
from vtrans.translate.steps.line import Line
from vtrans.translate.translation import Translation
from vtrans.translate.wording.phrases import Forms

_CASED = regex.compile(r"[\p{Cased}\p{M}]++(?!\d)")  # not a code


class Recase:
    """Rewrites all-caps lines in sentence case, except lines with a prefix or with a fuzzy match in capitals, which the
    model has learned to edit. In other lines, words with a capital that the vocabulary lacks become lower case, and get
    their own case back in the translation."""

    def __init__(self, src_vocab: Vocabulary, tgt_vocab: Vocabulary, languages: Languages) -> None:
        self._vocab, self._src, self._tgt = src_vocab, languages.src, languages.tgt
        self._src_sentence = SentenceCase(src_vocab, self._src, acronyms=True)
        self._tgt_sentence = SentenceCase(tgt_vocab, self._tgt)

    def __call__(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if self._vocab.names_language(line.text):
                continue
            given, kept = line.model_input, None
            if not line.prefix and not (line.match and in_capitals(line.match[0])) and self._is_recased(line):
                line.model_input, kept = self._src_sentence(given), self._ask(line)
            if self._vocab.unknown(line.model_input):
                line.model_input = self._in_known_letters(line.model_input)
            words = self._given_words(given, line, capitals=kept is not None) if line.model_input != given else {}
            if words or kept is not None:
                line.undo.append(partial(self._undone, kept, words))

    def _undone(self, kept: Forms | None, words: Mapping[str, str], translation: Translation) -> Translation:
        text = translation.text if kept is None else self.in_capitals(translation.text, (*kept, *words))
        return replace(translation, text=_replaced(text, words))

    def in_capitals(self, text: str, kept: Forms = ()) -> str:
        """Returns a translation in capitals, except for the words and phrases `kept`."""
        longest_first = sorted(map(regex.escape, kept), key=len, reverse=True)
        parts = regex.split(rf"(?<!\w)({'|'.join(longest_first)})(?!\w)", text) if kept else [text]
        return "".join(part if k % 2 else upper(part, self._tgt) for k, part in enumerate(parts))

    def _given_words(self, given: str, line: Line, *, capitals: bool) -> dict[str, str]:
        """Returns the words that would otherwise lose capitals, by their rewritten form, if they have only one form in
        the line. With `capitals`, the translation will be in capitals."""
        pairs = {(match.group(), given[match.start() : match.end()]) for match in _CASED.finditer(line.model_input)}
        times = Counter(word for word, _ in pairs)
        if capitals:
            pairs = {(word, own) for word, own in pairs if upper(word, self._tgt) != upper(own, self._tgt)}
        return {word: own for word, own in pairs if word != own and times[word] == 1}

    def _is_recased(self, line: Line) -> bool:
        """Returns whether a line is in capitals and not just acronyms. A single word may be an acronym unless it has
        fewer subwords in lower case."""
        own = line.without_codes(line.model_input)
        if not in_capitals(own) or self._src_sentence(own) == own:
            return False
        words, vocab = WORD.findall(own), self._vocab
        small, given = (vocab.encode(text) for text in (lower(own, self._src), own))
        return len(words) > 1 or len(small) < len(given)

    def _ask(self, line: Line) -> Forms:
        """Allows other cases for constraints in capitals, and avoids phrases in any case. Returns the constraints and
        terms that contain lower-case letters, which keep their case."""
        wording = line.wording
        forms = [form for forms in (*wording.phrases, *wording.terms) for form in forms]
        phrases = tuple((*forms, *self._other_cases(filter(in_capitals, forms))) for forms in wording.phrases)
        line.wording = replace(wording, phrases=phrases, avoid=(*wording.avoid, *self._other_cases(wording.avoid)))
        return tuple(form for form in forms if form != upper(form, self._tgt))

    def _other_cases(self, phrases: Iterable[str]) -> Iterable[str]:
        """Yields each phrase in lower case, as inside a sentence, and as at its beginning."""
        for phrase in phrases:
            small, sentence = lower(phrase, self._tgt), self._tgt_sentence(upper(phrase, self._tgt))
            yield from (small, small[:1] + sentence[1:], sentence)

    def _in_known_letters(self, text: str) -> str:
        """Returns a text in which words with capitals that the source vocabulary lacks are in lower case."""
        lacking = self._vocab.unknown(text) - self._vocab.lacking(text)
        return _replaced(text, {word: lower(word, self._src) for word in _CASED.findall(text) if lacking & set(word)})


def _replaced(text: str, words: Mapping[str, str]) -> str:
    written: str = _CASED.sub(lambda match: words.get(match.group(), match.group()), text)
    return written
