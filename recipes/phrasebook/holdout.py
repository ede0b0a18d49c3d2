"""The compositions that the training text never contains. They depend on the lexicon alone, not on the seed.

- adjective-noun: a held-out adjective and noun never occur in the same training sentence, adjacent or not.
- separable: each separable verb lacks one type of clause in training (see CLAUSE_TYPES).
- form: for some words, one inflected form never occurs in the training text, not even as a form of another word.
"""

import functools
import zlib
from dataclasses import dataclass

from . import morphology as m
from .grammar import Pair
from .lexicon import Adjective, Lexicon, Noun, Verb, load

PAIR_SHARE, FORM_SHARE = 0.10, 0.22
CLAUSE_TYPES = ("main", "question", "subordinate", "perfect", "infinitive", "zu")
KINDS = ("unseen", "adjective-noun", "separable", "form")


def _draw(text: str, below: int) -> int:
    return zlib.crc32(("phrasebook " + text).encode()) % below


@dataclass(frozen=True)
class HoldOut:
    adjective_nouns: frozenset[tuple[str, str]]
    separable: frozenset[tuple[str, str]]
    forms: dict[str, str]  # surface form, case folded -> lemma

    def kinds(self, pair: Pair) -> set[str]:
        """Returns the kinds of held-out compositions in the pair; an empty set means it may be used for training."""
        found = set[str]()
        adjectives = [lemma for lemma in pair.lemmas if lemma.startswith("a:")]
        nouns = [lemma for lemma in pair.lemmas if lemma.startswith("n:")]
        if any((a, n) in self.adjective_nouns for a in adjectives for n in nouns):
            found.add("adjective-noun")
        if pair.separable & self.separable:
            found.add("separable")
        if any(word in self.forms for word in words(pair.german)):
            found.add("form")
        return found

    def tests(self, pair: Pair, kind: str) -> bool:
        """Returns whether the pair tests the kind: the held-out words belong together, they do not merely co-occur."""
        if kind == "adjective-noun":
            return bool(pair.adjective_nouns & self.adjective_nouns)
        if kind == "form":
            return any(self.forms.get(form.casefold()) == lemma for lemma, form in pair.forms)
        return True


def words(line: str) -> list[str]:
    return [word.strip(".,?!").casefold() for word in line.split(" ")]


def _noun_forms(noun: Noun) -> list[str]:
    """Returns the regular forms, which follow from the other forms; the English word must be regular too."""
    if noun.german_plural is None or noun.english_plural is None or noun.gender == "p":
        return []
    if noun.english_plural != m.plural_regular(noun.english):
        return []
    plural, dative = noun.german_plural, m.dative_plural(noun.german_plural)
    found = [dative] if dative != plural else []
    if noun.gender == "f" and noun.german.endswith("e"):
        found.append(plural)
    if noun.gender == "f" and noun.german.endswith("ung"):
        found.append(plural)
    return found


def _adjective_forms(word: Adjective) -> list[str]:
    return [word.stem + ending for ending in ("em", "es", "er")]


def _verb_forms(verb: Verb) -> list[str]:
    weak = verb.third is None and verb.past is None and not verb.prefix
    if not weak or verb.german in m.IRREGULAR_PRESENT or verb.english_past != m.past_regular(verb.english):
        return []
    return [verb.present("3s"), verb.german_participle]


def _all_forms(lexicon: Lexicon) -> dict[str, set[str]]:
    """Returns the lemmas of each surface form, case folded."""
    table: dict[str, set[str]] = {}

    def add(lemma: str, form: str) -> None:
        table.setdefault(form.casefold(), set()).add(lemma)

    for noun in lexicon.nouns.values():
        for case in "nadg":
            add(noun.lemma, noun.form(case, plural=False))
            add(noun.lemma, noun.form(case, plural=True))
    for word in lexicon.adjectives.values():
        for ending in ("", "e", "en", "em", "es", "er"):
            add(word.lemma, word.stem + ending)
        add(word.lemma, word.german)
    for verb in lexicon.verbs.values():
        for person in ("1s", "2s", "3s", "1p", "3p"):
            add(verb.lemma, verb.present(person))
            add(verb.lemma, verb.preterite(person))
        add(verb.lemma, verb.german_participle)
        add(verb.lemma, verb.german)
    for name in lexicon.names:
        add(name.lemma, name.german)
    for adverb in lexicon.adverbs:
        for part in adverb.german.split():
            add(adverb.lemma, part)
    return table


@functools.cache
def held_out() -> HoldOut:
    lexicon = load()
    pairs = frozenset(
        (adjective.lemma, "n:" + noun)
        for noun, fitting in lexicon.fitting.items()
        for adjective in fitting
        if _draw(f"{adjective.english} {noun}", 1000) < 1000 * PAIR_SHARE
    )
    separable = frozenset(
        (verb.lemma, CLAUSE_TYPES[_draw(verb.key, len(CLAUSE_TYPES))]) for verb in lexicon.verbs.values() if verb.prefix
    )
    table = _all_forms(lexicon)
    forms: dict[str, str] = {}

    def hold(lemma: str, found: list[str]) -> None:
        own = [form for form in found if table[form.casefold()] == {lemma}]
        if own and _draw("form of " + lemma, 1000) < 1000 * FORM_SHARE:
            forms[own[_draw("which form of " + lemma, len(own))].casefold()] = lemma

    for noun in lexicon.nouns.values():
        hold(noun.lemma, _noun_forms(noun))
    for word in lexicon.adjectives.values():
        hold(word.lemma, _adjective_forms(word))
    for verb in lexicon.verbs.values():
        hold(verb.lemma, _verb_forms(verb))
    return HoldOut(pairs, separable, forms)
