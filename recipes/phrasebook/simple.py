"""Sentences of one clause: statements, questions, requests, and clauses with "to be"."""

from .clauses import Clause
from .lexicon import Noun, Verb
from .phrases import NP, PP, Draft, Reject, Word, Words, noun_phrase, plain, pronoun
from .sampler import Sampler

Sides = tuple[Words, Words]


def with_comma(words: Words) -> Words:
    """Returns the words with a comma attached to the last one."""
    return [*words[:-1], words[-1]._replace(text=words[-1].text + ",")]


def both(draft: Draft, english: str, german: str) -> Sides:
    unit = draft.unit()
    return plain(english, unit), plain(german, unit)


# Clauses with their tense

TENSES = (
    ("progressive", 20),
    ("present", 14),
    ("past", 24),
    ("perfect", 5),
    ("future", 7),
    ("modal", 14),
    ("modal-past", 5),
    ("likes", 4),
)


def statement(s: Sampler) -> Sides:
    draft = s.draft
    clause = s.clause(draft.by_weight(TENSES))
    return fronted(s, clause)


def fronted(s: Sampler, clause: Clause) -> Sides:
    draft = s.draft
    if clause.time and not clause.negated and draft.chance(0.22):
        time = clause.time
        german = clause.german(draft, "second", front="time")
        clause.time = None
        return time.english + clause.english(), german
    return clause.english(), clause.german(draft, "second")


def separable_statement(s: Sampler) -> Sides:
    """Returns a statement with a separable verb; these verbs occur more often than their share of the lexicon."""
    verb = separable(s)
    return fronted(s, s.clause(s.draft.by_weight(TENSES), verb=verb))


def separable(s: Sampler) -> Verb:
    return s.verb("separable")


def maybe_separable(s: Sampler, share: float = 0.25) -> Verb | None:
    return separable(s) if s.draft.chance(share) else None


def question(s: Sampler) -> Sides:
    draft = s.draft
    tense = draft.by_weight((("progressive", 5), ("present", 4), ("past", 6), ("modal", 4), ("future", 2)))
    lead: Sides = ([], [])
    subject: NP | None = None
    if draft.chance(0.25):
        draft.informal = draft.chance(0.6)
        vocative = s.person_name()
        while (len(vocative.english) > 1) == draft.informal:
            vocative = s.person_name()
        lead = (with_comma(vocative.english), with_comma(vocative.german("n")))
        subject = pronoun(draft, "2s" if draft.informal else "2f")
    clause = s.clause(tense, subject=subject, verb=maybe_separable(s), negated=False)
    if clause.subject.person == "1s" and not clause.modal:
        raise Reject  # nobody asks whether they themselves are working
    return (
        lead[0] + clause.english(question=True),
        lead[1] + clause.german(draft, "first"),
    )


def what(s: Sampler) -> Sides:
    """Returns a question for the object: What is Anna reading? Which book...? How many books...?"""
    draft = s.draft
    tense = draft.by_weight((("progressive", 4), ("past", 5), ("modal", 3), ("present", 1)))
    verb = maybe_separable(s) or s.verb()
    if (
        len(verb.slots) != 1
        or verb.slots[0].case != "a"
        or verb.slots[0].german
        or verb.slots[0].group.startswith(("P", "bod"))
        or "bare" in verb.notes
    ):
        raise Reject
    clause = s.clause(tense, verb=verb, negated=False, length=0.6)
    thing = clause.objects.pop()
    if thing.np.kind in ("pronoun", "name"):
        raise Reject
    if draft.chance(0.4):
        asked: Sides = both(draft, "what", "was")
    else:
        lemma = thing.np.german("a")[-1].lemmas
        noun = next((n for n in s.lexicon.nouns.values() if n.lemma in lemma), None)
        if noun is None or noun.kind in ("bod", "wrk") or not s.can_plural(noun):
            raise Reject
        many = draft.chance(0.3)
        np = noun_phrase(draft, noun, "how many" if many else "which", plural=many or draft.chance(0.2))
        asked = (np.english, np.german("a"))
    particle: Words = []
    english = clause.english(question=True)
    return asked[0] + english + particle, clause.german(draft, "second", prefix=asked[1], question=True)


def who(s: Sampler) -> Sides:
    draft = s.draft
    unit = draft.unit()

    def who(_: str) -> Words:
        return [Word("wer", (unit,))]

    subject = NP([Word("who", (unit,))], who, "3s", "3s", "m", "counted", human=True)
    tense = draft.by_weight((("progressive", 4), ("past", 5), ("modal", 3), ("future", 2)))
    clause = s.clause(tense, subject=subject, verb=maybe_separable(s), negated=False)
    return clause.english(), clause.german(draft, "second", question=True)


