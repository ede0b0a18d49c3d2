"""Sentences of two clauses, infinitives with zu, relative clauses, and the passive."""

from . import morphology as m
from .clauses import Clause, Object
from .phrases import NP, Reject, Word, Words, plain, prepositional, pronoun
from .sampler import Sampler
from .simple import (
    Sides,
    adjective_clause,
    be_clause,
    both,
    expletive,
    fronted,
    maybe_separable,
    noun_of,
    separable,
    with_comma,
)

# Two clauses


def short_clause(s: Sampler, tense: str, subject: NP | None = None, adjectives: float = 0.3) -> Clause:
    """Returns a short clause that may be subordinate."""
    draft = s.draft
    kept, s.adjectives = s.adjectives, 0.14
    be = {"progressive": "present", "present": "present", "past": "past", "preterite": "past"}.get(tense)
    if be and draft.chance(adjectives):
        clause = adjective_clause(s, subject, be, short=True)
    else:
        clause = s.clause(tense, subject=subject, verb=maybe_separable(s), length=0.35, time=draft.chance(0.5))
    s.adjectives = kept
    return clause


def joined(s: Sampler, main: Clause, conjunction: tuple[str, str], sub: Clause, front: bool) -> Sides:
    """Returns a main and a subordinate clause in either order. German has a comma in both orders, English in one."""
    draft = s.draft
    word = both(draft, *conjunction)
    english_sub = word[0] + sub.english()
    german_sub = word[1] + sub.german(draft, "final")
    if front:
        german = with_comma(german_sub) + main.german(draft, "first")
        return with_comma(english_sub) + main.english(), german
    return main.english() + english_sub, with_comma(main.german(draft, "second")) + german_sub


def taken_up(s: Sampler, main: Clause) -> NP | None:
    """Returns a pronoun for the subject of the main clause, where its person is clear."""
    owner = main.subject.owner
    if not owner or not main.subject.human or main.subject.kind in ("indefinite", "counted"):
        return None
    return pronoun(s.draft, owner) if owner in m.PRONOUNS else None


NOW = ("progressive", "present", "modal")
THEN = ("past", "past", "modal-past")


def because(s: Sampler) -> Sides:
    draft = s.draft
    times = NOW if draft.chance(0.5) else THEN
    main = s.clause(draft.pick(times), length=0.4, verb=maybe_separable(s, 0.15))
    subject = taken_up(s, main) if draft.chance(0.5) else None
    sub = short_clause(s, draft.pick(times), subject, adjectives=0.4)
    conjunction = draft.pick((("because", "weil"), ("because", "weil"), ("although", "obwohl")))
    return joined(s, main, conjunction, sub, draft.chance(0.2) and subject is None)


def conditional(s: Sampler) -> Sides:
    draft = s.draft
    sub = short_clause(s, "present")
    if sub.frequency or sub.negated or (sub.time and "be" not in sub.verb.notes):
        raise Reject
    main = s.clause(draft.pick(("modal", "future", "present")), length=0.4)
    if main.time or main.frequency:
        raise Reject
    conjunction = draft.pick((("if", "wenn"), ("if", "wenn"), ("as soon as", "sobald")))
    return joined(s, main, conjunction, sub, draft.chance(0.5))


def meanwhile(s: Sampler) -> Sides:
    draft = s.draft
    first, second = (s.clause("progressive", length=0.4, verb=maybe_separable(s), negated=False) for _ in "ab")
    if first.tense != "progressive" or second.tense != "progressive":
        raise Reject
    return joined(s, first, ("while", "während"), second, draft.chance(0.4))


def before(s: Sampler) -> Sides:
    draft = s.draft
    past = draft.chance(0.5)
    sub = s.clause("past" if past else "present", verb=maybe_separable(s, 0.4), length=0.3, time=False, negated=False)
    main = s.clause("past" if past else draft.pick(("modal", "future")), length=0.4, time=False, negated=False)
    if sub.frequency or main.frequency or "stative" in sub.verb.notes:
        raise Reject
    return joined(s, main, ("before", "bevor"), sub, draft.chance(0.3))


def when(s: Sampler) -> Sides:
    """Returns a clause with "when" and a past: als, the only construction with the preterite of every verb."""
    draft = s.draft
    sub = short_clause(s, "preterite", adjectives=0.25)
    main = s.clause(draft.pick(("past", "past", "modal-past")), length=0.4, time=False)
    if sub.negated or sub.time:
        raise Reject
    return joined(s, main, ("when", "als"), sub, draft.chance(0.5))


