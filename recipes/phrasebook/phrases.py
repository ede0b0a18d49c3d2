"""The pieces of a sentence pair: aligned words, noun phrases, prepositional phrases.

A unit is a number for one piece of meaning in one sentence pair. Words of the two sides that share a unit are
aligned. A separable verb has one unit, so that both of its parts are aligned to the English verb.
"""

import itertools
import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from . import morphology as m
from .lexicon import Adjective, Lexicon, Name, Noun, Pool

T = TypeVar("T")


class Reject(Exception):
    """The draft breaks a rule of the grammar. The caller draws another one."""


class Word(NamedTuple):
    text: str
    units: tuple[int, ...] = ()
    lemmas: tuple[str, ...] = ()  # of German content words; the hold-outs and the tests use them
    article: bool = False  # the definite article, which contracts with prepositions


Words = list[Word]


class Draft:
    """The state of the one sentence pair that is being built."""

    def __init__(self, dice: random.Random, lexicon: Lexicon) -> None:
        self.dice = dice
        self.lexicon = lexicon
        self._units = itertools.count()
        self.negations = 0
        self.informal = False  # du, after a first name; otherwise Sie
        self.adjective_nouns: list[tuple[str, str]] = []
        self.separable: list[tuple[str, str]] = []  # (verb, clause type)

    def unit(self) -> int:
        return next(self._units)

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def pick(self, choices: Sequence[T]) -> T:
        # Only random() is used, because the other methods of the generator may change between Python versions.
        return choices[int(self.dice.random() * len(choices))]

    def draw(self, pool: Pool[T]) -> T:
        if not pool.items:
            raise Reject
        return pool.items[bisect_right(pool.sums, int(self.dice.random() * pool.sums[-1]))]

    def by_weight(self, choices: Iterable[tuple[T, int]]) -> T:
        return self.draw(Pool(choices))


@dataclass
class NP:
    """A noun phrase in both languages. The German side is built once its case is known."""

    english: Words
    german: Callable[[str], Words]
    person: str  # 1s 2s 2f 3s 1p 3p, for the German verb
    english_person: str
    gender: str  # m f n p, for the relative pronoun
    kind: str  # pronoun, name, definite, indefinite, counted, bare, predicate
    english_object: Words | None = None
    negated: Callable[[str], Words] | None = None  # with kein
    owner: str = ""  # the person of a possessive that refers to it: 3m, 3f, 3p, or a pronoun's own; "" if unclear
    human: bool = False
    reflexive: str = "sich"

    @property
    def objective(self) -> Words:
        return self.english if self.english_object is None else self.english_object

    @property
    def definite(self) -> bool:
        return self.kind in ("name", "definite")


@dataclass
class PP:
    english: Words
    german: Words


def plain(text: str, *units: int, lemma: str = "") -> Words:
    """Returns the words of a fixed phrase, all with the same units; the last one carries the lemma."""
    words = [Word(word, units) for word in text.split()]
    return [*words[:-1], words[-1]._replace(lemmas=(lemma,))] if lemma else words


def join_preposition(preposition: str, unit: int, phrase: Words) -> Words:
    """Returns preposition and noun phrase, contracted where German does: in + dem is im. Only the article contracts,
    never a pronoun of the same form."""
    head = phrase[0]
    short = m.CONTRACTIONS.get((preposition, head.text)) if head.article else None
    if short:
        return [Word(short, (unit, *head.units)), *phrase[1:]]
    return [Word(preposition, (unit,)), *phrase]


def prepositional(draft: Draft, english: str, german: str, case: str, np: NP) -> PP:
    unit = draft.unit()
    return PP(plain(english, unit) + np.objective, join_preposition(german, unit, np.german(case)))


def pronoun(draft: Draft, person: str) -> NP:
    english, english_object, *forms = m.PRONOUNS[person]
    unit = draft.unit()

    def german(case: str) -> Words:
        return [Word(forms["nad".index(case)], (unit,))]

    return NP(
        [Word(english, (unit,))],
        german,
        "3s" if person in ("3m", "3f") else person,
        {"3m": "3s", "3f": "3s", "2f": "2s"}.get(person, person),
        "p",
        "pronoun",
        [Word(english_object, (unit,))],
        owner=person,
        human=True,
        reflexive=m.REFLEXIVES.get(person, "sich"),
    )