def where(s: Sampler) -> Sides:
    """Returns a question with where, where to (wohin), when, why or how."""
    draft = s.draft
    tense = draft.by_weight((("progressive", 4), ("past", 5), ("modal", 3), ("future", 2)))
    clause = s.clause(tense, verb=maybe_separable(s), negated=False, length=0.5)
    if clause.direction and "D" in clause.verb.adjuncts and draft.chance(0.7):
        clause.direction = None
        asked = both(draft, "where", "wohin")
    elif clause.place:
        clause.place = None
        asked = both(draft, "where", "wo")
    elif clause.manner and draft.chance(0.5):
        clause.manner = None
        asked = both(draft, "how", "wie")
    elif draft.chance(0.5) and clause.predicate is None:
        clause.time = clause.frequency = None
        asked = both(draft, "when", "wann")
    else:
        asked = both(draft, "why", "warum")
    return asked[0] + clause.english(question=True), clause.german(draft, "second", prefix=asked[1], question=True)


def request(s: Sampler) -> Sides:
    """Returns a request: Please open the door. Bitte öffnen Sie die Tür."""
    draft = s.draft
    you = pronoun(draft, "2f")
    verb = maybe_separable(s, 0.5) or s.verb()
    if "stative" in verb.notes or "T" in verb.adjuncts:
        raise Reject
    clause = s.clause("modal", subject=you, verb=verb, negated=False)
    clause.tense = "present"
    please = both(draft, "please", "bitte")
    return please[0] + clause.english(to=True), please[1] + clause.german(draft, "first")


# With "to be"


def be_clause(s: Sampler, subject: NP, tense: str, negated: bool = False) -> Clause:
    draft = s.draft
    if negated:
        if draft.negations or subject.kind in ("indefinite", "counted"):
            raise Reject
        draft.negations = 1
    return Clause(subject, s.lexicon.verbs["be"], tense, "", negated)


def describe(s: Sampler, subject: NP, noun: Noun) -> Sides:
    """Returns a sentence with a predicative adjective, with "very", "too", a comparison or none of them."""
    draft = s.draft
    adjective = draft.draw(s.lexicon.told_of(noun))
    draft.adjective_nouns.append((adjective.lemma, noun.lemma))
    unit = draft.unit()
    english, german = plain(adjective.english, unit), [Word(adjective.german, (unit,), (adjective.lemma,))]
    roll = draft.dice.random()
    if roll < 0.22 and adjective.english_comparative:
        degree = draft.pick((("very", "sehr"), ("too", "zu")))
        word = both(draft, *degree)
        return word[0] + english, word[1] + german
    if roll < 0.45 and noun.kind in COMPARED and adjective.german_comparative and adjective.english_comparative:
        second = draft.draw(s.lexicon.members(noun.kind))
        if second == noun or adjective not in s.lexicon.fitting.get(second.english, ()):
            raise Reject
        draft.adjective_nouns.append((adjective.lemma, second.lemma))
        compared = noun_phrase(draft, second, "my" if second.kind == "kin" else "the", adjectives=0, owner="1s")
        if draft.chance(0.7):
            than = both(draft, "than", "als")
            english = plain(adjective.english_comparative, unit)
            german = [Word(adjective.german_comparative, (unit,), (adjective.lemma,))]
            return english + than[0] + compared.english, german + than[1] + compared.german("n")
        so, like = both(draft, "as", "so"), both(draft, "as", "wie")
        return so[0] + english + like[0] + compared.english, so[1] + german + like[1] + compared.german("n")
    return english, german


def noun_of(np: NP, s: Sampler) -> Noun:
    for word in np.german("n"):
        for lemma in word.lemmas:
            if lemma.startswith("n:"):
                return s.lexicon.nouns[lemma[2:]]
    raise Reject


COMPARED = ("obj", "clo", "fur", "veh", "dev", "pla", "ani", "plt", "pro", "per", "kin")
DESCRIBED = ("obj", "clo", "fur", "veh", "dev", "rea", "pla", "foo", "ani", "abs", "evt", "doo", "plt", "wor", "dri")


def is_adjective(s: Sampler) -> Sides:
    return fronted(s, adjective_clause(s))