def that(s: Sampler) -> Sides:
    """Returns a clause after "that" or "whether": weiß, dass; fragt, ob."""
    draft = s.draft
    note = "that" if draft.chance(0.75) else "whether"
    verb = s.verb(note)
    past = draft.chance(0.3) and "stative" not in verb.notes
    negated = draft.chance(0.12) and verb.english not in ("say", "claim", "hope")
    subject = s.person(subject=True)
    main = s.clause("past" if past else "present", subject=subject, verb=verb, negated=negated, time=False)
    if main.frequency or (verb.key == "know (that)" and main.negated):
        raise Reject
    tense = (
        draft.pick(("past", "modal-past"))
        if past
        else draft.pick(("progressive", "present", "past", "future", "modal"))
    )
    sub = short_clause(s, tense)
    word = ("that", "dass") if note == "that" else ("whether", "ob")
    return joined(s, main, word, sub, False)


def indirect(s: Sampler) -> Sides:
    """Returns an indirect question: I know where Anna works; Ich weiß, wo Anna arbeitet."""
    draft = s.draft
    main = s.clause("present", subject=s.person(subject=True), verb=s.lexicon.verbs["know (that)"], time=False)
    sub = s.clause(draft.pick(("present", "past", "progressive")), verb=maybe_separable(s), negated=False, length=0.6)
    if sub.frequency:
        raise Reject
    if sub.direction and "D" in sub.verb.adjuncts:
        sub.direction = None
        word = ("where", "wohin")
    elif sub.place:
        sub.place = None
        word = ("where", "wo")
    elif draft.chance(0.5) and sub.predicate is None:
        sub.time = None
        word = ("when", "wann")
    else:
        word = ("why", "warum")
    return joined(s, main, word, sub, False)


def infinitive(s: Sampler) -> Sides:
    """Returns an infinitive: tries to open the door; versucht, die Tür zu öffnen."""
    draft = s.draft
    verb = s.verb("to")
    subject = s.person(subject=True)
    past = draft.chance(0.4) and "stative" not in verb.notes
    main = s.clause(
        "past" if past else "present" if "stative" in verb.notes else "progressive",
        subject=subject,
        verb=verb,
        negated=False,
        time=False,
    )
    if main.frequency:
        raise Reject
    inner = s.clause("modal", subject=subject, verb=maybe_separable(s, 0.4), negated=False, length=0.5, time=False)
    to = draft.unit()
    english = [*main.english(), Word("to", (to, inner.v)), *inner.english(to=True)]
    return english, with_comma(main.german(draft, "second")) + inner.german(draft, "zu")


def it_is_to(s: Sampler) -> Sides:
    draft = s.draft
    clause = be_clause(s, expletive(draft), draft.by_weight((("present", 3), ("past", 1))), draft.chance(0.2))
    words = draft.pick(
        (
            ("important", "wichtig"),
            ("difficult", "schwierig"),
            ("easy", "einfach"),
            ("dangerous", "gefährlich"),
            ("necessary", "notwendig"),
            ("boring", "langweilig"),
            ("possible", "möglich"),
        )
    )
    unit = draft.unit()
    clause.predicate = (plain(words[0], unit), plain(words[1], unit, lemma="a:" + words[0]))
    clause = clause.bind(draft)
    who = NP([], lambda _: [], "3s", "3s", "m", "definite", human=True)
    inner = s.clause("modal", subject=who, verb=maybe_separable(s, 0.4), negated=False, length=0.5, time=False)
    if "refl" in inner.verb.notes:
        raise Reject
    to = draft.unit()
    english = [*clause.english(), Word("to", (to, inner.v)), *inner.english(to=True)]
    return english, with_comma(clause.german(draft, "second")) + inner.german(draft, "zu")


def relative_pronoun(np: NP, case: str) -> str:
    table = {"n": "der die das die", "a": "den die das die", "d": "dem der dem denen"}[case].split()
    return table["mfnp".index(np.gender)]


SEEN = ("see", "know", "meet", "help", "look for", "visit", "thank", "invite", "love")