def name(draft: Draft, word: Name) -> NP:
    unit = draft.unit()

    def german(case: str) -> Words:
        return [Word(word.german, (unit,), (word.lemma,))]

    owner = {"m": "3m", "f": "3f"}.get(word.gender, "")
    return NP([Word(word.english, (unit,))], german, "3s", "3s", word.gender, "name", owner=owner, human=owner != "")


def titled(draft: Draft, surname: Name, gender: str) -> NP:
    """Returns a title and surname: Mrs Weber, Frau Weber. Herr is a weak noun."""
    title, unit = draft.unit(), draft.unit()

    def german(case: str) -> Words:
        form = "Frau" if gender == "f" else "Herr" if case == "n" else "Herrn"
        return [Word(form, (title,)), Word(surname.german, (unit,), (surname.lemma,))]

    english = [Word("Mrs" if gender == "f" else "Mr", (title,)), Word(surname.english, (unit,))]
    return NP(english, german, "3s", "3s", gender, "name", owner="3" + gender, human=True)


@dataclass
class Description:
    """The adjectives before a noun, with "very" before the first one if `very` is set."""

    adjectives: list[tuple[Adjective, int]] = field(default_factory=list)
    very: int | None = None

    def english(self) -> Words:
        words = [Word("very", (self.very,))] if self.very is not None else []
        for adjective, unit in self.adjectives:
            words += plain(adjective.english, unit)
        return words

    def german(self, pattern: str, case: str, gender: str) -> Words:
        words = [Word("sehr", (self.very,))] if self.very is not None else []
        for adjective, unit in self.adjectives:
            form = m.adjective(adjective.stem, pattern, case, gender)
            words.append(Word(form, (unit,), (adjective.lemma,)))
        return words


def describe(draft: Draft, noun: Noun, share: float) -> Description:
    fitting = draft.lexicon.describing(noun)
    if not fitting or not draft.chance(share):
        return Description()
    first = draft.draw(fitting)
    draft.adjective_nouns.append((first.lemma, noun.lemma))
    very = draft.unit() if draft.chance(0.06) and first.english_comparative else None
    return Description([(first, draft.unit())], very)


QUANTIFIERS = {  # English, German stem, declension pattern, whether the word itself has endings
    "many": ("viel", "none", True),
    "few": ("wenig", "none", True),
    "some": ("einig", "none", True),
    "all": ("all", "this", True),
}


