"""Third step: replaces text to copy by codes, and finds glossary terms."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice

import regex

from vtrans.storage.pair_counts import IDENTIFIER, NAME, PairCounts, number_marks
from vtrans.text.case import in_capitals
from vtrans.text.languages import UNSPACED, Languages
from vtrans.text.lines import one_line
from vtrans.text.marks import Marks, localized
from vtrans.text.vocabulary import Vocabulary
from vtrans.text.words import CODE, has_spaces, words_in
from vtrans.translate.steps.line import MOST_PHRASES, Line
from vtrans.translate.translation import Translation
from vtrans.translate.wording.glossary import Glossary
from vtrans.translate.wording.protection import Masked, Protection, Span, masked

_LETTER = regex.compile(r"[\p{L}\p{Cs}]")
_VISIBLE = regex.compile(r"[^\p{C}\p{Z}\s\u2581]")

FEWEST_SUBWORDS = 3  # of a rare name: frequent words are in the vocabulary
_NAME_INSIDE = regex.compile(rf"(?<=[\p{{Ll}}\p{{N}},;]\s){NAME.pattern}")

_SYMBOLS = frozenset(string.punctuation) - set("-'`") | set("$\u20ac\u00a3\u00a5")  # in addresses, names and prices
_RUN = regex.compile(rf"(?:[{UNSPACED}][\p{{M}}\p{{Cf}}]*)+|[^\s<>{UNSPACED}]+|[<>]")
_EDGES = r"\p{Pi}\p{Pf}\p{Ps}\p{Pe}\p{Pd}\"'*_~|="
_AROUND = regex.compile(rf"[{_EDGES}\u00bf\u00a1]*+((?:.*[^{_EDGES}\p{{Terminal_Punctuation}}\u2026])?)")  # a word
_EITHER = regex.compile(r"[\p{L}\p{M}]+/[\p{L}\p{M}]+")  # two words
_LONG = regex.compile(r"[\w\p{M}]{201,}+")  # not a word; translating it would take seconds
_PART = regex.compile(r"\p{Cf}*+\w[\w\p{M}\p{Cf}'\u2019-]*|\X")
_BRACKET = regex.compile(r"[\p{Ps}\p{Pe}]")  # never joined with its content
_LATIN = regex.compile(r"\p{Latin}+")

# A bullet (`- 5` and `> 5` are text), and the bars around a table row.
_BULLET = regex.compile(r"\s*(?:[\p{Pd}\p{Sm}\p{So}*#\u2022\u2023\u00b7]\s+(?=[^\s\d])|(?:\|++\s+)++)")
_BAR_AT_END = regex.compile(r"(?<![\s|])(?:\s+\|++)++\s*$")
_SENTENCE_END = regex.compile(r"[\p{Sentence_Terminal}\u2026]")


class Protect:
    """Replaces text to copy by codes: matches of `protection`'s patterns, and the text that `copied` finds. Text around
    a sentence stays in place, and a line with no other letters is its own translation. With `required`, the search must
    write the codes. `glossary` holds the terms to translate in lines of this `language`, in any case if a line is in
    capitals. `marks` are the number marks of both languages; unprotected numbers get the target's."""

    def __init__(
        self,
        protection: Protection | None,
        copied: CopiedText | None,
        glossary: Glossary | None = None,
        marks: tuple[Marks, Marks] | None = None,
        *,
        language: str = "",
        required: bool = True,
    ) -> None:
        self._protection, self._copied, self._glossary = protection, copied, glossary
        self._marks, self._language, self._required = marks, language, required
        forms = (form for _, forms in glossary.pairs for form in forms) if glossary else ()
        self._codes_of_terms = "\n".join(filter(CODE.search, forms))

    def __call__(self, lines: Sequence[Line]) -> None:
        for line in lines:
            text = line.model_input
            whole = within = 0, len(text)
            spans = list(self._protection.spans(text)) if self._protection else []
            if reads := self._copied and not self._copied.src_vocab.names_language(line.text):
                within = within if line.prefix else self._copied.sentence_in(text, spans)
                spans = self._copied.added_to(spans, text, within)
            own = text  # without copied text
            coded = None
            if spans or within != whole:
                coded = masked(text, spans, asked=f"{line.asked}\n{self._codes_of_terms}", within=within)
                own = "".join(coded.own)
            if (reads or spans) and self._is_copied(line, own):
                line.model_input, line.counts.copied = "", 1
                line.undo.append(partial(Translation.copied, text=text))
                continue
            if coded:
                line.model_input, line.codes = coded.model_input, coded.texts
                line.undo.append(partial(_restored, coded))
                if self._required:
                    line.wording = replace(line.wording, codes=dict(islice(coded.counts().items(), MOST_PHRASES)))
            if self._marks and any(map(str.isdecimal, line.model_input)):
                line.undo.append(partial(with_marks, line.model_input, *self._marks))
            if self._glossary:
                any_case = in_capitals(own)
                found = self._glossary.terms_in(line.model_input, self._language, any_case=any_case)
                line.terms = tuple(islice(found, MOST_PHRASES))
                line.wording = replace(line.wording, terms=tuple(term.forms for term in line.terms))

    def _is_copied(self, line: Line, own: str) -> bool:
        """Returns whether a line's own text, outside protected text, contains nothing to translate."""
        wanted = line.prefix or line.wording.phrases
        return not wanted and not _LETTER.search(own) and bool(_VISIBLE.search(line.model_input))