def relative(s: Sampler) -> Sides:
    """Returns a relative clause: the man who works here; der Mann, der hier arbeitet."""
    draft = s.draft
    human = draft.chance(0.5)
    head = s.person(subject=True) if human else s.fill(draft.pick(("rea", "obj", "veh", "clo", "dev")), subject=True)
    if head.kind in ("pronoun", "name") or head.english[0].text in ("every", "all", "no"):
        raise Reject
    if head.english[0].text not in ("the", "a", "this", "these"):
        raise Reject
    unit = draft.unit()
    kept, s.adjectives = s.adjectives, 0.1
    if human:
        who = NP(
            [Word("who", (unit,))],
            lambda case: [Word(relative_pronoun(head, case), (unit,))],
            head.person,
            head.english_person,
            head.gender,
            "definite",
            human=True,
            owner=head.owner,
        )
        tense = draft.pick(("progressive", "past", "present"))
        inner = s.clause(tense, subject=who, verb=maybe_separable(s), length=0.6, time=draft.chance(0.4))
        relative: Sides = (inner.english(), inner.german(draft, "final"))
    else:
        inner_verb = draft.draw(s.lexicon.verbs_of(noun_of(head, s)))
        inner = s.clause(
            draft.pick(("progressive", "past", "past")),
            verb=inner_verb,
            length=0.3,
            time=draft.chance(0.3),
            negated=False,
        )
        inner.objects = []
        that: Words = [Word("that", (unit,))]
        der = [Word(relative_pronoun(head, "a"), (unit,))]
        relative = (that + inner.english(), der + inner.german(draft, "final"))
    s.adjectives = kept
    if human and draft.chance(0.6):
        main = s.clause(draft.pick(("progressive", "past", "present")), length=0.3, subject=nameless(s), negated=False)
        if main.subject.human is False:
            raise Reject
        main.subject = head
        english = head.english + relative[0]
        tail = main.english(subject=False)
        german_tail = main.german(draft, "second")[len(head.german("n")) :]
        return english + tail, with_comma(head.german("n")) + with_comma(relative[1]) + german_tail
    if human:
        verb = s.lexicon.verbs[draft.pick(SEEN)]
        subject = (
            pronoun(draft, draft.by_weight((("1s", 3), ("1p", 2), ("3m", 1), ("3f", 1))))
            if draft.chance(0.6)
            else s.person_name()
        )
        tense = (
            draft.pick(("present", "past", "past"))
            if "stative" in verb.notes
            else draft.pick(("progressive", "past", "modal"))
        )
        case = verb.slots[0].case
        main = Clause(subject, verb, tense, "want" if tense == "modal" else "", False, [Object(head, case)]).bind(draft)
        ending = main.german(draft, "second")
        english = main.english() + relative[0]
        # After the verb at the end of the clause, if there is one.
        return english, with_comma(ending) + relative[1]
    main = adjective_clause(s, head, draft.pick(("present", "past")), short=True)
    tail = main.english(subject=False)
    german_tail = main.german(draft, "second")[len(head.german("n")) :]
    return head.english + relative[0] + tail, with_comma(head.german("n")) + with_comma(relative[1]) + german_tail


def nameless(s: Sampler) -> NP:
    """Returns a placeholder that says that a person acts; the real subject replaces it."""
    return NP([], lambda _: [], "3s", "3s", "m", "definite", human=True)


def passive(s: Sampler) -> Sides:
    """Returns a passive: The house was built in 1998; Das Haus wurde im Jahr 1998 gebaut."""
    draft = s.draft
    verb = separable(s) if draft.chance(0.25) else draft.draw(s.lexicon.passives())
    if verb not in s.lexicon.passives().items:
        raise Reject
    subject = s.fill(verb.slots[0].group, subject=True)
    if subject.kind in ("pronoun",):
        raise Reject
    tense = draft.by_weight((("passive-past", 4), ("passive-present", 2), ("passive-modal", 2)))
    clause = Clause(subject, verb, tense)
    clause.time = (
        s.time({"passive-past": "past", "passive-present": "prog", "passive-modal": "modal"}[tense])
        if draft.chance(0.6)
        else None
    )
    if tense == "passive-past" and draft.chance(0.4):
        by = s.person(subject=False)
        if by.kind == "pronoun":
            raise Reject
        clause.companion = prepositional(draft, "by", "von", "d", by)
    clause = clause.bind(draft)
    return fronted(s, clause)


def coordination(s: Sampler) -> Sides:
    """Returns two statements, joined by und without a comma or by aber with one."""
    draft = s.draft
    times = NOW if draft.chance(0.5) else ("past", "past", "modal-past")
    first = s.clause(draft.pick(times), length=0.25)
    second = s.clause(draft.pick(times), length=0.25, verb=maybe_separable(s))
    but = draft.chance(0.4)
    word = both(draft, "but" if but else "and", "aber" if but else "und")
    english, german = first.english(), first.german(draft, "second")
    return (
        (with_comma(english)) + word[0] + second.english(),
        (with_comma(german) if but else german) + word[1] + second.german(draft, "second"),
    )
