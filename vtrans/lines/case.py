"""Translates lines in capitals or title case, and words in capitals for emphasis, as sentences are written, and gives
their translations the case of the line or of the words.

A model that has learned from clean text answers such lines with nonsense, and copies such words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import regex

from vtrans.data.noise import FINAL_MARKS
from vtrans.lines.line import Kept, Line, Stage
from vtrans.lines.unknowns import Characters
from vtrans.text.case import AFTER_THE, WORD, SentenceCase, lower, upper
from vtrans.text.languages import base
from vtrans.text.sentences import begins_sentence
from vtrans.wording.phrases import Wording
from vtrans.wording.protect import Masked

TITLE_WORDS = 4  # fewer words with initial capitals may be a name
ACRONYM = 4  # letters of a word that may be an acronym if it stands alone
SHORT = 3  # letters of a word in capitals that does not decide the case of a line that has other words
LEAST_WORDS = 3  # a line in capitals has more words per word in small letters


def title(text: str, language: str | None = None) -> str:
    """Returns a text with a capital at the beginning of each word."""
    written: str = regex.sub(r"(?<!\S)[^\w\s]*\w", lambda match: upper(match.group(), language), text)
    return written


def initial(text: str, language: str | None = None) -> str:
    """Returns a text that begins with a capital. Letters of scripts such as Georgian, whose capitals are only for whole
    words, stay as they are."""
    first = text[: 2 if language and base(language) == "nl" and text.startswith("ij") else 1]
    return (first if first == first.title() else upper(first, language)) + text[len(first) :]


@dataclass(frozen=True)
class Case:
    """A case that the words of a line have: `write` gives it to a text of the target language."""

    write: Callable[[str, str | None], str]
    language: str | None = None
    kept: tuple[str, ...] = ()
    """Words and phrases that are written as they are, such as iPhone."""
    is_word: bool = False
    """Whether it is that of a single word with a capital, which the model is to see in small letters."""

    def restore(self, text: str) -> str:
        """Returns a text in this case."""
        if not self.kept:
            return self.write(text, self.language)
        longest_first = sorted(map(regex.escape, self.kept), key=len, reverse=True)
        parts = regex.split(rf"(?<!\w)({'|'.join(longest_first)})(?!\w)", text)
        return "".join(part if k % 2 else self.write(part, self.language) for k, part in enumerate(parts))

    @property
    def is_whole(self) -> bool:
        """Whether it is a case of all words, and not of the first as in headings of most languages but English."""
        return self.write is not initial

    def changes(self, phrase: str) -> bool:
        """Returns whether this phrase is written in another way in a translation in this case."""
        return self.write(phrase, self.language) != phrase


_TIME = regex.compile(r"(?<=\d\s?)[AP]M(?!\w)")
# Not the first letter of Dutch words such as 's.
_SMALL = regex.compile(r"[^\w\s'\u2019]*(?P<word>\p{Ll}[\p{L}\p{M}]*)")
_CAPITAL = regex.compile(r"[^\w\s]*\p{Lu}")

CASE = Kept[Case]()
WRITTEN = Kept[str]()
"""The line with codes, before it was changed. It has the same length."""
_EMPHASIS = Kept[frozenset[int]]()
"""The words in capitals, of those between spaces, that were written small."""
_ASKED = Kept[Wording]()
"""What is asked of the translation as it is returned."""


class LowerCase(Stage):
    """Writes lines that have a case as a sentence is written, word by word. A line with a prefix or beside a fuzzy
    match in capitals, which the model has learned to correct as it is, keeps its case. Capitals that the vocabulary
    lacks are always written small. So are words in capitals for emphasis, whose translations `aligner` finds. `src` and
    `tgt` are the languages; blank if unknown."""

    def __init__(self, characters: Characters, aligner: Stage, src: str, tgt: str) -> None:
        self._characters, self._aligner, self._src, self._tgt = characters, aligner, src, tgt
        self._vocab = characters.vocabs[0]

    @cached_property
    def _in_sentence(self) -> SentenceCase:
        return SentenceCase(self._vocab, self._src)

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if self._characters.may_change(line.text):
                keeps = line.prefix or (line.match is not None and line.match[0].isupper())
                case = None if keeps else self.case_of(line.seen)
                emphasis = set[str]() if keeps or case or line.wording.phrases else self._emphasis_in(line.seen)
                if case or emphasis or not self._characters.knows(line.seen.text):
                    WRITTEN.put(line, line.seen.masked)
                    line.seen = self.lowered(line.seen, case, emphasis)
                if case:
                    self._ask(line, case)
                if emphasis:
                    words = enumerate(WORD.findall(word) for word in (WRITTEN.get(line) or "").split())
                    _EMPHASIS.put(line, frozenset(i for i, found in words if not emphasis.isdisjoint(found)))

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if emphasis := _EMPHASIS.get(line):
                self._emphasize(line, emphasis)
            case = CASE.get(line)
            if not line.prefix and not (case and case.is_whole):
                line.translations = [replace(t, text=self._begun(line, t.text)) for t in line.translations]
            elif case:
                line.translations = [replace(t, text=case.restore(t.text)) for t in line.translations]
                terms = tuple(tuple(map(case.restore, forms)) for forms in line.wording.terms)
                line.wording = replace(_ASKED.get(line) or line.wording, terms=terms, codes=line.wording.codes)

    def _ask(self, line: Line, case: Case) -> None:
        """Asks for phrases in any case, if the translation of the line is to have them in its case; others are kept as
        they are. Phrases to avoid are avoided in any case."""
        CASE.put(line, replace(case, language=self._tgt))
        if not case.is_whole:
            return
        phrases, avoid = line.wording.phrases, line.wording.avoid
        kept = (form for forms in phrases for form in forms if case.changes(form))
        CASE.put(line, replace(case, language=self._tgt, kept=(*case.kept, *kept)))
        _ASKED.put(line, line.wording)
        any_case = (self._in_cases(form for form in forms if not case.changes(form)) for forms in phrases)
        asked = tuple((*forms, *more) for forms, more in zip(phrases, any_case, strict=True))
        line.wording = replace(line.wording, phrases=asked, avoid=self._in_cases(avoid))

    def _begun(self, line: Line, text: str) -> str:
        """Returns a translation with a capital at its beginning if the line has one, unless a rare word of the line
        begins it, such as pH, or what is asked has a small letter there."""
        begins, source = _SMALL.match(text), WRITTEN.get(line) or line.seen.text
        if not begins or not _CAPITAL.match(source):
            return text
        word, start = begins["word"], begins.start("word")
        if word in WORD.findall(source) and len(self._vocab.encode(word)) > 1:
            return text
        begun = text[:start] + initial(text[start:], self._tgt)
        return begun if len(line.wording.unmet(begun)) <= len(line.wording.unmet(text)) else text

    def _in_cases(self, phrases: Iterable[str]) -> tuple[str, ...]:
        """Returns phrases as they are, in small letters, and with a capital at the beginning of the first or of each
        word."""
        forms = dict[str, None]()
        for phrase in phrases:
            small = lower(phrase, self._tgt)
            forms |= dict.fromkeys((phrase, small, upper(small[0], self._tgt) + small[1:], title(small, self._tgt)))
        return tuple(forms)

    def _emphasis_in(self, line: Masked) -> set[str]:
        return {word for text in line.own for word in self._in_sentence.emphasized(text)}

    def _emphasize(self, line: Line, emphasis: frozenset[int]) -> None:
        """Writes what translates emphasized words, and no other word, in capitals."""
        given = line.translations
        if any(t.alignment is None for t in given):
            self._aligner.after([line])
        for rank, (translation, aligned) in enumerate(zip(given, line.translations, strict=True)):
            linked: dict[int, set[int]] = {}
            for i, j in aligned.alignment or ():
                linked.setdefault(j, set()).add(i)
            words = regex.split(r"(\s+)", translation.text)
            for j, sources in linked.items():
                if sources <= emphasis and 2 * j < len(words):
                    words[2 * j] = upper(words[2 * j], self._tgt)
            text = "".join(words)
            met = len(line.wording.unmet(text)) <= len(line.wording.unmet(translation.text))
            given[rank] = replace(translation, text=text if met else translation.text)
        line.translations = given

    def case_of(self, line: Masked) -> Case | None:
        """Returns the case of a line, which its words decide: most of those with a case are in capitals, or all begin
        with one. Protected text, words of mixed case and acronyms in capitals do not count.

        A single word in capitals may be a name such as NASA, and a few words with initial capitals one such as Tom
        Jackson. They count if they take more subwords than in lower case.
        """
        words = [
            word for text in line.own for word in WORD.findall(_TIME.sub("", text)) if word.lower() != word.upper()
        ]
        small = [word for word in words if word == word.lower()]
        if len(small) * LEAST_WORDS >= len(words):  # as in most lines
            return None
        capitals = [word for word in words if word.isupper()]
        initials = [word for word in words if len(word) > 1 and word[1:] == word[1:].lower() and word[0].isupper()]
        mixed = tuple(word for word in words if word not in small and word not in capitals and word not in initials)
        if words == initials and len(words) == 1 and not line.text.rstrip().endswith(tuple(FINAL_MARKS)):
            return Case(initial, is_word=True) if self._in_sentence(words[0], "") != words[0] else None
        begun = [word for word in capitals if len(word) > 1 and self._in_sentence(word, "") != word]
        if (mixed or initials or small) and all(map(self._may_be_acronym, begun)):
            begun = []
        others = sum(map(len, (*small, *initials, *mixed)))
        if begun and len(capitals) > len(initials) and sum(map(len, capitals)) >= others:
            may_be_acronym = len(begun[0]) <= ACRONYM and len(self._vocab.encode(lower(begun[0], self._src))) > 2
            if len(capitals) > 1 or (self._is_easier_small(begun) and not may_be_acronym):
                return Case(upper, kept=(*mixed, *initials))
        single = [word for word in capitals if len(word) == 1]
        if small or not initials or len(capitals) - len(single) > len(initials):
            return None
        enough = len(initials) + len(capitals) >= TITLE_WORDS
        is_short = (
            not mixed
            and not line.text.rstrip().endswith((".", "!"))
            and self._is_easier_small([*initials, *single][1:])
        )
        if not enough and not is_short:
            return None
        frequent = [word for word in capitals if len(word) in (2, SHORT) and not self._may_be_acronym(word)]
        acronyms = tuple(word for word in capitals if word in AFTER_THE or word not in ("A", *frequent))
        return Case(title if base(self._tgt) in ("", "en") else initial, kept=(*mixed, *acronyms))

    def _may_be_acronym(self, word: str) -> bool:
        return len(word) <= SHORT and len(self._vocab.encode(lower(word, self._src))) > 1

    def _is_easier_small(self, words: Sequence[str]) -> bool:
        lengths = [[len(self._vocab.encode(text)) for text in (lower(word, self._src), word)] for word in words]
        return sum(small for small, _ in lengths) < sum(given for _, given in lengths)

    def lowered(self, line: Masked, case: Case | None, emphasis: Collection[str] = ()) -> Masked:
        """Returns a line as a sentence is written if it has a case, else with small letters for unknown capitals and
        these words only."""
        parts, before, gap = [], "", "" if case and case.is_word else "."
        for code, text in line.parts:
            if code == text:
                written, end = list[str](), 0
                for match in WORD.finditer(text):
                    word = match.group()
                    gap += text[end : match.start()]
                    keeps = word in case.kept if case else word not in emphasis
                    written += [text[end : match.start()], word if keeps else self._word(word, before, gap)]
                    before, gap, end = word, "", match.end()
                gap += text[end:]
                code = text = self._in_known_case("".join([*written, text[end:]]))
            else:
                gap += code
            parts.append((code, text))
        return replace(line, parts=parts)

    def _word(self, word: str, before: str, gap: str) -> str:
        """Returns a word of a line that has a case as it is written after another word and the text between them."""
        if word == word.lower():
            return word
        written = self._in_sentence(word, before)
        begins = bool(gap.strip()) and begins_sentence(gap)
        return upper(written[0], self._src) + written[1:] if begins else written

    def _in_known_case(self, text: str) -> str:
        characters = self._characters
        if characters.knows(text):
            return text
        small = [c for c in set(text) if characters.is_unknown(0, c) and not characters.lacks(0, c)]
        return text.translate({ord(c): c.lower() for c in small})
