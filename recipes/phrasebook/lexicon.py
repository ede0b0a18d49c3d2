"""The lexicon: tab-separated files in the folder lexicon/, which are read once and checked.

A line that starts with # opens a block. The rank of a word in its block gives its Zipf-like weight.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from . import morphology as m

T = TypeVar("T")


class Weighted(Protocol):
    @property
    def weight(self) -> int: ...


W = TypeVar("W", bound=Weighted)

# The weight of rank r is proportional to (r + SHIFT) ** -EXPONENT. SHIFT flattens it, so that a small corpus has its
# rarest word several times. Weights are whole numbers, so that no machine rounds differently.
EXPONENT, SHIFT = 0.8, 6.0


def zipf_weight(rank: int) -> int:
    weight: float = 100_000 * (rank + SHIFT) ** -EXPONENT
    return round(weight)


class Pool(Generic[T]):
    """Items to draw from, with the running sums of their weights."""

    def __init__(self, weighted: Iterable[tuple[T, int]]) -> None:
        pairs = list(weighted)
        self.items = tuple(thing for thing, _ in pairs)
        self.sums = tuple(itertools.accumulate(weight for _, weight in pairs))

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, eq=False)
class Noun:
    english: str
    english_plural: str | None
    german: str
    gender: str  # m f n, or p without a singular
    german_plural: str | None
    kind: str
    notes: Mapping[str, str]
    weight: int

    @property
    def lemma(self) -> str:
        return "n:" + self.english

    def form(self, case: str, *, plural: bool) -> str:
        if plural or self.gender == "p":
            plural_form = self.german_plural or self.german
            return m.dative_plural(plural_form) if case == "d" else plural_form
        if case == "g" and "gen" in self.notes:
            return self.notes["gen"]
        if case != "n" and "weak" in self.notes:
            return self.notes["weak"]
        return m.genitive(self.german) if case == "g" and self.gender != "f" else self.german


@dataclass(frozen=True, eq=False)
class Adjective:
    english: str
    english_comparative: str | None
    german: str
    stem: str
    german_comparative: str | None
    attributive_only: bool
    weight: int

    @property
    def lemma(self) -> str:
        return "a:" + self.english


@dataclass(frozen=True)
class Slot:
    """An argument of a verb: its English and German prepositions ("" for none), its German case, what may fill it."""

    english: str
    german: str
    case: str
    group: str


@dataclass(frozen=True, eq=False)
class Verb:
    key: str
    english: str
    english_past: str
    english_participle: str
    german: str  # the infinitive, prefix included
    prefix: str  # of a separable verb, otherwise ""
    third: str | None
    past: str | None
    german_participle: str
    auxiliary: str  # haben or sein
    subject: str
    slots: tuple[Slot, ...]
    adjuncts: frozenset[str]
    manner: str
    notes: Mapping[str, str]
    weight: int

    @property
    def lemma(self) -> str:
        return "v:" + self.key

    @property
    def base(self) -> str:
        """The infinitive without the separable prefix."""
        return self.german[len(self.prefix) :]

    def serves(self, purpose: str) -> bool:
        if purpose == "plain":
            return not self.notes.keys() & {"that", "whether", "to", "be"} and self.subject != "es"
        if purpose == "separable":
            return bool(self.prefix)
        if purpose == "transitive":  # one direct object and a human subject
            direct = len(self.slots) == 1 and self.slots[0].case == "a" and not self.slots[0].german
            return direct and not self.slots[0].english and self.subject == "P"
        return purpose in self.notes

    def present(self, person: str) -> str:
        table = m.IRREGULAR_PRESENT.get(self.base)
        return table[person] if table else m.present(self.base, self.third, person)

    def preterite(self, person: str) -> str:
        return m.preterite(self.base, m.IRREGULAR_PRETERITE.get(self.base, self.past), person)

    def zu_infinitive(self) -> str:
        """Returns the infinitive with zu: one word for a separable verb (aufzustehen), two for any other."""
        return f"{self.prefix}zu{self.base}" if self.prefix else self.german


@dataclass(frozen=True, eq=False)
class Name:
    english: str
    german: str
    gender: str
    kind: str
    weight: int

    @property
    def lemma(self) -> str:
        return f"{self.kind}:{self.english}"


@dataclass(frozen=True, eq=False)
class Adverb:
    english: str
    german: str
    kind: str
    tags: frozenset[str]
    weight: int

    @property
    def lemma(self) -> str:
        return "r:" + self.english


@dataclass(frozen=True, eq=False)
class Lexicon:
    nouns: Mapping[str, Noun]
    adjectives: Mapping[str, Adjective]
    verbs: Mapping[str, Verb]
    names: tuple[Name, ...]
    adverbs: tuple[Adverb, ...]
    groups: Mapping[str, tuple[Noun, ...]]
    fitting: Mapping[str, tuple[Adjective, ...]] = field(default_factory=dict)  # noun -> its adjectives

    @functools.cached_property
    def _pools(self) -> dict[object, Any]:
        return {}

    def _pool(self, key: object, words: Callable[[], Iterable[W]]) -> Pool[W]:
        """Returns the pool of a key, which is built at the first request. The weights are those of the words."""
        found: Pool[W] | None = self._pools.get(key)
        if found is None:
            found = self._pools[key] = Pool((word, word.weight) for word in words())
        return found

    def members(self, text: str) -> Pool[Noun]:
        """Returns the nouns in a comma-separated list of classes, groups and nouns."""
        return self._pool(("noun", text), lambda: members_of(text, self.groups, self.nouns))

    def named(self, kind: str) -> Pool[Name]:
        """Returns the names of a kind: first, last, city, country."""
        return self._pool(("name", kind), lambda: [name for name in self.names if name.kind == kind])

    def adverbs_of(self, kind: str, *tags: str) -> Pool[Adverb]:
        wanted = frozenset(tags)
        return self._pool(
            (kind, wanted), lambda: [word for word in self.adverbs if word.kind == kind and wanted <= word.tags]
        )

    def verbs_for(self, purpose: str) -> Pool[Verb]:
        """Returns the verbs for a purpose: a note in the lexicon, "plain" (any clause), "separable" or "transitive"."""
        return self._pool(("verb", purpose), lambda: [v for v in self.verbs.values() if v.serves(purpose)])

    def describing(self, noun: Noun) -> Pool[Adjective]:
        """Returns the adjectives that may precede the noun."""
        return self._pool(("adjective", noun.english), lambda: self.fitting.get(noun.english, ()))

    def told_of(self, noun: Noun) -> Pool[Adjective]:
        """Returns the adjectives that may follow "is"."""
        return self._pool(
            ("predicate", noun.english),
            lambda: [word for word in self.fitting.get(noun.english, ()) if not word.attributive_only],
        )

    def told_of_anyone(self) -> Pool[Adjective]:
        """Returns the adjectives for a person of whom only the name is known."""
        child = self.fitting["child"]
        teacher = self.told_of(self.nouns["teacher"]).items
        return self._pool("anyone", lambda: [word for word in teacher if word in child])

    def verbs_of(self, noun: Noun) -> Pool[Verb]:
        """Returns the transitive verbs that may have the noun as their object."""
        return self._pool(
            ("verbs of", noun.english),
            lambda: [
                verb
                for verb in self.verbs_for("transitive").items
                if not verb.notes.keys() & {"have", "bare"}
                and verb.english not in ("make", "do")
                and noun in self.members(verb.slots[0].group).items
            ],
        )

    def passives(self) -> Pool[Verb]:
        return self._pool(
            "passive",
            lambda: [
                verb
                for verb in self.verbs_for("transitive").items
                if not verb.notes.keys() & {"stative", "have", "bare", "fixed", "refl", "no-passive"}
                and not verb.adjuncts & set("DPX")
                and not verb.slots[0].group.startswith(("bod", "wrk", "P"))
            ],
        )

    def count(self) -> dict[str, int]:
        """Returns the lemmas of each word class."""
        return {
            "nouns": len(self.nouns),
            "adjectives": len(self.adjectives),
            "verbs": len(self.verbs),
            "names": len(self.names),
            "adverbs and time words": len(self.adverbs),
        }


def _rows(name: str) -> Iterator[tuple[list[str], int]]:
    """Yields the fields of each line and its rank in its block, from 1."""
    path = Path(__file__).parent / "lexicon" / f"{name}.tsv"
    lines = path.read_text(encoding="utf-8").split("\n")
    width, rank = len(lines[0].split("\t")), 0
    for number, line in enumerate(lines[1:], start=2):
        if line.startswith("#"):
            rank = 0
        elif line:
            fields = line.split("\t")
            if len(fields) != width:
                raise ValueError(f"{path}:{number}: expected {width} fields, got {len(fields)}")
            rank += 1
            yield fields, rank


def _optional(text: str) -> str | None:
    return None if text == "-" else text


def _notes(text: str) -> dict[str, str]:
    pairs = [note.partition("=") for note in text.split() if note != "-"]
    return {key: value for key, _, value in pairs}


def _slot(text: str) -> Slot:
    frame, _, group = text.partition("=")
    english, colon, german = frame.rpartition(":")
    preposition, _, case = german.rpartition("+")
    return Slot(english if colon and english != "-" else "", preposition, case[0], group)


def _verb(fields: list[str], rank: int) -> Verb:
    key, forms, german, third, past, part, auxiliary, subject, arguments, adjuncts, notes = fields
    english = key.split(" (")[0]
    if forms == "+":
        english_past = english_part = m.past_regular(english)
    else:
        # The particle is part of the forms: get up, got up/got up.
        english_past, _, english_part = forms.partition("/")
    marks = _notes(notes)
    prefix = marks.get("split", "")
    manner = [word[2:] for word in adjuncts.split() if word.startswith("m=")]
    return Verb(
        key,
        english,
        english_past,
        english_part,
        german,
        prefix,
        _optional(third),
        _optional(past),
        _optional(part) or prefix + m.participle(german[len(prefix) :]),
        "sein" if auxiliary == "s" else "haben",
        subject,
        tuple(_slot(word) for word in arguments.split() if word != "-"),
        frozenset(word for word in adjuncts.split() if word != "-" and not word.startswith("m=")),
        manner[0] if manner else "",
        marks,
        zipf_weight(rank) * int(marks.get("often", "1")),
    )


@functools.cache
def load() -> Lexicon:
    nouns: dict[str, Noun] = {}
    for (english, plural, german, gender, german_plural, kind, notes), rank in _rows("nouns"):
        if english in nouns:
            raise ValueError(f"the noun {english!r} is listed twice in the lexicon")
        english_plural = m.plural_regular(english) if plural == "+" else _optional(plural)
        nouns[english] = Noun(
            english, english_plural, german, gender, _optional(german_plural), kind, _notes(notes), zipf_weight(rank)
        )
    kinds: dict[str, list[Noun]] = {}
    for noun in nouns.values():
        kinds.setdefault(noun.kind, []).append(noun)
    groups = {kind: tuple(members) for kind, members in kinds.items()}
    for (group, members), _ in _rows("groups"):
        found: list[Noun] = []
        for member in members.split(","):
            if member not in kinds and member not in nouns:
                raise ValueError(f"the group {group!r} names {member!r}, which is neither a noun nor a class")
            found += kinds[member] if member in kinds else [nouns[member]]
        groups[group] = tuple(_unique(found))
    adjectives: dict[str, Adjective] = {}
    fitting: dict[str, list[Adjective]] = {}
    for (english, comparative, german, stem, german_comparative, wanted, notes), rank in _rows("adjectives"):
        word = Adjective(
            english,
            _optional(comparative),
            german,
            stem if stem != "-" else german,
            _optional(german_comparative),
            notes == "attributive",
            zipf_weight(rank),
        )
        adjectives[english] = word
        for noun in members_of(wanted, groups, nouns):
            fitting.setdefault(noun.english, []).append(word)
    # An adjective that fits few nouns weighs more beside each of them; otherwise it would hardly occur.
    uses = Counter(word.english for words in fitting.values() for word in words)
    for english, word in adjectives.items():
        adjectives[english] = replace(word, weight=word.weight * max(1, min(16, 120 // uses[english])))
    fitting = {noun: [adjectives[word.english] for word in words] for noun, words in fitting.items()}
    verbs: dict[str, Verb] = {}
    for fields, rank in _rows("verbs"):
        verb = _verb(fields, rank)
        if verb.key in verbs:
            raise ValueError(f"the verb {verb.key!r} is listed twice in the lexicon")
        verbs[verb.key] = verb
        for text in [slot.group for slot in verb.slots] + [verb.subject]:
            if text != "es":
                members_of(text, groups, nouns)
    names = tuple(Name(e, g, s, k, zipf_weight(rank)) for (e, g, s, k), rank in _rows("names"))
    adverbs = tuple(
        Adverb(e, g, k, frozenset(t.split(",")), zipf_weight(rank)) for (e, g, k, t), rank in _rows("adverbs")
    )
    return Lexicon(
        nouns, adjectives, verbs, names, adverbs, groups, {key: tuple(words) for key, words in fitting.items()}
    )


def _unique(nouns: list[Noun]) -> list[Noun]:
    return list({noun.english: noun for noun in nouns}.values())


def members_of(text: str, groups: Mapping[str, tuple[Noun, ...]], nouns: Mapping[str, Noun]) -> list[Noun]:
    """Returns the nouns in a comma-separated list of classes, groups and nouns. "cit" gives none: cities are names."""
    found: list[Noun] = []
    for part in text.split(","):
        if part in groups:
            found += groups[part]
        elif part in nouns:
            found.append(nouns[part])
        elif part not in ("cit", ""):
            raise ValueError(f"the lexicon refers to {part!r}, which is not a noun, class or group")
    return _unique(found)