def adjective_clause(s: Sampler, subject: NP | None = None, tense: str = "", short: bool = False) -> Clause:
    draft = s.draft
    if subject is None:
        kept, s.adjectives = s.adjectives, 0.05
        if draft.chance(0.35):
            np = s.person(subject=True)
        else:
            np = s.thing(draft.draw(s.lexicon.members(draft.pick(DESCRIBED))), subject=True)
        s.adjectives = kept
        if np.kind == "indefinite":
            raise Reject
    else:
        np = subject
    if np.kind in ("pronoun", "name"):
        word = draft.draw(s.lexicon.told_of_anyone())
        unit = draft.unit()
        predicate = plain(word.english, unit), [Word(word.german, (unit,), (word.lemma,))]
        if draft.chance(0.2) and word.english_comparative:
            very = both(draft, *draft.pick((("very", "sehr"), ("too", "zu"))))
            predicate = very[0] + predicate[0], very[1] + predicate[1]
    else:
        noun = noun_of(np, s)
        predicate = describe(s, np, noun)
    clause = be_clause(s, np, tense or draft.by_weight((("present", 7), ("past", 3))), draft.chance(0.12) and not short)
    clause.predicate = predicate
    if not short and draft.chance(0.12) and np.kind in ("pronoun", "name"):
        clause.time = s.time("neg-past" if clause.tense == "past" else "neg-prog")
    return clause.bind(draft)


def is_noun(s: Sampler) -> Sides:
    """Returns a profession: Anna is a good teacher; Anna ist eine gute Lehrerin. Its gender follows the subject."""
    draft = s.draft
    subject = s.person_name() if draft.chance(0.5) else pronoun(draft, draft.pick(("3m", "3f")))
    noun = draft.draw(s.lexicon.members("pro"))
    tense = draft.by_weight((("present", 6), ("past", 2), ("modal", 2)))
    if noun.english in ("neighbour", "colleague", "customer", "patient", "boss"):
        raise Reject  # these keep their article in German, unlike professions
    np = noun_phrase(draft, noun, "a", adjectives=0.35)
    if subject.owner == "3f":
        np = female(np, noun)
    whole = np.german
    if len(whole("n")) == 2:
        np.german = lambda case: whole(case)[1:]
    if tense == "modal":
        return wants_to_become(s, subject, np)
    clause = be_clause(s, subject, tense, draft.chance(0.15))
    clause.predicate_noun = np
    clause.predicate = (np.english, np.german("n"))
    clause = clause.bind(draft)
    return clause.english(), clause.german(draft, "second")


def female(np: NP, noun: Noun) -> NP:
    """Returns the phrase in the feminine: its determiner and adjectives agree, its noun takes -in."""
    female = Noun(
        noun.english, noun.english_plural, noun.notes["fem"], "f", noun.notes["fem"] + "nen", "per", {}, noun.weight
    )
    description = [word for word in np.german("n") if any(lemma.startswith("a:") for lemma in word.lemmas)]
    very = [word for word in np.german("n") if word.text == "sehr"]
    ein, core = np.german("n")[0], np.german("n")[-1]

    def german(case: str, kein: bool = False) -> Words:
        assert case == "n"
        words = [word._replace(text=feminine(word)) for word in description]
        head = ein._replace(text="eine")
        if kein and np.negated is not None:
            head = np.negated("n")[0]._replace(text="keine")
        return [head, *very, *words, core._replace(text=female.german)]

    return NP(np.english, german, "3s", "3s", "f", "indefinite", negated=lambda case: german(case, True), human=True)


def feminine(word: Word) -> str:
    """Returns the feminine nominative of the mixed declension from the masculine: guter, gute."""
    return word.text[:-1]


def wants_to_become(s: Sampler, subject: NP, np: NP) -> Sides:
    draft = s.draft
    want, become = draft.unit(), draft.unit()
    english = subject.english + plain("wants to", want) + [Word("become", (become,))] + np.english
    german = [*subject.german("n"), Word("will", (want,)), *np.german("n"), Word("werden", (become,))]
    return english, german


def is_where(s: Sampler) -> Sides:
    clause = where_clause(s)
    return fronted(s, clause)


def where_clause(s: Sampler, tense: str = "") -> Clause:
    draft = s.draft
    if draft.chance(0.55):
        subject = s.person(subject=True)
        place = s.place()
    else:
        subject = s.thing(draft.draw(s.lexicon.members(draft.pick(("obj", "clo", "rea", "ani")))), subject=True)
        place = s.spatial("d") if draft.chance(0.7) else s.place()
        if place.english[0].text == "at" and place.english[1].text == "home":
            raise Reject
    tense = tense or draft.by_weight((("present", 6), ("past", 4)))
    clause = be_clause(s, subject, tense, draft.chance(0.12))
    clause.place = place
    if draft.chance(0.25):
        clause.time = s.time("neg-past" if tense == "past" else "neg-prog")
    return clause.bind(draft)


