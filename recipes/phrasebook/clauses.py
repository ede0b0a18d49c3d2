"""A clause, and its word order in English and in German.

The German order, after the finite verb (or the conjunction):

    subject, pronouns (accusative first), definite dative, name, time, frequency, other objects that are
    definite or dative, schon, nicht,
    manner, companion, place, indefinite object, prepositional object, predicate, direction, verbs at the end

In a clause with nicht, definite objects precede the time. German allows other orders, but they are left out on
purpose: one English sentence has one translation.
"""

from dataclasses import dataclass, field

from . import morphology as m
from .lexicon import Verb
from .phrases import NEGATION, NP, PP, Draft, Reject, Word, Words, join_preposition

MODALS = {  # English third person present, other persons, past, German
    "can": ("can", "can", "was able to", "können"),
    "must": ("must", "must", "had to", "müssen"),
    "have to": ("has to", "have to", "had to", "müssen"),
    "want": ("wants to", "want to", "wanted to", "wollen"),
    "should": ("should", "should", "", "sollen"),
    "may": ("may", "may", "was allowed to", "dürfen"),
    "would": ("would like to", "would like to", "", "möchten"),
}


@dataclass
class Object:
    np: NP
    case: str
    english: str = ""
    german: str = ""  # the preposition of a prepositional object

    def german_words(self, unit: int) -> Words:
        words = self.np.german(self.case)
        return join_preposition(self.german, unit, words) if self.german else words


