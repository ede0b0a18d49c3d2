"""Lexical constraints: phrases as text, their subwords, and their occurrences.

Phrases match case-sensitively. If a phrase begins or ends with a word character, the neighbouring character must not be
one: `Hund` does not occur in `Hunde`. Characters of scripts without spaces between words, such as Chinese, do not count
as word characters. A phrase to avoid also matches at the beginning of longer words.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import regex

from vtrans.search.lexical import LexicalConstraint, Variant
from vtrans.system.errors import FileError, InputError
from vtrans.text.languages import UNSPACED
from vtrans.text.vocabulary import Vocabulary
from vtrans.text.words import has_spaces, is_word, joins

KEYS = ("constraints", "avoid", "text")
SPACE = "\u2581"  # the beginning of a word in a piece

# A word, or a character outside words.
FIRST = regex.compile(rf"[[\w\p{{M}}]--[{UNSPACED}]]+|\S", regex.V1)


def occurrences(phrase: str, text: str, *, whole: bool = True) -> Iterator[int]:
    """Yields where a phrase occurs in a text, without overlaps. Without `whole`, it may end inside a word."""
    begin = text.find(phrase)
    while begin >= 0:
        end = begin + len(phrase)
        before = joins(text[max(0, begin - 1) : begin], phrase)
        after = whole and joins(phrase, text[end : end + 1])
        if not before and not after:
            yield begin
        begin = text.find(phrase, begin + 1 if before or after else end)


Forms = tuple[str, ...]
"""The forms of a phrase, any one of which satisfies it."""


@dataclass(frozen=True)
class Wording:
    """Required and forbidden wording of a translation. A phrase listed twice must occur twice."""

    phrases: tuple[Forms, ...] = ()
    avoid: tuple[str, ...] = ()
    terms: tuple[Forms, ...] = ()
    """Phrases that are dropped if the model cannot write them."""
    codes: Mapping[str, int] = field(default_factory=dict)
    """The required codes of protected text, and the number of occurrences of each."""

    def of_piece(self, k: int, text: str) -> Wording:
        """Returns the wording for piece k of a long line, given the piece's text: phrases belong to the first piece,
        codes to the pieces that contain them, and terms to none."""
        codes = {code: n for code in self.codes if (n := _count(code, text))}
        return Wording(() if k else self.phrases, self.avoid, (), codes)

    def unmet(self, text: str) -> list[str]:
        """Returns the required phrases that a translation lacks and the forbidden ones that it contains."""
        wanted = Counter((*self.phrases, *self.terms))
        missing = [" | ".join(forms) for forms, n in wanted.items() if sum(_count(f, text) for f in forms) < n]
        return missing + self.avoided(text)

    def avoided(self, text: str) -> list[str]:
        """Returns the forbidden phrases in a text."""
        return [phrase for phrase in self.avoid if any(True for _ in occurrences(phrase, text, whole=False))]


NO_WORDING = Wording()


def _count(phrase: str, text: str) -> int:
    return sum(1 for _ in occurrences(phrase, text))


def read_constraints(lines: Iterable[str], name: str, first: int = 1) -> Iterator[dict[str, Any]]:
    """Yields the constraints of each line of a file: a JSON object, or nothing if the line is blank. Raises FileError
    for other lines. `first` is the number of the first line."""
    for number, line in enumerate(lines, first):
        try:
            value = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise FileError(
                f"line {number} of {name} must be blank or a JSON object such as "
                f'{{"constraints": ["a phrase"]}}, got {line[:40]!r}.'
            )
        yield value


def wording_of(given: Mapping[str, Any], line: str, number: int) -> Wording:
    """Returns the constraints of line `number`. Raises InputError unless they have this form: `constraints` is a list
    of phrases or of lists of forms, and `avoid` is a list of phrases. `text`, in which Sockeye repeats the line, must
    equal the line."""
    for key in given:
        if key not in KEYS:
            raise InputError(f"the constraints of line {number} may only have the keys {', '.join(KEYS)}, got {key!r}.")
    if given.get("text", line) != line:
        raise InputError(f"text in the constraints of line {number} must equal the line, got {given['text']!r:.60}.")
    avoid = _phrases(given, "avoid", number, with_forms=False)
    wording = Wording(_phrases(given, "constraints", number, with_forms=True), tuple(forms[0] for forms in avoid))
    for forms in wording.phrases:
        if all(map(wording.avoided, forms)):
            raise InputError(
                f"the constraint {forms[0]!r} of line {number} must not contain a phrase of its `avoid`; remove one."
            )
    return wording


def _phrases(given: Mapping[str, Any], key: str, number: int, *, with_forms: bool) -> tuple[Forms, ...]:
    """Returns the forms of each phrase listed under a key."""
    entries = given.get(key) or ()
    listed = entries if isinstance(entries, (list, tuple)) else [None]
    phrases: list[Any] = [entry if with_forms and isinstance(entry, (list, tuple)) else [entry] for entry in listed]
    if not all(isinstance(form, str) and form.strip() for forms in phrases for form in forms or [None]):
        what = "a list of phrases or lists of phrases" if with_forms else "a list of phrases"
        raise InputError(f"`{key}` of line {number} must be {what} that are not blank, got {entries!r:.60}.")
    return tuple(tuple(" ".join(form.split()) for form in forms) for forms in phrases)


# Subwords.


def encoded(
    wording: Wording, vocab: Vocabulary, suppressed: Sequence[int], number: int
) -> tuple[LexicalConstraint, ...]:
    """Returns the phrases of line `number` as subwords. Raises InputError for a phrase that the vocabulary cannot
    spell."""
    needed = []
    for forms, times in Counter((*wording.phrases, *wording.terms)).items():
        written = [each for text in forms if not wording.avoided(text) for each in _variants(text, vocab)]
        usable = [variant for variant in written if not set(variant.tokens) & set(suppressed)]
        if usable:
            needed.append(LexicalConstraint(tuple(dict.fromkeys(usable)), times))
        elif forms in wording.phrases:
            spelled = vocab.decode(vocab.encode(forms[0]))
            why = "is written with a subword that `suppress` names" if written else f"would be written {spelled!r}"
            raise InputError(
                f"`constraints` of line {number} must be phrases that the model can write, but {forms[0]!r} {why}."
            )
    for code, times in wording.codes.items():
        if wording.avoided(code):
            continue
        for variant in _variants(code, vocab):
            if not set(variant.tokens) & set(suppressed):
                needed.append(LexicalConstraint((Variant(variant.tokens),), times, exactly=True))
    return tuple(needed)


def _variants(text: str, vocab: Vocabulary) -> Iterator[Variant]:
    """Yields the subwords of a phrase at the beginning of a word and, if its script has no spaces, directly after other
    characters. Yields nothing if the subwords spell another text."""
    tokens, whole = tuple(vocab.encode(text)), is_word(text[-1])
    if not tokens or vocab.decode(tokens) != text:
        return
    yield Variant(tokens, whole)
    if not has_spaces(text[0]) and (rest := without_space(tokens, vocab)):
        yield Variant(rest, whole)


def without_space(tokens: tuple[int, ...], vocab: Vocabulary) -> tuple[int, ...]:
    """Returns the subwords of a text directly after other characters; () if the vocabulary has none."""
    first = vocab.piece(tokens[0])
    if not first.startswith(SPACE) or first == SPACE:
        return tokens[1:] if first == SPACE else ()
    rest = vocab.id_of(first[1:])
    return () if rest is None else (rest, *tokens[1:])