def both_marks(languages: Languages, pair: PairCounts | None) -> tuple[Marks, Marks] | None:
    """Returns the number marks of both languages. Counts from the training text take precedence over CLDR. None if a
    language is neither known nor counted: numbers then stay unchanged."""
    source, target = number_marks(languages.src, pair, "src"), number_marks(languages.tgt, pair, "tgt")
    return (source, target) if source and target else None


def with_marks(src: str, source: Marks, target: Marks, translation: Translation) -> Translation:
    """Returns the translation with the target's marks in its numbers."""
    return translation.rewritten(localized(src, translation.text, source, target))


def _restored(line: Masked, translation: Translation) -> Translation:
    """Returns a translation with the protected text and the text around it restored. Its subwords do not change."""
    restored = line.restored(translation.text)
    links, words = translation.alignment, translation.word_confidences
    src, tgt, sizes = line.words(), restored.words(), (len(words_in(line.text)), len(words_in(restored.text)))
    if links is not None:
        # A code is linked to itself: the model's attention says less.
        src_codes, tgt_codes = line.code_words(), restored.code_words()
        src_taken, tgt_taken = ({*chain(*codes.values())} for codes in (src_codes, tgt_codes))
        links = tuple((i, j) for i, j in links if i not in src_taken and j not in tgt_taken)
        for code in tgt_codes:
            links += tuple(zip(src_codes[code], tgt_codes[code], strict=False))  # a code may be repeated or missing
        first, last = map(min, line.words_around(), restored.words_around())
        kept = {*((i, i) for i in range(first)), *((sizes[0] - i, sizes[1] - i) for i in range(1, last + 1))}
        links = tuple(sorted({(src[i], tgt[j]) for i, j in links} | kept))
    if words is not None:
        least = [1.0] * sizes[1]
        for word, confidence in zip(tgt, words, strict=False):
            least[word] = min(least[word], confidence)
        words = tuple(least)
    return replace(translation, text=one_line(restored.text), alignment=links, word_confidences=words)