def where_is(s: Sampler) -> Sides:
    draft = s.draft
    subject = s.fill(draft.pick(("P", "obj", "rea", "clo", "veh", "ani")), subject=True)
    if subject.kind in ("indefinite", "counted"):
        raise Reject
    clause = be_clause(s, subject, draft.by_weight((("present", 3), ("past", 1)))).bind(draft)
    if clause.tense == "past" and draft.chance(0.5):
        clause.time = s.time("neg-past")
    asked = both(draft, "where", "wo")
    return asked[0] + clause.english(question=True), clause.german(draft, "second", prefix=asked[1])


def age(s: Sampler) -> Sides:
    draft = s.draft
    subject = s.person(subject=True)
    if subject.person[1] == "p" or (subject.kind != "name" and draft.chance(0.3)):
        raise Reject
    clause = be_clause(s, subject, "present" if draft.chance(0.8) else "past")
    english, german = s.amount(("year", "years", "Jahre"), 3, 95)
    old = draft.unit()
    clause.predicate = ([*english, Word("old", (old,))], [*german, Word("alt", (old,), ("a:old",))])
    clause = clause.bind(draft)
    return clause.english(), clause.german(draft, "second")


def there_is(s: Sampler) -> Sides:
    """Returns a clause with "there is" (es gibt, with the accusative): there is a problem; es gibt ein Problem."""
    draft = s.draft
    np = s.fill(
        draft.by_weight((("foo", 2), ("obj,clo", 3), ("abs_h", 3), ("pla", 2), ("ani", 2), ("per", 2), ("evt", 2))),
        indefinite=True,
    )
    there, be = draft.unit(), draft.unit()
    past = draft.chance(0.3)
    plural = np.english_person == "3p"
    verb = ("were" if plural else "was") if past else ("are" if plural else "is")
    english, german = (
        [Word("there", (there,)), Word(verb, (be,))],
        [Word("es", (there,)), Word("gab" if past else "gibt", (be,))],
    )
    no = not past and np.negated is not None and draft.chance(0.15)
    german_np = np.german("a")
    english_np = np.english
    if no and np.negated is not None and np.english[0].text != "a":
        negation = draft.unit()
        german_np = np.negated("a")
        german_np[0] = german_np[0]._replace(units=(negation,))
        english_np = [Word("no", (negation,)), *english_np]
    where = s.place() if draft.chance(0.7) else PP([], [])
    if where.english and where.english[0].text == "at" and where.english[1].text == "home":
        raise Reject
    if where.english and draft.chance(0.3):
        return where.english + english + english_np, [*where.german, german[1], german[0], *german_np]
    return english + english_np + where.english, german + where.german + german_np


def weather(s: Sampler) -> Sides:
    draft = s.draft
    it = expletive(draft)
    if draft.chance(0.3):
        english, german = draft.pick(
            (("cold", "kalt"), ("warm", "warm"), ("hot", "heiß"), ("dark", "dunkel"), ("late", "spät"))
        )
        clause = be_clause(s, it, draft.pick(("present", "past")))
        predicate = both(draft, english, german)
        clause.predicate = predicate
        clause.time = s.time("neg-past" if clause.tense == "past" else "neg-prog") if draft.chance(0.4) else None
        if draft.chance(0.4):
            clause.place = s.place()
        clause = clause.bind(draft)
    else:
        verb = s.lexicon.verbs[draft.pick(("rain", "snow"))]
        tense = draft.pick(("progressive", "past", "future", "present"))
        clause = s.clause(tense, subject=it, verb=verb)
    return fronted(s, clause)


def expletive(draft: Draft) -> NP:
    unit = draft.unit()
    return NP([Word("it", (unit,))], lambda _: [Word("es", (unit,))], "3s", "3s", "n", "pronoun")


def hour(s: Sampler) -> Sides:
    draft = s.draft
    it = expletive(draft)
    clause = be_clause(s, it, "present").bind(draft)
    clause.predicate = s.hour()
    already = both(draft, "already", "schon") if draft.chance(0.4) else None
    clause.already = PP(*already) if already else None
    return clause.english(), clause.german(draft, "second")


def how_much(s: Sampler) -> Sides:
    draft = s.draft
    verb = s.lexicon.verbs["cost"]
    clause = s.clause("present", verb=verb, negated=False)
    if clause.subject.kind != "definite":
        raise Reject
    clause.predicate = None
    asked = both(draft, "how much", "wie viel")
    return asked[0] + clause.english(question=True), clause.german(draft, "second", prefix=asked[1], question=True)
