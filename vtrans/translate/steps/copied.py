"""Text that is copied although no pattern protects it, and text that stays in place around a sentence."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator, Sequence

import regex

from vtrans.storage.pair_counts import IDENTIFIER, NAME, PairCounts
from vtrans.text.languages import UNSPACED
from vtrans.text.vocabulary import Vocabulary
from vtrans.text.words import has_spaces
from vtrans.translate.wording.protection import Span

FEWEST_SUBWORDS = 3  # of a rare name: the vocabulary has words that are usual in the training text
_NAME_INSIDE = regex.compile(rf"(?<=[\p{{Ll}}\p{{N}},;]\s){NAME.pattern}")

_SYMBOLS = frozenset(string.punctuation) - set("-'`") | set("$\u20ac\u00a3\u00a5")  # of addresses, names and prices
_RUN = regex.compile(rf"(?:[{UNSPACED}][\p{{M}}\p{{Cf}}]*)+|[^\s<>{UNSPACED}]+|[<>]")
_EDGES = r"\p{Pi}\p{Pf}\p{Ps}\p{Pe}\p{Pd}\"'*_~|="
_AROUND = regex.compile(rf"[{_EDGES}\u00bf\u00a1]*+((?:.*[^{_EDGES}\p{{Terminal_Punctuation}}\u2026])?)")  # a word
_EITHER = regex.compile(r"[\p{L}\p{M}]+/[\p{L}\p{M}]+")  # two words
_LONG = regex.compile(r"[\w\p{M}]{201,}+")  # is not a word, and would be translated for seconds
_PART = regex.compile(r"\p{Cf}*+\w[\w\p{M}\p{Cf}'\u2019-]*|\X")
_BRACKET = regex.compile(r"[\p{Ps}\p{Pe}]")  # is apart from what is inside
_LATIN = regex.compile(r"\p{Latin}+")

# A bullet, where `- 5` and `> 5` are text, and the bars around a row of a table.
_BULLET = regex.compile(r"\s*(?:[\p{Pd}\p{Sm}\p{So}*#\u2022\u2023\u00b7]\s+(?=[^\s\d])|(?:\|++\s+)++)")
_BAR_AT_END = regex.compile(r"(?<![\s|])(?:\s+\|++)++\s*$")
_SENTENCE_END = regex.compile(r"[\p{Sentence_Terminal}\u2026]")


class CopiedText:
    """Finds text that is copied.

    This is words of Latin letters one of which the source vocabulary lacks, other words and symbols of which it lacks
    all, such as emoji, and addresses with such a symbol. ASCII digits stay: numbers are checked after the search. If
    the training text of a `pair` of languages shows that it copies them, it is also identifiers with capitals inside or
    underscores, and rare names inside a sentence.
    """

    def __init__(self, src_vocab: Vocabulary, tgt_vocab: Vocabulary, pair: PairCounts | None = None) -> None:
        self.src_vocab, self._tgt_vocab = src_vocab, tgt_vocab
        self._kinds: list[Callable[[str, int, int], Iterable[Span]]] = [self._unknown]
        if pair and pair.copies("identifiers"):
            self._kinds.append(_identifiers)
        if pair and pair.copies("names"):
            self._kinds.append(self._rare_names)

    def sentence_in(self, line: str, protected: Sequence[Span]) -> Span:
        """Returns where the sentence of a line begins and ends, which has all of its protected text. Bullets, the bars
        around a row, and symbols that the vocabulary lacks stay around it."""
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
        """Returns whether a part of a line is a blank, or a symbol that the vocabulary lacks."""
        return part.isspace() or (not any(map(str.isalnum, part)) and bool(self.src_vocab.lacking(part)))

    def added_to(self, protected: Sequence[Span], line: str, within: Span) -> list[Span]:
        """Returns the protected parts of a line, and between them such text, within a span."""
        spans = list(protected)
        for kind in self._kinds:
            found, (begin, end) = list[Span](), within
            for span in (*spans, (end, end)):
                found += [*kind(line, begin, span[0]), span]
                begin = span[1]
            spans = found[:-1]
        return spans

    def _unknown(self, line: str, begin: int, end: int) -> list[Span]:
        """Returns where a part of a line has unknown characters; such text that touches is one."""
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
        """Returns whether a run of characters without blanks is copied as a whole: it has letters or digits and a
        symbol that the source vocabulary lacks, such as / in an address, or is longer than any word. Two words with a
        slash between them are translated."""
        if _LONG.search(run):
            return has_spaces(run)
        symbols = _SYMBOLS & self.src_vocab.lacking(run)
        return bool(symbols) and any(map(str.isalnum, run)) and not _EITHER.fullmatch(run)

    def _is_unknown(self, part: str) -> bool:
        letters, lacking = set(filter(str.isalpha, part)), self.src_vocab.lacking(part)
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