class CopiedText:
    """Finds text to copy.

    Copied are Latin words with a letter that the source vocabulary lacks, other words and symbols that it lacks
    entirely, such as emoji, and addresses with such a symbol. ASCII digits are not: numbers are checked after the
    search. If the training text of the language `pair` shows that they are copied, so are identifiers with inner
    capitals or underscores, and rare names inside a sentence.
    """

    def __init__(self, src_vocab: Vocabulary, tgt_vocab: Vocabulary, pair: PairCounts | None = None) -> None:
        self.src_vocab = src_vocab
        self._tgt_vocab = tgt_vocab
        self._kinds: list[Callable[[str, int, int], Iterable[Span]]] = [self._unknown]
        if pair and pair.copies("identifiers"):
            self._kinds.append(_identifiers)
        if pair and pair.copies("names"):
            self._kinds.append(self._rare_names)

    def sentence_in(self, line: str, protected: Sequence[Span]) -> Span:
        """Returns the span of a line's sentence, which includes all protected text. Bullets, the bars around a table
        row, and symbols that the vocabulary lacks stay outside."""
        bullet, bar = _BULLET.match(line), _BAR_AT_END.search(line)
        begin, end = bullet.end() if bullet else 0, bar.start() if bar else len(line)
        if protected:
            begin, end = min(begin, protected[0][0]), max(end, protected[-1][1])
        if self.src_vocab.lacking(line):
            parts = (part for part in _PART.finditer(line, begin, end) if not self._is_symbol(part.group()))
            known = [*protected, *(part.span() for part in parts)]
            first, last = (min(known)[0], max(stop for _, stop in known)) if known else (end, end)
            begin = first if line[begin:first].strip() else begin
            end = last if line[last:end].strip() and _SENTENCE_END.match(line, last - 1) else end
        return begin, end

    def _is_symbol(self, part: str) -> bool:
        """Returns whether a part of a line is blank, or a symbol that the vocabulary lacks."""
        return part.isspace() or (not any(map(str.isalnum, part)) and bool(self.src_vocab.lacking(part)))

    def added_to(self, protected: Sequence[Span], line: str, within: Span) -> list[Span]:
        """Returns the protected spans of a line and, between them and `within` a span, the spans of copied text."""
        spans = list(protected)
        for kind in self._kinds:
            found, (begin, end) = list[Span](), within
            for span in (*spans, (end, end)):
                found += [*kind(line, begin, span[0]), span]
                begin = span[1]
            spans = found[:-1]
        return spans

    def _unknown(self, line: str, begin: int, end: int) -> list[Span]:
        """Returns the spans with unknown characters in a part of a line; adjacent ones are joined."""
        found = list[Span]()
        if not self.src_vocab.lacking(line[begin:end]) and not _LONG.search(line, begin, end):
            return found
        for run in _RUN.finditer(line, begin, end):
            spans = [_AROUND.match(line, *run.span()).span(1)]
            if not self._is_address(line[slice(*spans[0])]):
                parts = _PART.finditer(line, *run.span())
                spans = [part.span() for part in parts if self._is_unknown(part.group())]
            for first, last in spans:
                touches = bool(found) and found[-1][1] == first and not _BRACKET.search(line, first - 1, first + 1)
                found.append((found.pop()[0] if touches else first, last))
        return found

    def _is_address(self, run: str) -> bool:
        """Returns whether a run of characters without blanks is copied as a whole: if it has letters or digits and a
        symbol that the source vocabulary lacks, such as / in an address, or if it is longer than any word. Two words
        separated by a slash are translated."""
        if _LONG.search(run):
            return has_spaces(run)
        symbols = _SYMBOLS & self.src_vocab.lacking(run)
        return bool(symbols) and any(map(str.isalnum, run)) and not _EITHER.fullmatch(run)

    def _is_unknown(self, part: str) -> bool:
        letters = set(filter(str.isalpha, part))
        lacking = self.src_vocab.lacking(part)
        if not letters:
            return not lacking <= set(string.digits)
        if _LATIN.fullmatch("".join(letters)):
            return not lacking.isdisjoint(letters) and not letters <= self._tgt_vocab.lacking(part)
        return letters <= lacking

    def _rare_names(self, line: str, begin: int, end: int) -> Iterator[Span]:
        vocab = self.src_vocab
        names = _NAME_INSIDE.finditer(line, begin, end)
        return (name.span() for name in names if len(vocab.encode(name.group())) >= FEWEST_SUBWORDS)


def _identifiers(line: str, begin: int, end: int) -> Iterator[Span]:
    return (match.span() for match in IDENTIFIER.finditer(line, begin, end))
