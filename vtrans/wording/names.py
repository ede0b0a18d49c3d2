"""Names that a model cannot know: which ones a line has, and how a translation has them. Measures count as names.

Names are found in English lines. A word with a capital that the vocabulary spells in several subwords is one. At the
beginning of a sentence and in a heading, it must be no English word. It is copied, or has its German form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import dropwhile
from typing import NamedTuple

import regex

from vtrans.text.case import SentenceCase, lower
from vtrans.text.languages import Languages, base
from vtrans.text.number_words import SWAPPED_MARKS, swaps_marks
from vtrans.text.sentences import begins_sentence, ends_in_abbreviation
from vtrans.text.vocabulary import Vocabulary
from vtrans.wording.german_forms import german_forms
from vtrans.wording.measures import measures
from vtrans.wording.name_lists import is_english_word, is_unchanged, phrases, table

_WORD = regex.compile(
    r"(?<![\w\p{M}@#./\\-])(?<!\w['\u2019])(?!I['\u2019](?:D|LL|M|VE)\b)(?:(?:\p{Lu}['\u2019])?\p{Lu}[\p{L}\p{M}]+(?:-\p{Lu}[\p{L}\p{M}]+)*+"
    r"|(?!is|my|in|of|to|we|he|me|so|do|go|it|on|at|by|or|as|an|am|be)(?:\p{Ll}{1,2}|mac|open)"
    r"(?:\p{Lu}\p{Ll}{2,}|\p{Lu}{2,})\p{L}*+)"
    r"(?![\p{L}\p{M}\d_@/\\-]|['\u2019](?!s(?!\w))\w|\.\w)"
)
# Initials, St. and Mt. with the names around them, and with a word after a genitive, as in `St. Patrick's Day`.
_WITH_INITIALS = regex.compile(
    r"(?<![\w.@/-])(?:(?<first>\p{Lu}\p{Ll}+) )?"
    r"(?<head>(?!U\.[SKN]\.|P\.[SO]\.|N\.B\.|[AD]\.[DC]\.)\p{Lu}\.(?:[ -]?\p{Lu}\.){0,4}+|(?<saint>[SFM]t\.?|Mount))"
    r" (?!I\b)(?<last>\p{Lu}[\p{L}\p{M}-]+)(?:(?<more>['\u2019]s \p{Lu}[\p{L}\p{M}]+)| (?<next>\p{Lu}[\p{L}\p{M}-]+))?"
)
_CAPITAL = regex.compile(r"(?<![\w-])\p{Lu}[\p{L}\p{M}'\u2019-]*+")
_GENITIVE = regex.compile(r"['\u2019]s(?!\w)")
_SMALL_IN_TITLES = re.compile("an?|and|as|at|but|by|for|from|in|into|of|off|on|or|over|per|the|to|up|vs|with")
_TITLES = {
    "Aunt": "Tante", "Captain": "Kapit\u00e4n", "Dr": "Dr.", "King": "K\u00f6nig", "Lady": "Lady", "Lord": "Lord",
    "Miss": "Frau", "Mr": "Herr", "Mrs": "Frau", "Ms": "Frau", "Pope": "Papst", "Prince": "Prinz",
    "Princess": "Prinzessin", "Prof": "Prof.", "Professor": "Professor", "Queen": "K\u00f6nigin",
    "Sergeant": "Sergeant", "Sgt": "Sergeant", "Sir": "Sir", "Uncle": "Onkel",
}  # fmt: skip
_GREETINGS = {
    "Aunt": "Liebe", "Miss": "Sehr geehrte", "Mr": "Sehr geehrter", "Mrs": "Sehr geehrte", "Ms": "Sehr geehrte",
    "Uncle": "Lieber",
}  # fmt: skip
_OFFICES = "King|Lord|Pope|Prince|Queen"  # which may be last names: Martin Luther King Jr.
_TITLE = regex.compile(
    rf"(?<!\w)(?<!(?!The)\p{{Lu}}[\p{{L}}.]* (?={_OFFICES}))({'|'.join(sorted(_TITLES, key=len, reverse=True))})\.? $"
)
_PARTICLE = r"(?:d[aei]|d[ao]s|del|della|du|v[ao]n|bin|bint|ibn|y|l[ae]|las|los|el|der|den)"
# Names with such words (`Charles de Gaulle`, `Ursula von der Leyen`), `al-` or \u00d3, and the names before them.
_WITH_PARTICLES = regex.compile(
    rf"(?<![\w.@/-])(?<first>(?:(?!(?:De|Van|Von|{'|'.join(_TITLES)}) )\p{{Lu}}[\p{{L}}\p{{M}}'\u2019-]+ ){{0,2}})"
    rf"(?<particles>(?:{_PARTICLE} ){{1,3}}|(?:De|Van|Von) (?:l[ae]|las|los|der|den|de) |\u00d3 "
    r"|(?=[AEae][dlnrstz]h?-\p{Lu}))"
    r"(?<last>(?:[AEae][dlnrstz]h?-)?+\p{Lu}[\p{L}\p{M}'\u2019-]+)"
)
_ALONE = regex.compile(r"(?:d[ei]|d[ao]s|del|della|v[ao]n) |.* .* |[^a-z]*")  # particles that need no name before them
_ARTICLE = regex.compile(r"\b(?:[Tt]he|[Aa]n?|[Tt]h[eo]se|[Tt]his|[Hh]is|[Hh]er|[Mm]y|[Oo]ur) $")
_AFTER_NAME = regex.compile(r" \p{Lu}\p{Ll}|['\u2019]s\b|,? (?:is|was|has|had|will|can|can't|said|says|did|does)\b")
_GREETING = regex.compile(r"(?:Best|Bye|Cheers|Dear|Goodbye|Hello|Hey|Hi|Love|Regards|Thanks),? ")
_ADJECTIVE = regex.compile(r".{3,}(?:ian|[^l]ean|ese|ish|ism)s?")
# What stands before a man as an object, who then is Herrn.
_BEFORE_OBJECT = regex.compile(
    r"\b(?i:(?!(?:am|and|are|as|because|but|can|comes?|could|dear|did|do|does|evening|goes|had|has|have|hello|here|hey|hi"
    r"|if|is|may|might|morning|must|no|or|shall|should|since|so|than|thanks|that|then|there|was|welcome|were|when|where"
    r"|whether|while|will|would|yes|you)\b)\w+) $"
)
_STREET = regex.compile(
    r"(?<!\w)(?:\d{1,5}[A-Za-z]?,? (?:\p{Lu}[\p{L}'\u2019.]+ ){1,3}"
    r"(?:Street|St|Road|Rd|Avenue|Ave|Lane|Drive|Square|Blvd)"
    r"|(?!An?\b|Our\b|My\b|Th)\p{Lu}[\p{L}'\u2019]+ (?:Street|Road|Avenue|Boulevard)"
    r"|\p{Lu}\p{L}+(?:-\p{Lu}\p{L}+)*(?:stra\u00dfe|strasse|str\.|platz|weg|gasse|allee) \d{1,4}[a-z]?)(?![\w-])"
)
# Words in quotation marks that are spoken of, as in: What does "serendipity" mean? How do you spell "receipt"?
_SORT = "word|verb|noun|adjective|adverb|pronoun|preposition|abbreviation|acronym|synonym|plural|opposite"
_MENTION = r"([\p{L}'\u2019-]++(?: [\p{L}'\u2019-]++){0,3}+)"
_MENTIONED = regex.compile(
    rf"(?<=\b(?:{_SORT}|term|spell|pronounce|difference between(?: [\"\u201c][^\"\u201c\u201d]+[\"\u201d] and)?"
    rf"|(?:plural|opposite|meaning|spelling|pronunciation|translation|definition|synonym) of) [\"\u201c])"
    rf"{_MENTION}(?=[\"\u201d])|(?<=[\"\u201c]){_MENTION}"
    rf"(?=[\"\u201d] (?:means?\b|rhymes with|stands for|(?:(?:is|as) )?an? (?:\w+ )?(?:{_SORT})\b|in \p{{Lu}}\w+\?))"
)
_GREETED = regex.compile(r"Dear ((\p{Lu}\p{Ll}+)(?: \p{Lu}\p{Ll}+)?)(?=[,!]?$)")
_PARTS = re.compile(r"Al|D[ei]|Del|El|L[ae]|L[ao]s|New|San|Santa|Sri|V[ao]n")  # of names
_OTHER_SCRIPTS = re.compile(
    "a[mr]|b[egn]|el|fa|gu|h[eiy]|ja|k[akmnoy]|lo|m[klnry]|ne|or|p[as]|ru|s[dir]|t[aehgi]|u[gkr]|yi|zh"
)
_BEFORE = 40  # characters before a word that show whether it begins a sentence
_REGION = regex.compile(r"\b(?:Ancient|Central|Great|Lower|New|Saudi|Upper|(?:North|South|East|West)(?:ern)?) $")


class Name(NamedTuple):
    """Where a name is in a line, and how a translation has it."""

    begin: int
    end: int
    translation: str

    def holds(self, begin: int, end: int) -> bool:
        """Returns whether a part of the line is a part of the name."""
        return self.begin <= begin and end <= self.end

    def is_outside(self, begin: int, end: int) -> bool:
        """Returns whether the name and a part of the line share nothing."""
        return self.end <= begin or end <= self.begin


class _Word(NamedTuple):
    begin: int
    end: int
    form: str
    """How the translation has it."""
    is_name: bool
    """Whether it is a name by itself: not a part such as `New`, nor an English word where any word has a
    capital."""


class Names:
    """Finds measures in lines of these languages, names that a vocabulary spells in several subwords, names with a
    title, and words that are spoken of."""

    def __init__(self, vocab: Vocabulary, languages: Languages) -> None:
        self._vocab, self._in_german = vocab, base(languages.tgt) == "de"
        self._has_names = base(languages.src) == "en" and not _OTHER_SCRIPTS.fullmatch(base(languages.tgt))
        self._case = SentenceCase(vocab, languages.src)
        self._marks = SWAPPED_MARKS if swaps_marks(languages) else {}

    def of(self, line: str) -> Iterator[Name]:
        """Yields the measures, names and German forms of a line. Of two that overlap, the longer one counts."""
        names = [Name(*form) for form in german_forms(line)] if self._has_names and self._in_german else []
        names += [Name(*measure) for measure in measures(line, self._marks)]
        if self._has_names:
            names += self._known_phrases(line) if self._in_german else []
            names += [Name(match.start(), match.end(), match[0]) for match in _MENTIONED.finditer(line)]
            if self._in_german and (greeted := _GREETED.match(line)) and is_unchanged(greeted[2]):
                names.append(Name(0, greeted.end(), f"{'Guten Tag' if ' ' in greeted[1] else 'Hallo'} {greeted[1]}"))
            names += self._named(line)
            if line[1:] != line[1:].lower():  # with more capitals than that of a sentence
                names += [Name(match.start(), match.end(), match[0]) for match in _STREET.finditer(line)]
                names += self._with_particles(line)
                names += self._with_initials(line)
        found = list[Name]()
        for name in sorted(names, key=lambda name: name.begin):
            if not found or found[-1].end <= name.begin:
                found.append(name)
            elif found[-1].end - found[-1].begin < name.end - name.begin:
                found[-1] = name
        yield from found

    def _known_phrases(self, line: str) -> Iterator[Name]:
        for match in _CAPITAL.finditer(line):
            for name, form in phrases().get(match[0], ()):
                end = match.start() + len(name)
                if line.startswith(name, match.start()) and not line[end : end + 1].isalnum():
                    yield from self._name(line, [_Word(match.start(), end, form, is_name=True)])
                    break

    def _with_particles(self, line: str) -> Iterator[Name]:
        for match in _WITH_PARTICLES.finditer(line):
            words = dropwhile(lambda word: is_english_word(word) and not is_unchanged(word), match["first"].split())
            first = "".join(f"{word} " for word in words)
            if first or _ALONE.fullmatch(match["particles"]):
                begin, end = match.start("particles") - len(first), match.end()
                yield from self._name(line, [_Word(begin, end, line[begin:end], is_name=True)])

    def _with_initials(self, line: str) -> Iterator[Name]:
        for match in _WITH_INITIALS.finditer(line):
            first, last, is_saint = match["first"], match["last"], match["saint"] and not match["first"]
            # `We need plan B. After that, ...` has no initial: the vocabulary has `after`.
            if is_saint or match["more"] or self._is_no_word(last):
                is_whole = first and (is_unchanged(first) or self._is_rare(first))
                begin = match.start() if is_whole else match.start("head")
                end = match.end("last") if match["next"] and not self._is_no_word(match["next"]) else match.end()
                yield from self._name(line, [_Word(begin, end, line[begin:end], is_name=True)])

    def _named(self, line: str) -> Iterator[Name]:
        """Yields the names of a line. At the beginning of a sentence and in a heading, whose words mostly begin with
        capitals, an English word is none by itself, but may follow one: Peter Carpenter."""
        words = line.split()
        small = [word for word in words if word[:1].islower()]
        is_heading = 2 * len(small) < len(words) and all(map(_SMALL_IN_TITLES.fullmatch, small))
        emphasized, run = self._case.emphasized(line), list[_Word]()
        for match in _WORD.finditer(line):
            if run and line[run[-1].end : match.start()] != " ":
                yield from self._name(line, run)
                run = []
            follows = run and not (run[-1].is_name and run[-1].form.isupper())  # as in VPN Settings
            word = None if match[0] in emphasized else self._word(line, match, is_heading=is_heading)
            if word and (word.is_name or follows or _PARTS.fullmatch(match[0].title())):
                run.append(word)
            elif run:
                yield from self._name(line, run)
                run = []
        if run:
            yield from self._name(line, run)

    def _word(self, line: str, match: regex.Match[str], *, is_heading: bool) -> _Word | None:
        """Returns a word that may be part of a name; None if a model may translate it."""
        word, before = match[0], line[max(0, match.start() - _BEFORE) : match.start()]
        name, titled = word.title() if line.isupper() else word, _TITLE.search(before)
        if titled and titled[1] == "Miss" and is_heading and is_english_word(name):
            titled = None  # as in We Miss You
        form = table().get(name, name)
        if _PARTS.fullmatch(name):
            return _Word(match.start(), match.end(), word, is_name=False)
        if form != name:
            subwords = len(self._vocab.encode(name))
            is_rare = form and self._in_german and (subwords > 1 or line == word)
            form = form.upper() if line.isupper() else form
            return _Word(match.start(), match.end(), form, is_name=True) if is_rare else None
        same = is_unchanged(name) or (name in table() and line == word)
        greeted = _GREETING.fullmatch(line, 0, match.start())
        is_person = greeted or (_AFTER_NAME.match(line, match.end()) and not _ARTICLE.search(before))
        is_known = any(part in table() or (_ADJECTIVE.fullmatch(part) and not is_person) for part in name.split("-"))
        if name in _TITLES or (is_known and not (same or titled)):
            return None
        is_rare = titled or (same and line == word) or self._is_rare(name)
        may_be_acronym = word.isupper() and not line.isupper()
        may_be_word = is_heading or (begins_sentence(before) and not ends_in_abbreviation(before.rstrip()))
        is_name = same or titled or may_be_acronym or not (may_be_word and all(map(is_english_word, name.split("-"))))
        return _Word(match.start(), match.end(), word, bool(is_name)) if is_rare else None

    def _is_rare(self, word: str) -> bool:
        """Returns whether the vocabulary spells a word in several subwords, and in small letters, if it is not an
        acronym, in more than half as many."""
        subwords, small = (len(self._vocab.encode(text)) for text in (word, lower(word)))
        return subwords > 1 and (word.isupper() or (small > 1 and 2 * small > subwords))

    def _is_no_word(self, word: str) -> bool:
        return is_unchanged(word) or len(self._vocab.encode(lower(word))) > 1

    def _name(self, line: str, run: list[_Word]) -> Iterator[Name]:
        """Yields the name that words make up which follow each other, if there is one."""
        begin, end, text = run[0].begin, run[-1].end, " ".join(word.form for word in run)
        before = line[max(0, begin - _BEFORE) : begin]
        genitive, title = _GENITIVE.match(line, end), _TITLE.search(before)
        if not any(word.is_name for word in run):
            return
        is_translated = any(word.form != line[word.begin : word.end] for word in run)
        if is_translated and (len(run) > 1 or _REGION.search(before)):
            return  # such as Scotland Yard and South Africa
        if genitive and not self._in_german:
            return
        if genitive:
            end = genitive.end()
            text += "\u2019" if text.endswith(("s", "x", "z", "\u00df")) else "s"
        if title and self._in_german:
            begin -= len(title[0])
            ending = "n" if title[1] == "Mr" and _BEFORE_OBJECT.search(before[: title.start()]) else ""
            text = f"{_TITLES[title[1]]}{ending} {text}"
            if line[:begin] == "Dear ":
                begin, text = 0, f"{_GREETINGS.get(title[1], 'Guten Tag')} {text}"
        yield Name(begin, end, text)