def noun_phrase(
    draft: Draft,
    noun: Noun,
    determiner: str,
    *,
    plural: bool = False,
    owner: str = "3m",
    number: int = 0,
    possessor: NP | None = None,
    adjectives: float = 0.26,
    about: Description | None = None,
) -> NP:
    """`determiner`: the, a, this, my (of `owner`), every, which, number, how many, a QUANTIFIER, name's, genitive,
    bare, or instrument (the in English, nothing in German)."""
    english_plural = plural or "english-plural" in noun.notes or "plural" in noun.notes
    german_plural = plural or noun.gender == "p"
    if (plural and (noun.german_plural is None or noun.english_plural is None)) or (
        determiner in ("every", "a") and (noun.gender == "p" or ("mass" in noun.notes))
    ):
        raise Reject
    if (
        noun.english in ("husband", "wife")
        and determiner == "my"
        and owner not in ("1s", "3" + "fm"[noun.gender == "f"])
    ):
        raise Reject
    if determiner in ("number", "many", "few", "some", "all", "how many") and not plural:
        raise Reject
    if "english-plural" in noun.notes and (plural or determiner == "every"):
        raise Reject
    if determiner == "a" and "english-plural" in noun.notes and noun.german_plural is None:
        determiner = "bare"
    gender = "p" if german_plural else noun.gender
    about = about or describe(draft, noun, adjectives)
    det, core = draft.unit(), draft.unit()
    english_noun = noun.english_plural if english_plural and noun.english_plural else noun.english
    middle = about.english() + plain(english_noun, core)
    before: Words
    after: Words = []
    stem, pattern = "", "the"
    if determiner == "the":
        before = [Word("the", (det,))]
    elif determiner == "a":
        before = [] if english_plural else [Word("a", (det,))]
        stem, pattern = "ein", "none" if german_plural else "a"
    elif determiner == "this":
        before = [Word("these" if english_plural else "this", (det,))]
        stem, pattern = "dies", "this"
    elif determiner == "my":
        before = [Word(m.POSSESSIVES[owner][0], (det,))]
        stem, pattern = m.POSSESSIVES[owner][1], "a"
    elif determiner in ("every", "which"):
        before = [Word(determiner, (det,))]
        stem, pattern = {"every": "jed", "which": "welch"}[determiner], "this"
    elif determiner in QUANTIFIERS:
        before = [Word(determiner, (det,))]
        stem, pattern = QUANTIFIERS[determiner][:2]
    elif determiner == "how many":
        before = plain("how many", det)
        pattern = "none"
    elif determiner == "number":
        before = [Word(m.english_number(number), (det,))]
        pattern = "none"
    elif determiner == "name's" and possessor is not None:
        head = possessor.english[-1]
        before = [*possessor.english[:-1], head._replace(text=head.text + "'s")]
        pattern = "none"
    elif determiner == "genitive" and possessor is not None:
        head = possessor.english[-1]
        mark = "'" if possessor.english_person == "3p" and head.text.endswith("s") else "'s"
        before = [*possessor.english[:-1], head._replace(text=head.text + mark)]
        after = possessor.german("g")
    elif determiner == "bare":
        before, pattern = [], "none"
    elif determiner == "instrument":  # plays the guitar is spielt Gitarre
        before, pattern = [Word("the", (det,))], "none"
    else:
        raise AssertionError(determiner)

    def german(case: str) -> Words:
        lead: Words
        if determiner in ("bare", "instrument") or (determiner == "a" and german_plural):
            lead = []
        elif determiner == "how many":
            lead = plain("wie viele" if case != "d" else "wie vielen", det)
        elif determiner == "number":
            lead = [Word(m.german_number(number), (det,), m.number_stems(number))]
        elif determiner == "name's" and possessor is not None:
            owner_words = possessor.german("n")
            last = owner_words[-1]
            ending = "'" if last.text[-1] in "sxzß" else "s"
            lead = [*owner_words[:-1], last._replace(text=last.text + ending)]
        else:
            form = m.determiner(stem, pattern, case, gender)
            lead = [Word(form, (det,), (), stem == "" and pattern == "the")]
        form = noun.form(case, plural=german_plural)
        return lead + about.german(pattern, case, gender) + [Word(form, (core,), (noun.lemma,))] + after

    def negated(case: str) -> Words:
        form = m.determiner("kein", "a", case, gender)
        kein = Word(form, (NEGATION, det))
        return [
            kein,
            *about.german("a", case, gender),
            Word(noun.form(case, plural=german_plural), (core,), (noun.lemma,)),
        ]

    indefinite = determiner in ("a", "bare")
    kind = "bare" if determiner == "instrument" else "definite"
    if indefinite:
        kind = "indefinite"
    elif determiner in ("number", "how many", "every", "which", *QUANTIFIERS):
        kind = "counted"
    human = noun.kind in ("pro", "kin", "per")
    points_back = "3p" if english_plural else "3" + noun.gender if human and noun.gender in "mf" else ""
    if noun.english == "family":
        points_back = ""
    person = "3p" if german_plural else "3s"
    return NP(
        before + middle,
        german,
        person,
        "3p" if english_plural else "3s",
        gender,
        kind,
        negated=negated if indefinite else None,
        owner=points_back,
        human=human,
    )


# The unit of the negation. A sentence pair has one negated clause at most.
NEGATION = -1


def german_indefinite_plural(np: NP) -> bool:
    return np.kind == "indefinite" and np.person == "3p"
