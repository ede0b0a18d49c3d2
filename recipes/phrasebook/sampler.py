"""Draws the parts of a sentence: noun phrases that fit their context, times, places and clauses."""

from .clauses import Clause, Object
from .lexicon import Name, Noun, Slot, Verb
from .morphology import english_number, german_number, number_stems
from .phrases import NP, PP, Draft, Reject, Word, Words, name, noun_phrase, plain, prepositional, pronoun, titled

PERSONS = (("3m", 5), ("3f", 5), ("1s", 5), ("1p", 4), ("3p", 3), ("2f", 2))
OWNERS = (("1s", 5), ("3m", 3), ("3f", 3), ("1p", 2), ("3p", 1))
UNITS = (("day", "Tagen"), ("week", "Wochen"), ("month", "Monaten"), ("year", "Jahren"))  # German in the dative plural
PARTS_OF_DAY = (("morning", "morgen"), ("evening", "abend"), ("afternoon", "nachmittag"))
SPATIAL = (("on", "auf"), ("under", "unter"), ("behind", "hinter"), ("next to", "neben"), ("in front of", "vor"))
ONLY_ONE = ("mother", "father", "husband", "wife", "mother-in-law", "father-in-law")
BARE_KINDS = ("spo", "lan", "sub")


class Sampler:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.lexicon = draft.lexicon
        self.adjectives = 0.26

    # People and things

    def person_name(self) -> NP:
        draft = self.draft
        if draft.chance(0.15):
            surname = draft.draw(self.lexicon.named("last"))
            return titled(draft, surname, draft.pick("mf"))
        return name(draft, draft.draw(self.lexicon.named("first")))

    def _place_name(self, kind: str) -> Name:
        return self.draft.draw(self.lexicon.named(kind))

    def _number(self, top: int = 12) -> int:
        draft = self.draft
        if draft.chance(0.1):
            return 13 + int(draft.dice.random() * 87)
        return 2 + int(draft.dice.random() ** 2 * (top - 1))

    def _phrase(self, noun: Noun, determiner: str, *, plural: bool = False, owner: str = "") -> NP:
        draft = self.draft
        possessor: NP | None = None
        if determiner == "my":
            owner = owner or draft.by_weight(OWNERS)
            if draft.informal and owner == "2f":
                owner = "2s"
        elif determiner == "name's":
            possessor = name(draft, draft.draw(self.lexicon.named("first")))
        elif determiner == "genitive":
            people = draft.by_weight((("pro", 3), ("per", 2), ("kin", 2)))
            head = draft.draw(self.lexicon.members(people))
            possessor = noun_phrase(
                draft, head, "my" if people == "kin" else "the", owner=draft.by_weight(OWNERS), adjectives=0
            )
        return noun_phrase(
            draft,
            noun,
            determiner,
            plural=plural,
            owner=owner or "3m",
            number=self._number(),
            possessor=possessor,
            adjectives=self.adjectives,
        )

    def person(self, *, subject: bool, group: str = "P") -> NP:
        draft = self.draft
        roll = draft.dice.random()
        if roll < (0.27 if subject else 0.16):
            return pronoun(draft, draft.by_weight(PERSONS))
        if roll < 0.5:
            return self.person_name()
        kind = draft.by_weight((("pro", 5), ("per", 4), ("kin", 4)))
        noun = draft.draw(self.lexicon.members(kind))
        if subject and noun.english == "baby":
            raise Reject
        if kind == "kin":
            determiner = draft.by_weight((("my", 12), ("the", 2), ("name's", 3)))
            several = draft.chance(0.1) and self.can_plural(noun) and noun.english not in ONLY_ONE
            return self._phrase(noun, determiner, plural=several)
        determiner = draft.by_weight(
            (("the", 24), ("a", 5 if not subject else 2), ("this", 2), ("many", 1), ("all", 1), ("number", 1))
            + ((("every", 1),) if subject else (("some", 1),))
            + ((("my", 2),) if noun.english in ("boss", "neighbour", "colleague", "doctor", "teacher") else ())
        )
        plural = determiner in ("many", "all", "number", "some") or (
            determiner in ("the", "this") and draft.chance(0.2)
        )
        return self._phrase(noun, determiner, plural=plural)

    @staticmethod
    def can_plural(noun: Noun) -> bool:
        return (
            noun.german_plural is not None
            and noun.english_plural is not None
            and not (noun.notes.keys() & {"plural", "english-plural", "german-plural"})
        )

    def thing(self, noun: Noun, *, subject: bool = False, owner: str = "", indefinite: bool = False) -> NP:
        """Returns a noun phrase for a thing or an animal."""
        draft = self.draft
        if noun.kind in ("bod", "wrk"):
            if subject:
                owner = draft.by_weight(OWNERS)
            if not owner:
                raise Reject
            single = "german-plural" in noun.notes or noun.english in ("head", "back", "nose", "stomach", "face")
            paired = not single and draft.chance(0.6)
            return self._phrase(noun, "my", plural=paired, owner=owner)
        if "the" in noun.notes:
            return self._phrase(noun, "the")
        if noun.kind in BARE_KINDS or (noun.kind == "mea" and draft.chance(0.5)):
            return noun_phrase(draft, noun, "bare", adjectives=0)
        if noun.kind == "mea":
            return self._phrase(noun, "the")
        if noun.kind == "ins":
            return noun_phrase(draft, noun, "instrument", adjectives=0)
        many = self.can_plural(noun)
        mass = not many
        if mass and "english-plural" not in noun.notes:
            choices: tuple[tuple[str, int], ...] = (("the", 6), ("bare", 5), ("my", 2), ("this", 1))
            if indefinite:
                choices = (("bare", 1),)
            if subject:
                choices = (("the", 6), ("my", 2), ("this", 1))
            return self._phrase(noun, draft.by_weight(choices), owner=owner)
        if indefinite:
            choices = (("a", 10), ("number", 3 if many else 0), ("many", 2 if many else 0))
        else:
            choices = (
                ("the", 20),
                ("a", 2 if subject else 14),
                ("my", 6 if noun.kind not in ("pla", "ani") else 2),
                ("this", 2),
                ("number", 2 if many else 0),
                ("many", 1 if many else 0),
                ("some", 1 if many and not subject else 0),
                ("every", 1 if many and subject else 0),
                ("all", 1 if many else 0),
                ("name's", 2),
                ("genitive", 2),
            )
        if noun.kind == "abs" or noun.kind == "pla":
            choices = tuple((d, w) for d, w in choices if d not in ("genitive", "name's", "my"))
        determiner = draft.by_weight(choices)
        plural = determiner in ("number", "many", "some", "all") or (
            many and determiner in ("the", "a", "this", "my") and draft.chance(0.2)
        )
        return self._phrase(noun, determiner, plural=plural, owner="" if determiner == "my" else owner)

    def fill(self, group: str, *, subject: bool = False, owner: str = "", indefinite: bool = False) -> NP:
        """Returns a noun phrase from a comma-separated list of groups. A class weighs as much as its words, and
        people weigh more."""
        draft = self.draft
        parts = group.split(",")
        weights: list[tuple[str, int]] = []
        for part in parts:
            if part == "P":
                weights.append((part, 200_000))
            elif part == "cit":
                weights.append((part, 40_000))
            else:
                weights.append((part, self.lexicon.members(part).sums[-1]))
        chosen = draft.by_weight(weights)
        if chosen == "P" and not indefinite:
            return self.person(subject=subject)
        if chosen == "cit":
            return name(draft, self._place_name("city"))
        noun = draft.draw(self.lexicon.members(chosen))
        if noun.kind in ("pro", "per", "kin"):
            if noun.kind == "kin":
                return self._phrase(noun, "a" if indefinite else "my")
            return self._phrase(noun, "a" if indefinite else "the")
        return self.thing(noun, subject=subject, owner=owner, indefinite=indefinite)

    # Places

    def place_noun(self, kinds: str = "pla") -> tuple[Noun, NP]:
        draft = self.draft
        noun = draft.draw(self.lexicon.members(kinds))
        determiner = draft.by_weight((("the", 24), ("a", 1), ("this", 1)))
        before, self.adjectives = self.adjectives, self.adjectives * 0.7
        phrase = self._phrase(noun, determiner)
        self.adjectives = before
        return noun, phrase

    def place(self) -> PP:
        """Returns a place: at the station, in Berlin, at home."""
        draft = self.draft
        roll = draft.dice.random()
        if roll < 0.18:
            kind = "city" if draft.chance(0.7) else "country"
            return prepositional(draft, "in", "in", "d", name(draft, self._place_name(kind)))
        if roll < 0.23:
            return PP(*self._both("at home", "zu Hause"))
        noun, phrase = self.place_noun()
        english, german, _ = noun.notes["at"].split("/")
        return prepositional(draft, english, german, "d", phrase)

    def spatial(self, case: str) -> PP:
        """Returns a position at furniture or a building: rest takes the dative, motion the accusative."""
        draft = self.draft
        english, german = draft.pick(SPATIAL)
        indoors = draft.chance(0.75)
        noun = draft.draw(self.lexicon.members("fur_s" if indoors else "bld"))
        if not indoors and english in ("on", "under"):
            raise Reject
        return prepositional(draft, english, german, case, self._phrase(noun, draft.by_weight((("the", 5), ("a", 1)))))

    def direction(self, kinds: str) -> PP:
        draft = self.draft
        roll = draft.dice.random()
        if roll < (0.2 if kinds == "pla" else 0.5 if kinds == "far" else 0.9):
            kind = "city" if draft.chance(0.6) else "country"
            return prepositional(draft, "to", "nach", "d", name(draft, self._place_name(kind)))
        if kinds != "isl_" and draft.chance(0.1):
            return PP(*self._both("home", "nach Hause"))
        noun, phrase = self.place_noun(kinds)
        german = noun.notes["at"].split("/")[2]
        return prepositional(draft, "to", german, "d" if german == "zu" else "a", phrase)

    def _both(self, english: str, german: str, lemma: str = "") -> tuple[Words, Words]:
        unit = self.draft.unit()
        return plain(english, unit), plain(german, unit, lemma=lemma)

    # Times

    def time(self, tag: str) -> PP:
        """Returns a time that fits `tag`: prog, past, fut, habit, modal or neg; neg-past etc. for a negated clause."""
        draft = self.draft
        wanted = set(tag.split("-"))
        roll = draft.dice.random()
        if roll < 0.42:
            word = draft.draw(self.lexicon.adverbs_of("time", *wanted))
            return PP(*self._both(word.english, word.german, word.lemma))
        if roll < 0.62:
            return self._weekday(wanted)
        if wanted & {"neg", "prog"}:
            raise Reject
        if roll < 0.72:
            return self.clock()
        if roll < 0.82:
            kind = draft.pick(("month", "season"))
            word = draft.draw(self.lexicon.adverbs_of(kind))
            preposition, unit = draft.unit(), draft.unit()
            return PP(
                [Word("in", (preposition,)), Word(word.english, (unit,))],
                [Word("im", (preposition,)), Word(word.german, (unit,), (word.lemma,))],
            )
        if roll < 0.92 and wanted & {"past", "fut"}:
            return self._ago("past" in wanted)
        if roll < 0.96 and "past" in wanted:
            preposition, unit = draft.unit(), draft.unit()
            year = str(1950 + int(draft.dice.random() * 75))
            return PP(
                [Word("in", (preposition,)), Word(year, (unit,))],
                [Word("im", (preposition,)), Word("Jahr", (preposition,)), Word(year, (unit,))],
            )
        if wanted & {"past", "fut"}:
            month = draft.draw(self.lexicon.adverbs_of("month"))
            day = str(1 + int(draft.dice.random() * 28))
            on, which, unit = draft.unit(), draft.unit(), draft.unit()
            return PP(
                [Word("on", (on,)), Word(month.english, (unit,)), Word(day, (which,))],
                [Word("am", (on,)), Word(day + ".", (which,)), Word(month.german, (unit,), (month.lemma,))],
            )
        raise Reject

    def _weekday(self, wanted: set[str]) -> PP:
        draft = self.draft
        day = draft.draw(self.lexicon.adverbs_of("weekday"))
        first, unit = draft.unit(), draft.unit()
        if "habit" in wanted:
            return PP(
                [Word("every", (first,)), Word(day.english, (unit,))],
                [Word("jeden", (first,)), Word(day.german, (unit,), (day.lemma,))],
            )
        if "prog" in wanted:
            raise Reject
        english, german = [Word("on", (first,)), Word(day.english, (unit,))], day.german
        if draft.chance(0.3):
            part, suffix = draft.pick(PARTS_OF_DAY)
            english.append(Word(part, (unit,)))
            german += suffix
        return PP(english, [Word("am", (first,)), Word(german, (unit,), (day.lemma,))])

    def _ago(self, past: bool) -> PP:
        draft = self.draft
        english, dative = draft.pick(UNITS)
        n = 2 + int(draft.dice.random() * 9)
        preposition, number, unit = draft.unit(), draft.unit(), draft.unit()
        amount = [Word(english_number(n), (number,)), Word(english + "s", (unit,))]
        german = [
            Word("vor" if past else "in", (preposition,)),
            Word(german_number(n), (number,), number_stems(n)),
            Word(dative, (unit,), ("t:" + english,)),
        ]
        return PP([*amount, Word("ago", (preposition,))] if past else [Word("in", (preposition,)), *amount], german)

    def hour(self) -> tuple[Words, Words]:
        """Returns a time of day: seven o'clock, half past seven (halb acht), a quarter past seven, 7:30."""
        draft = self.draft
        n = 1 + int(draft.dice.random() * 12)
        unit, part = draft.unit(), draft.unit()
        roll = draft.dice.random()
        after = n % 12 + 1
        if roll < 0.4:
            word = "ein" if n == 1 else german_number(n)
            return (
                [Word(english_number(n), (unit,)), Word("o'clock", (part,))],
                [Word(word, (unit,), number_stems(n)), Word("Uhr", (part,))],
            )
        if roll < 0.6:
            return (
                [Word("half", (part,)), Word("past", (part,)), Word(english_number(n), (unit,))],
                [Word("halb", (part,)), Word(german_number(after), (unit,), number_stems(after))],
            )
        if roll < 0.8:
            past = draft.chance(0.5)
            return (
                [*plain("a quarter " + ("past" if past else "to"), part), Word(english_number(n), (unit,))],
                [
                    *plain("Viertel " + ("nach" if past else "vor"), part),
                    Word(german_number(n), (unit,), number_stems(n)),
                ],
            )
        text = f"{n + 12 * (draft.chance(0.4) and n < 12)}:{draft.pick((10, 15, 20, 30, 40, 45, 50))}"
        return [Word(text, (unit,))], [Word(text, (unit,)), Word("Uhr", (unit,))]

    def clock(self) -> PP:
        at = self.draft.unit()
        english, german = self.hour()
        return PP([Word("at", (at,)), *english], [Word("um", (at,)), *german])

    def amount(self, unit: tuple[str, str, str], low: int, high: int) -> tuple[Words, Words]:
        """Returns an amount: two hours, zwei Stunden; 12 euros, 12 Euro."""
        draft = self.draft
        n = low + int(draft.dice.random() ** 2 * (high - low))
        digits = draft.chance(0.3)
        number, what = draft.unit(), draft.unit()
        english = str(n) if digits else english_number(n)
        german = str(n) if digits else german_number(n)
        stems = () if digits else number_stems(n)
        singular, plural, word = unit
        return (
            [Word(english, (number,)), Word(singular if n == 1 else plural, (what,))],
            [Word(german, (number,), stems), Word(word, (what,))],
        )

    # Clauses

    def verb(self, purpose: str = "plain") -> Verb:
        return self.draft.draw(self.lexicon.verbs_for(purpose))

    def objects(self, verb: Verb, subject: NP) -> list[Object]:
        found: list[Object] = []
        for slot in verb.slots:
            indefinite = "have" in verb.notes or (verb.english == "make")
            np = self._object(slot, subject, indefinite)
            found.append(Object(np, slot.case, slot.english, slot.german))
        if "generic" in verb.notes and found[0].np.kind == "indefinite" and found[0].np.person == "3s":
            slot = verb.slots[0]
            if slot.group and found[0].np.english[0].text == "a":
                raise Reject
        return found

    def _object(self, slot: Slot, subject: NP, indefinite: bool) -> NP:
        np = self.fill(slot.group, owner=subject.owner, indefinite=indefinite)
        if np.kind == "pronoun" and self._same(np, subject):
            raise Reject
        return np

    @staticmethod
    def _same(one: NP, other: NP) -> bool:
        """Returns whether two noun phrases must not occur in one clause: I and me, I and us, he and him."""
        return one.person[0] == other.person[0] and (one.person[0] != "3" or other.kind == "pronoun")

    def clause(
        self,
        tense: str,
        *,
        subject: NP | None = None,
        verb: Verb | None = None,
        negated: bool | None = None,
        length: float = 1.0,
        time: bool = True,
    ) -> Clause:
        """Returns a clause in a tense; `length` scales the probability of each adjunct."""
        draft = self.draft
        verb = verb or self.verb()
        stative = "stative" in verb.notes
        if tense == "progressive" and stative:
            tense = "present"
        if stative and tense in ("likes", "perfect", "passive-present"):
            raise Reject
        if "once" in verb.notes and tense in ("present", "likes", "perfect"):
            raise Reject
        if "accident" in verb.notes and tense in ("modal", "modal-past", "likes"):
            raise Reject
        modal = ""
        if tense in ("modal", "modal-past", "likes"):
            if "P" not in verb.subject.split(",") or (stative and tense != "modal"):
                raise Reject
            if stative and verb.slots:
                raise Reject
        if tense == "modal":
            modal = draft.by_weight(
                (("can", 6), ("must", 4), ("have to", 3), ("want", 6), ("should", 4), ("may", 2), ("would", 4))
            )
        elif tense == "modal-past":
            modal = draft.by_weight((("can", 3), ("must", 4), ("want", 4), ("may", 2)))
        if subject is None:
            people_only = tense in ("modal", "modal-past", "likes")
            subject = self.fill("P" if people_only else verb.subject, subject=True)
        elif verb.subject.split(",")[0] != "P" and verb.subject != "es":
            raise Reject
        objects = self.objects(verb, subject)
        if negated is None:
            negated = draft.chance(0.13)
        if negated and (draft.negations or tense in ("perfect", "likes") or "generic" in verb.notes):
            negated = False
        if negated and modal == "must" and tense == "modal":
            modal = "have to"  # "must not" forbids; "muss nicht" means "need not"
        clause = Clause(subject, verb, tense, modal, negated, objects)
        clause.bare_object = "bare" in verb.notes
        self._adjuncts(clause, length, time)
        if negated:
            draft.negations = 1
        return clause.bind(draft)

    def _adjuncts(self, clause: Clause, length: float, time: bool) -> None:
        draft, verb, tense = self.draft, clause.verb, clause.tense
        allowed = verb.adjuncts
        if "D" in allowed:
            clause.direction = self.direction(verb.notes.get("goes", "") or "pla")
        elif "X" in allowed:
            clause.direction = prepositional(draft, "to", "nach", "d", name(draft, self._place_name("city")))
        elif "P" in allowed:
            clause.direction = self.spatial("a")
        if "L" in allowed:
            clause.place = self.place()
        elif "S" in allowed:
            clause.place = self.spatial("d")
        elif "l" in allowed and draft.chance(0.3 * length):
            clause.place = self.place()
        if "E" in allowed:
            clause.predicate = self.amount(("euro", "euros", "Euro"), 2, 99)
        if "T" in allowed:
            clause.predicate = self.amount(("hour", "hours", "Stunden"), 2, 12)
        if "c" in allowed and draft.chance(0.15 * length):
            companion = self.person(subject=False)
            if companion.kind == "pronoun" and self._same(companion, clause.subject):
                raise Reject
            clause.companion = prepositional(draft, "with", "mit", "d", companion)
        if clause.companion is None and "by" in allowed and draft.chance(0.5):
            noun = draft.draw(self.lexicon.members("car,train,bus,ship"))
            by, unit = draft.unit(), draft.unit()
            german = noun_phrase(draft, noun, "the", adjectives=0).german("d")
            clause.companion = PP(
                [Word("by", (by,)), Word(noun.english, (unit,))],
                [Word("mit", (by,)), *[w._replace(units=(unit,)) for w in german]],
            )
        if (
            verb.manner
            and draft.chance(0.22 * length)
            and not clause.negated
            and not clause.companion
            and clause.kein() is None
        ):
            fits = all(o.german or o.case == "d" or o.np.definite or o.np.kind in ("pronoun",) for o in clause.objects)
            if fits and tense not in ("likes",):
                words = self.lexicon.adverbs_of("manner", verb.manner)
                if words:
                    word = draft.draw(words)
                    clause.manner = PP(*self._both(word.english, word.german, word.lemma))
        tag = {
            "progressive": "prog",
            "past": "past",
            "modal-past": "past",
            "passive-past": "past",
            "future": "fut",
            "present": "habit",
            "likes": "habit",
            "modal": "modal",
            "passive-present": "prog",
        }.get(tense, "")
        if "stative" in verb.notes and tense == "present":
            tag = ""
        if "event" in verb.notes and tense == "progressive":
            tag = ""
        if tense == "present" and tag and not clause.negated and draft.chance(0.4 * min(length, 1)):
            word = draft.draw(self.lexicon.adverbs_of("freq"))
            if word.english not in ("never", "rarely") or clause.subject.kind not in ("indefinite", "counted"):
                clause.frequency = PP(*self._both(word.english, word.german, word.lemma))
        elif tense == "perfect":
            word_pair = draft.pick((("already", "schon"), ("just", "gerade"), ("never", "nie")))
            clause.already = PP(*self._both(*word_pair))
            if word_pair[0] == "never":
                if clause.subject.kind in ("indefinite", "counted"):
                    raise Reject
                clause.frequency, clause.already = clause.already, None
        elif clause.manner and clause.manner.german[0].text == "früh":
            pass  # "morgen früh" is tomorrow morning, not early tomorrow
        elif tag and time and draft.chance(0.45 * length):
            clause.time = self.time("neg-" + tag if clause.negated else tag)
