"""Translates lines in capitals as sentences are written, and writes their translations in capitals.

A model that has learned from clean text answers such lines with nonsense.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import regex

from vtrans.lines.line import Kept, Line, Stage
from vtrans.lines.unknowns import Characters
from vtrans.text.case import WORD, SentenceCase, in_capitals, lower, upper
from vtrans.wording.phrases import Forms
from vtrans.wording.protect import Masked

KEPT_FORMS = Kept[Forms]()
"""Constraints and terms with lower-case letters, which keep their case in the translation of a line in capitals."""
_GIVEN = Kept[dict[str, str]]()
"""Words as the line has them, by the form that the model reads."""
_CASED = regex.compile(r"[\p{Cased}\p{M}]+")


class Recase(Stage):
    """Writes lines in capitals as sentences. A line with a prefix, or beside a fuzzy match in capitals, which the model
    has learned to correct, keeps its case. Other words with a capital that the vocabulary lacks are written in lower
    case, and come back in their own if the translation has them. `src` and `tgt` are the languages; blank if
    unknown."""

    def __init__(self, characters: Characters, src: str, tgt: str) -> None:
        self._characters, self._src, self._tgt = characters, src, tgt
        src_vocab, tgt_vocab = characters.vocabs
        self._src_sentence, self._tgt_sentence = SentenceCase(src_vocab, src), SentenceCase(tgt_vocab, tgt)
        self._with_acronyms = SentenceCase(src_vocab, src, acronyms=True)

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if not self._characters.may_change(line.text):
                continue
            given = line.seen.masked
            if not line.prefix and not (line.match and in_capitals(line.match[0])) and self._is_recased(line.seen):
                other = _rewritten(line.seen, self._with_acronyms).masked
                line.seen = _rewritten(line.seen, self._src_sentence)
                if other != line.seen.masked and self._characters.knows(other):
                    line.other_text = other
                self._ask(line)
            if not self._characters.knows(line.seen.text):
                line.seen = _rewritten(line.seen, self._in_known_letters)
            if line.seen.masked != given:
                _GIVEN.put(line, self._given_words(given, line))

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            kept, given = KEPT_FORMS.get(line), _GIVEN.get(line) or {}
            if kept is not None:
                forms = (*kept, *given)
                line.translations = [replace(t, text=self.in_capitals(t.text, forms)) for t in line.translations]
            if given:
                line.translations = [replace(t, text=_replaced(t.text, given)) for t in line.translations]

    def in_capitals(self, text: str, kept: Forms = ()) -> str:
        """Returns a translation in capitals, but for words and phrases that are kept."""
        longest_first = sorted(map(regex.escape, kept), key=len, reverse=True)
        parts = regex.split(rf"(?<!\w)({'|'.join(longest_first)})(?!\w)", text) if kept else [text]
        return "".join(part if k % 2 else upper(part, self._tgt) for k, part in enumerate(parts))

    def _given_words(self, given: str, line: Line) -> dict[str, str]:
        """Returns the words of a line that would otherwise lose capitals, if each has one form in the line."""
        seen = line.seen.masked
        pairs = {(match.group(), given[match.start() : match.end()]) for match in _CASED.finditer(seen)}
        times = Counter(word for word, _ in pairs)
        if KEPT_FORMS.get(line) is not None:
            pairs = {(word, own) for word, own in pairs if upper(word, self._tgt) != upper(own, self._tgt)}
        return {word: own for word, own in pairs if word != own and times[word] == 1}

    def _is_recased(self, line: Masked) -> bool:
        """Returns whether a line is in capitals, and not only a few acronyms. A single word may be one unless it has
        fewer subwords in lower case."""
        own = " ".join(line.own)
        if not in_capitals(own) or self._src_sentence(own) == own:
            return False
        words, vocab = WORD.findall(own), self._characters.vocabs[0]
        small, given = (vocab.encode(text) for text in (lower(own, self._src), own))
        return len(words) > 1 or len(small) < len(given)

    def _ask(self, line: Line) -> None:
        """Lets the search write the constraints that are in capitals in other cases, and makes it avoid phrases in any
        case."""
        wording = line.wording
        forms = [form for forms in (*wording.phrases, *wording.terms) for form in forms]
        KEPT_FORMS.put(line, tuple(form for form in forms if form != upper(form, self._tgt)))
        phrases = tuple((*forms, *self._other_cases(filter(in_capitals, forms))) for forms in wording.phrases)
        line.wording = replace(wording, phrases=phrases, avoid=(*wording.avoid, *self._other_cases(wording.avoid)))

    def _other_cases(self, phrases: Iterable[str]) -> Iterable[str]:
        """Yields phrases in lower case, and as they are written inside a sentence and at its beginning."""
        for phrase in phrases:
            small, sentence = lower(phrase, self._tgt), self._tgt_sentence(upper(phrase, self._tgt))
            yield from (small, small[:1] + sentence[1:], sentence)

    def _in_known_letters(self, text: str) -> str:
        """Returns a text with words in lower case that have capitals that the source vocabulary lacks."""
        characters = self._characters
        lacking = {c for c in set(text) if characters.is_unknown(0, c) and not characters.lacks(0, c)}
        return _replaced(text, {word: lower(word, self._src) for word in _CASED.findall(text) if lacking & set(word)})


def _replaced(text: str, words: Mapping[str, str]) -> str:
    written: str = _CASED.sub(lambda match: words.get(match.group(), match.group()), text)
    return written


def _rewritten(line: Masked, write: Callable[[str], str]) -> Masked:
    """Returns a line whose own text is written differently, in the same length."""
    written, parts, begin = write(line.masked), [], 0
    for code, text in line.parts:
        own = written[begin : begin + len(code)]
        parts.append((own, own) if code == text else (code, text))
        begin += len(code)
    return replace(line, parts=parts)
