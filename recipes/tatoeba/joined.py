"""Joins short pairs to long lines, as newspapers and letters have them and Tatoeba does not.

A line is a few sentences of different kinds: a pair as it is; two with a conjunction between them; what somebody says;
and one after an adverbial, such as "On Monday", where German puts the verb before the subject. The same pairs give the
same lines.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

from recipes.formality import forms_in
from recipes.tatoeba.phrases import FIRST_WORDS, WORDS, Filled, filled, name

SEED = 2
FEWEST_WORDS, MOST_WORDS = 10, 45
"""Bounds of the English words of a line."""
LONGEST = 14
"""The most English words of a sentence that becomes a part of another."""

_ONE_SENTENCE = re.compile(r"[^.!?:;\"“„…–]+[.!?]")
_ENDS = '.!?"“'
_CODES = re.compile(r"\b(?:A1|B2)\b")
_SUBJECTS = {"I": "Ich", "He": "Er", "We": "Wir", "Tom": "Tom", "Mary": "Maria"}
_NO_VERBS = {"und", "oder", "auch", "selbst", "allein", "alle", "beide"}
"""Words other than verbs that may follow a subject."""


def joined(pairs: Sequence[Filled], count: int) -> list[Filled]:
    """Returns `count` lines made of the pairs."""
    parts = Parts(pairs)
    return [parts.line() for _ in range(count)]


class Parts:
    """The pairs that lines are made of, and the random choices among them."""

    def __init__(self, pairs: Sequence[Filled]) -> None:
        single = [pair for pair in pairs if all(_ONE_SENTENCE.fullmatch(side) for side in pair)]
        self.whole = [(src, tgt) for src, tgt in pairs if src[-1] in _ENDS and tgt[-1] in _ENDS]
        self.spoken = [(src, tgt) for src, tgt in single if len(src.split()) <= LONGEST and src[-1] == tgt[-1]]
        self.clauses = [(*pair, *inner) for pair in self.spoken if pair[0][-1] == "." and (inner := within(*pair))]
        self.led = [(*pair, *order) for *pair, _, _ in self.clauses if (order := after_adverbial(*pair))]
        self.numbers = random.Random(SEED)

    def line(self) -> Filled:
        """Returns sentences with FEWEST_WORDS to MOST_WORDS words, and one German form of address at most."""
        wanted = self.numbers.randint(FEWEST_WORDS, MOST_WORDS)
        while True:
            src, tgt = (" ".join(side) for side in zip(*self._sentences(wanted), strict=True))
            codes = _CODES.findall(src)
            fits = FEWEST_WORDS <= len(src.split()) <= MOST_WORDS
            if fits and len(forms_in(tgt)) < 2 and len(set(codes)) == len(codes):
                return src, tgt

    def _sentences(self, words: int) -> Iterator[Filled]:
        kinds = [self._pair, self._with_conjunction, self._speech, self._with_adverbial]
        while words > 0:
            src, tgt = self.numbers.choices(kinds, [4, 3, 2, 3])[0]()
            words -= len(src.split())
            yield src, tgt

    def _pair(self) -> Filled:
        return self.numbers.choice(self.whole)

    def _with_conjunction(self) -> Filled:
        first, erster, _, _ = self.numbers.choice(self.clauses)
        _, _, second, zweiter = self.numbers.choice(self.clauses)
        conjunction, konjunktion = self._one_of("conjunctions")
        return f"{first[:-1]}{conjunction} {second}", f"{erster[:-1]}{konjunktion} {zweiter}"

    def _speech(self) -> Filled:
        numbers = self.numbers
        src, tgt = numbers.choice(self.spoken)
        mark = src[-1]
        who, wer = name(numbers) if numbers.random() < 0.3 else self._one_of("speakers")
        said, sagte = ("asked", "fragte") if mark == "?" else self._one_of("speaking")
        left, right = numbers.choice([('"', '"'), ("“", "”")])
        subject, subjekt = (text[0].upper() + text[1:] for text in (who, wer))
        way = numbers.randrange(3)
        if way == 0 and mark == ".":
            _, _, inner, innen = numbers.choice(self.clauses)
            return f"{subject} {said} {inner}", f"{subjekt} {sagte}, {innen}"
        if way == 1:
            return f"{subject} {said}: {left}{src}{right}", f"{subjekt} {sagte}: „{tgt}“"
        comma, komma = (",", "") if mark == "." else (mark, mark)
        told = f"{said} {who}" if numbers.random() < 0.3 and " " in who else f"{who} {said}"
        return f"{left}{src[:-1]}{comma}{right} {told}.", f"„{tgt[:-1]}{komma}“, {sagte} {wer}."

    def _with_adverbial(self) -> Filled:
        *_, src, tgt = self.numbers.choice(self.led)
        when, wann = filled(*self._one_of("adverbials"), self.numbers)
        return f"{when}{',' if self.numbers.random() < 0.6 else ''} {src}", f"{wann} {tgt}"

    def _one_of(self, table: str) -> Filled:
        return self.numbers.choice(list(WORDS[table].items()))


def within(src: str, tgt: str) -> Filled | None:
    """Returns a pair as it stands within another sentence, or None if a first word may be a noun or a verb."""
    (first, *_), (erstes, *_) = src.split(), tgt.split()
    if first == erstes and first not in FIRST_WORDS["en"]:
        return src, tgt
    if first.split("'")[0] == "I":
        src, first = src, "i"
    if erstes == "Sie" or erstes.startswith("Ihr"):
        others = first.split("'")[0] in ("She", "They", "Her", "Their")
        if not others and not (erstes == "Sie" and first.startswith("You")):
            return None
        return _lower(src), _lower(tgt) if others else tgt
    if first.split("'")[0] not in {*FIRST_WORDS["en"], "i"} or erstes not in FIRST_WORDS["de"]:
        return None
    return src if first == "i" else _lower(src), _lower(tgt)


def after_adverbial(src: str, tgt: str) -> Filled | None:
    """Returns a pair as it stands after an adverbial, or None if its German does not begin with subject and verb."""
    subject, (wer, verb, *rest) = src.split()[0], (*tgt[:-1].split(), "")
    wanted = _SUBJECTS.get(subject.split("'")[0])
    if wanted != wer or not verb.isalpha() or not verb.islower() or verb in _NO_VERBS or not any(rest):
        return None
    named = wer in ("Tom", "Maria")
    english = src if named or wer == "Ich" else _lower(src)
    return english, " ".join([verb, wer if named else wer.lower(), *filter(None, rest)]) + tgt[-1]


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]