@dataclass
class Clause:
    subject: NP
    verb: Verb
    tense: str = "present"  # present progressive past perfect future preterite likes modal modal-past passive...
    modal: str = ""
    negated: bool = False
    objects: list[Object] = field(default_factory=list)
    time: PP | None = None
    frequency: PP | None = None
    already: PP | None = None
    manner: PP | None = None
    companion: PP | None = None
    place: PP | None = None
    direction: PP | None = None
    predicate: tuple[Words, Words] | None = None
    predicate_noun: NP | None = None
    bare_object: bool = False  # plays the guitar: spielt Gitarre, negated with nicht, not kein
    v: int = -2  # unit of the verb
    a: int = -3  # unit of the auxiliary or modal
    p: dict[int, int] = field(default_factory=dict)  # units of the prepositions of objects

    def bind(self, draft: Draft) -> "Clause":
        self.v, self.a = draft.unit(), draft.unit()
        self.p = {i: draft.unit() for i in range(-1, len(self.objects))}
        if self.negated:
            self._check_negation()
        return self

    def kein(self) -> Object | None:
        """Returns the object that takes kein in a negated clause."""
        if not self.negated or self.bare_object:
            return None
        for thing in self.objects:
            if thing.case == "a" and not thing.german and thing.np.negated:
                return thing
        return None

    def _check_negation(self) -> None:
        for thing in self.objects:
            if thing.np.kind == "counted" or (thing.np.kind == "indefinite" and (thing.case == "d" or thing.german)):
                raise Reject  # "nicht drei Bücher" and "nicht einem Kind" need a stress that text does not show
        if self.frequency or self.tense == "likes" or self.subject.kind in ("indefinite", "counted"):
            raise Reject

    # English

    def _be(self, past: bool = False) -> str:
        person = self.subject.english_person
        if past:
            return "was" if person in ("1s", "3s") else "were"
        return {"1s": "am", "3s": "is"}.get(person, "are")

    def _english_verbs(self, question: bool) -> tuple[Words, Words]:
        """Returns the auxiliary that comes first in a question, and the rest."""
        person, base = self.subject.english_person, self.verb.english
        third = person == "3s"
        v, a = self.v, self.a
        support = self.negated or question

        def say(text: str, *units: int) -> Words:
            return [Word(word, units) for word in text.split()]

        simple = self.tense in ("present", "likes")
        be = self.verb.german == "sein"
        if self.tense == "modal":
            now, other, _, _ = MODALS[self.modal]
            text = now if third else other
            first, _, rest = text.partition(" ")
            if self.modal in ("have to", "want") and support:
                return say("does" if third else "do", a), say(other, a) + say(base, v)
            if self.modal in ("have to", "want"):
                return [], say(text, a) + say(base, v)
            return say(first, a), say(rest, a) + say(base, v)
        if self.tense == "modal-past":
            text = MODALS[self.modal][2]
            if text.startswith("was "):
                return say(self._be(past=True), a), say(text[4:], a) + say(base, v)
            if support:
                return say("did", a), say({"had to": "have to", "wanted to": "want to"}[text], a) + say(base, v)
            return [], say(text, a) + say(base, v)
        if self.tense == "future":
            return say("will", a), say("be" if be else base, v)
        if self.tense == "passive-present":
            return say(self._be(), a), say("being", a) + say(self.verb.english_participle, v)
        if self.tense == "passive-past":
            return say(self._be(past=True), a), say(self.verb.english_participle, v)
        if self.tense == "passive-modal":
            return say("must", self.p[-1]), say("be", a) + say(self.verb.english_participle, v)
        if be:
            return say(self._be(past=self.tense != "present"), v), []
        if self.tense == "progressive":
            return say(self._be(), v), say(m.ing(base), v)
        if self.tense == "perfect":
            return say("has" if third else "have", a), say(self.verb.english_participle, v)
        if simple:
            likes = self.tense == "likes"
            head, units = ("like", (a,)) if likes else (base, (v,))
            tail = say("to", a) + say(base, v) if likes else []
            if support:
                return say("does" if third else "do", *units), say(head, *units) + tail
            if self.verb.english_past == base and not third and not likes:
                raise Reject  # "they put" would also be a present; the present is left out
            return [], say(m.third_person(head) if third else head, *units) + tail
        said: tuple[int, ...] = (v,) if self.tense == "preterite" or "have" in self.verb.notes else (v, a)
        if support:
            return say("did", said[-1]), say(base, v)
        return [], say(self.verb.english_past, *said)

    def english(self, *, question: bool = False, subject: bool = True, to: bool = False) -> Words:
        """Returns a statement, a question without its question word, or what follows "to"."""
        if to:
            first: Words = []
            rest = [Word(word, (self.v,)) for word in self.verb.english.split()]
            subject = False
        else:
            first, rest = self._english_verbs(question)
        no = [Word("not", (NEGATION,))] if self.negated else []
        middle = self._words(self.frequency, 0) + self._words(self.already, 0)
        named = self.subject.english if subject else []
        if self.already and self.already.english[0].text == "yet":
            middle = []
        particle, objects = self._english_objects(rest)
        after = objects + particle
        # The adverb of a passive or of "be" follows the auxiliary, like any other adverb.
        head = [*first, *named, *no, *middle] if question else [*named, *first, *no, *middle]
        tail: Words = []
        simple = any(not thing.english for thing in self.objects) or not self.objects
        manner = self._words(self.manner, 0)
        after = after + manner if simple else manner + after
        for part in (self.direction, self.companion, self.place, self.time):
            tail += self._words(part, 0)
        if self.already and self.already.english[0].text == "yet":
            tail += self.already.english
        predicate = self.predicate[0] if self.predicate else []
        return head + rest + predicate + after + tail

    @staticmethod
    def _words(part: PP | None, side: int) -> Words:
        return [] if part is None else (part.english, part.german)[side]

    def _english_objects(self, rest: Words) -> tuple[Words, Words]:
        """Returns the objects and the particle, which follows a pronoun: picks up Anna, picks her up."""
        direct: list[Object] = []
        indirect: list[Object] = []
        for thing in self.objects:
            (indirect if thing.english else direct).append(thing)
        words: Words = []
        for thing in direct + indirect:
            i = self.objects.index(thing)
            words += [Word(part, (self.p.get(i, self.v),)) for part in thing.english.split()]
            words += thing.np.objective
        particle: Words = []
        pronoun = bool(direct) and direct[0].np.kind == "pronoun"
        if pronoun and "fixed" not in self.verb.notes and " " in self.verb.english and self.tense[:7] != "passive":
            particle = [rest.pop()]
        return particle, words

    # German

    def _finite(self, final: bool) -> tuple[Word, Words]:
        """Returns the finite verb and the verbs at the end of the clause."""
        person, verb = self.subject.person, self.verb
        lemma = (verb.lemma,)
        v, a = (self.v,), (self.a,)
        ending: Words
        if self.tense in ("present", "progressive", "likes", "preterite") or (
            self.tense == "past" and ("have" in verb.notes or verb.german == "sein")
        ):
            past = self.tense in ("preterite", "past")
            form = verb.preterite(person) if past else verb.present(person)
            if verb.prefix and final:
                return Word(verb.prefix + form, v, lemma), []
            ending = [Word(verb.prefix, v, lemma)] if verb.prefix else []
            return Word(form, v, lemma), ending
        if self.tense in ("past", "perfect"):
            table = m.IRREGULAR_PRESENT[verb.auxiliary]
            return Word(table[person], a), [Word(verb.german_participle, v, lemma)]
        if self.tense == "future":
            return Word(m.IRREGULAR_PRESENT["werden"][person], a), [Word(verb.german, v, lemma)]
        if self.tense in ("modal", "modal-past"):
            form = m.modal(MODALS[self.modal][3], person, past=self.tense == "modal-past")
            return Word(form, a), [Word(verb.german, v, lemma)]
        part = Word(verb.german_participle, v, lemma)
        if self.tense == "passive-present":
            return Word(m.IRREGULAR_PRESENT["werden"][person], a), [part]
        if self.tense == "passive-past":
            return Word(m.preterite("werden", "wurde", person), a), [part]
        return Word(m.modal("müssen", person), (self.p[-1],)), [part, Word("werden", a)]

    def _separable_kind(self, draft: Draft, kind: str) -> None:
        if not self.verb.prefix:
            return
        if self.tense in ("past", "perfect") or self.tense.startswith("passive"):
            kind = "perfect"
        elif self.tense in ("future", "modal", "modal-past"):
            kind = "infinitive"
        draft.separable.append((self.verb.lemma, kind))

    def german_middle(self, *, subject: bool, inverted: bool = False, skip_time: bool = False) -> Words:
        out: Words = list(self.subject.german("n")) if subject else []
        if "refl" in self.verb.notes:
            # In a question, sich follows a pronoun (Freut er sich?) but precedes a noun (Freut sich Anna?). In a
            # subordinate clause it follows both.
            first = inverted and self.subject.kind != "pronoun"
            out.insert(0 if first else len(out), Word(self.subject.reflexive, (self.v,)))
        kein = self.kein()
        plain_objects = [thing for thing in self.objects if not thing.german]
        for case in "ad":
            for thing in plain_objects:
                if thing.np.kind == "pronoun" and thing.case == case:
                    out += thing.np.german(case)
        dative = [thing.np for thing in plain_objects if thing.case == "d" and thing.np.kind != "pronoun"]
        early, late = ([np for np in dative if np.definite is sure] for sure in (True, False))
        definite = [word for np in late for word in np.german("d")]
        for thing in plain_objects:
            if thing.case == "a" and thing.np.kind == "name":
                early.append(thing.np)
            elif thing.case == "a" and thing.np.definite:
                definite += thing.np.german("a")
        time = ([] if skip_time else self._words(self.time, 1)) + self._words(self.frequency, 1)
        if self.tense == "likes":
            time = [*time, Word("gern", (self.a,))]
        nicht = self.negated and kein is None and not (self.predicate_noun and self.predicate_noun.negated)
        out += [word for np in early for word in np.german("d" if np in dative else "a")]
        out += definite + time if nicht else time + definite
        out += self._words(self.already, 1)
        if nicht:
            out.append(Word("nicht", (NEGATION,)))
        out += self._words(self.manner, 1) + self._words(self.companion, 1)
        out += self._words(self.place, 1)
        for thing in plain_objects:
            if thing.case == "a" and thing.np.kind != "pronoun" and not thing.np.definite:
                out += thing.np.negated("a") if thing is kein and thing.np.negated else thing.np.german("a")
        for i, thing in enumerate(self.objects):
            if thing.german:
                out += thing.german_words(self.p[i])
        if self.predicate_noun and self.negated and self.predicate_noun.negated:
            out += self.predicate_noun.negated("n")
        elif self.predicate:
            out += self.predicate[1]
        out += self._words(self.direction, 1)
        return out

    def german(
        self, draft: Draft, order: str, *, front: str = "", prefix: Words | None = None, question: bool = False
    ) -> Words:
        """Returns the German words. `order` is the position of the finite verb: second, first, final, or zu (an
        infinitive with zu and without a subject).

        `front` names the adjunct to put before the verb; `prefix` is what already stands there (a question word, a
        clause)."""
        kind = {"second": "main", "first": "question", "final": "subordinate", "zu": "zu"}[order]
        self._separable_kind(draft, "question" if question else kind)
        if order == "zu":
            middle = self.german_middle(subject=False)
            if self.verb.prefix:
                return [*middle, Word(self.verb.zu_infinitive(), (self.v,), (self.verb.lemma,))]
            return [*middle, Word("zu", (self.v,)), Word(self.verb.german, (self.v,), (self.verb.lemma,))]
        finite, ending = self._finite(order == "final")
        if order == "final":
            return self.german_middle(subject=True) + ending + [finite]
        if order == "first":
            return [finite, *self.german_middle(subject=True, inverted=True), *ending]
        if prefix is not None:
            return [*prefix, finite, *self.german_middle(subject=True, inverted=True), *ending]
        if front == "time" and self.time:
            middle = self.german_middle(subject=True, inverted=True, skip_time=True)
            return [*self.time.german, finite, *middle, *ending]
        return [*self.subject.german("n"), finite, *self.german_middle(subject=False), *ending]
