"""Fifth step: makes the sources of the search: one per line, or several for a long line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain

import numpy as np
import regex
from numpy.typing import NDArray

from vtrans.config import SearchConfig
from vtrans.data.matches import SEPARATOR_ID
from vtrans.engines.engine import Engine, Source
from vtrans.search.avoid import Avoid, VocabularyBytes
from vtrans.search.lexical import least_tokens
from vtrans.search.rules import Prefix, Rule, begin_ids, suppressed_ids
from vtrans.system.errors import InputError
from vtrans.text.languages import language_name
from vtrans.text.sentences import sentences
from vtrans.text.vocabulary import EOS_ID, FORMALITY, Formality, Vocabulary
from vtrans.translate.steps.line import MOST_PHRASES, Line, Piece
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.wording.phrases import NO_WORDING, Wording, encoded

EXTRA_LENGTH = 50  # target subwords allowed beyond the length of the source (Vaswani et al. 2017, section 6.1)
_CELL = regex.compile(r"(?<=(?:\t|\s\|)\s*)(?=[^\s|])")  # after a tab, and after ` | ` as in Markdown tables
# Letters of scripts that separate sentences by blanks only, such as Thai.
_UNMARKED = regex.compile(r"\p{Line_Break=SA}")


class Split:
    """Splits lines of this language into pieces.

    Table cells are translated separately. So are the sentences of a line with more than `usual` subwords, unless there
    are constraints on its whole translation. A model trained on single sentences tends to skip some of several; a model
    trained on documents does better with whole lines.
    """

    def __init__(
        self, reader: SourceReader, vocab: Vocabulary, options: TranslateOptions, usual: int = 0, language: str = ""
    ) -> None:
        self._reader, self._vocab, self._to, self._language = reader, vocab, options.to, language
        self._raw, self._beginning = options.raw, reader.beginning(options.to, options.formality)
        self._usual = min(usual, reader.max_source) if usual and not options.raw else reader.max_source

    def __call__(self, lines: Sequence[Line]) -> None:
        longest = self._reader.max_source
        for line in lines:
            line.ids = self._reader.encode(line.model_input, line.number, to=self._to)
            match = self._match(line.match[0], line) if line.match else []
            line.match = line.match if match else None
            line.before = [*self._beginning, *match]
            line.counts.matched = int(bool(match))
            is_whole = self._raw or line.prefix or line.match or line.wording.phrases or line.wording.terms
            if line.model_input.strip():
                line.pieces = list(self._pieces(line, is_whole=bool(is_whole)))
            if len(line.ids) > longest:
                line.counts.cut = 1
                line.warnings.append(
                    f"line {line.number} has {len(line.ids):,} subwords, more than {longest:,}; it is translated in "
                    f"{len(line.pieces)} pieces"
                )

    def _match(self, text: str, line: Line) -> list[int]:
        """Returns the subwords of a fuzzy match to put before the line, or none if there is no room or the line is
        blank."""
        match = [*self._reader.encode(text, line.number), SEPARATOR_ID]
        return match if line.ids and len(match) + len(line.ids) <= self._reader.max_source else []

    def _pieces(self, line: Line, *, is_whole: bool) -> Iterator[Piece]:
        """Yields the pieces of a line: one, or its cells, or its sentences if it has more subwords than usual. With
        `is_whole`, a line is split only if it is too long for the model."""
        most, text = self._reader.max_source if is_whole else self._usual, line.model_input
        is_row = not is_whole and ("\t" in text or text.count("|") > 1)
        texts = _CELL.split(text.strip()) if is_row else [text]
        if len(line.ids) <= most and len(texts) == 1:
            if line.ids:
                yield Piece(line, self._reader.source(line, 0, line.ids, line.wording))
            return
        if len(line.ids) > most:
            texts = [part for text in texts for part in sentences(text, self._language)]
        parts = [part for k, text in enumerate(texts) for part in self._parts(text, line, k, most, is_row=is_row)]
        line.ids = [id for ids, _ in parts for id in ids]
        for k, (ids, gap) in enumerate(parts):
            wording = line.wording if len(parts) == 1 else line.wording.of_piece(k, self._vocab.decode(ids))
            yield Piece(line, self._reader.source(line, k, ids, wording), gap=gap)

    def _parts(self, text: str, line: Line, k: int, most: int, *, is_row: bool) -> Iterator[tuple[list[int], str]]:
        """Yields the subwords of each part of sentence or cell k, and the gap after this part in the line."""
        own = text.rstrip(" \t|") if is_row else ""
        own = (f"{own}|" if own.endswith("\\") else own or text).rstrip()  # an escaped bar is text
        ids, longest = self._reader.encode(own, line.number, to="" if k else self._to), self._reader.max_source
        unmarked = 2 * len(_UNMARKED.findall(own)) > len(own)
        cut = cut_long(ids, longest, self._vocab, most if unmarked else longest)
        gaps = [" " if self._vocab.text_of(part[0]).startswith(" ") else "" for part in cut[1:]]
        return zip(cut, [*gaps, text[len(own) :]], strict=False)  # a blank text has no subwords


def cut_long(ids: list[int], limit: int, vocab: Vocabulary, usual: int) -> list[list[int]]:
    """Returns the subwords in pieces of at most `limit`, and at most `usual` where word boundaries allow. Each piece
    ends before the last word that begins in its second half, or else after a whole character with its accents."""
    pieces, begin = [], 0
    while len(ids) - begin > usual:
        longer = range(begin + usual + 1, min(begin + limit + 1, len(ids)))
        words = chain(range(begin + usual, begin + usual // 2, -1), longer)
        end = next((k for k in words if vocab.text_of(ids[k]).startswith(" ")), None)
        if end is None:
            if len(ids) - begin <= limit:
                break
            ends = range(begin + limit, begin, -1)
            end = next((k for k in ends if _ends_character(ids, begin, k, vocab)), begin + limit)
        pieces.append(ids[begin:end])
        begin = end
    return [*pieces, ids[begin:]] if ids else []


def _ends_character(ids: list[int], begin: int, end: int, vocab: Vocabulary) -> bool:
    """Returns whether a character, including its accents, ends at `end` in the subwords from `begin`."""
    begin = max(begin, end - 64)  # enough for any character
    text = vocab.decode(ids[begin:end])
    more = vocab.decode(ids[begin : end + 4])  # a character has at most four bytes
    return more.startswith(text) and len(text) in {character.end() for character in regex.finditer(r"\X", more)}


class SourceReader:
    """Makes the sources of lines, within the length limits of an engine and the search settings.

    `max_source` is the maximum length of a piece, in subwords without tag and EOS; longer lines are cut. `limit`
    returns an additional limit on target subwords, including EOS, for a number of source subwords. Raises InputError if
    `min_length` leaves no room for EOS.
    """

    def __init__(self, engine: Engine, search: SearchConfig, limit: Callable[[int], int] | None = None) -> None:
        self._src_vocab, self._tgt_vocab = engine.src_vocab, engine.tgt_vocab
        self._search, self._most, self._other_limit = search, engine.max_length, limit
        self._tags: dict[str | None, int | None] = {
            code: engine.src_vocab.id_of(tag) for code, tag in engine.tags.items()
        }
        self._known = self._tags or {pair.tgt: None for pair in engine.languages}
        self._suppressed = suppressed_ids(search, engine.tgt_vocab)
        self.begin = begin_ids(search, engine.tgt_vocab)
        # EOS and the subwords of `beginning`.
        others = 1 + bool(self._tags) + max(map(len, engine.src_vocab.formality.values()), default=0)
        self.max_source = search.max_source if self._most is None else min(search.max_source, self._most - others)
        longest = self._limit(1 << 50)
        if search.min_length >= longest:
            most = "`max_length`" if longest == search.max_length else "the model's maximum"
            least = f"{search.min_length:,}"
            raise InputError(f"`min_length` must be below {longest:,}, {most}, because EOS counts, got {least}.")

    def beginning(self, to: str | None, formality: Formality | None = None) -> list[int]:
        """Returns the first subwords of sources to translate into the language `to` with a form of address: a tag, a
        symbol, both or none.

        `to` may be None for a model with one target language, and for a foreign vocabulary, whose lines may name their
        own language unless `search.begin` does. Raises InputError if `to` is not a language of the model, and for a
        form of address that the model has not learned.
        """
        forms = self._src_vocab.formality
        if formality and formality not in forms:
            raise InputError(
                f"`formality` needs a model whose vocabulary has {' and '.join(FORMALITY.values())}, "
                f"got {formality!r}; leave it out."
            )
        form = forms[formality] if formality else []
        if to in self._known:
            id = self._known[to]
        elif to is None and self._src_vocab.table and not self.begin:
            id = None
        elif to is None and len(self._tags) < 2:
            id = next(iter(self._tags.values()), None)
        else:
            codes = ", ".join(named(code) for code in self._known if code)
            allowed = f"one of {codes}" if codes else "left out, because the model has no tags"
            raise InputError(f"`to` must be {allowed}, got {'none' if to is None else repr(to)}.")
        return [*([] if id is None else [id]), *form]

    def encode(self, text: str, number: int, vocab: Vocabulary | None = None, *, to: str | None = None) -> list[int]:
        """Returns the subwords of a text, without EOS. `vocab` defaults to the source vocabulary.

        Raises InputError, with the line `number`, for an unpaired surrogate. See `beginning` for `to`; without `to`, a
        text may begin with its own tag if the vocabulary is foreign.
        """
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(f"line {number} contains an unpaired surrogate.") from None
        (ids,) = (vocab or self._src_vocab).encode_batch([text], tags=to is None and not self.begin)
        return ids

    def source(self, line: Line, k: int, ids: list[int], wording: Wording) -> Source:
        """Returns the source of piece k of a line, with these subwords and the constraints on its translation; the
        prefix belongs to the first piece. Raises InputError if the constraints leave no room for EOS."""
        source = Source([*line.before, *ids, EOS_ID], self._limit(len(ids)), f"{line.number}/{k}")
        prefix, number = "" if k else line.prefix, line.number
        if not prefix and wording == NO_WORDING:
            return source
        if avoided := wording.avoided(prefix):
            raise InputError(f"`avoid` of line {number} must not be part of its prefix, as {avoided[0]!r} is.")
        begun = self._prefix(prefix)
        begun_tokens = begun.tokens if begun else ()
        if sum(wording.codes.values()) > MOST_PHRASES:
            wording = replace(wording, codes={})  # missing codes are put at the end
        phrases = encoded(wording, self._tgt_vocab, self._suppressed, number)
        needed = {"prefix": len(begun_tokens), "phrases": least_tokens(phrases)}
        limit = self._limit(max(len(ids), sum(needed.values())))
        if needed["phrases"] >= limit:  # leave out terms and codes
            phrases = encoded(Wording(wording.phrases, wording.avoid), self._tgt_vocab, self._suppressed, number)
            needed["phrases"] = least_tokens(phrases)
        for name, size in needed.items():
            if size >= limit:
                raise InputError(
                    f"the {name} of line {number} must have fewer than {limit:,} subwords, to leave room for EOS, "
                    f"got {size:,}; shorten the {name}."
                )
        rules: list[Rule] = [begun] if begun else []
        if wording.avoid:
            rules.append(Avoid(self.vocab_bytes, wording.avoid))
        return replace(source, limit=limit, prefix=begun_tokens, phrases=phrases, rules=tuple(rules))

    def _prefix(self, text: str) -> Prefix | None:
        """Returns the rule that a translation begins with this text, whose last word may be continued unless whitespace
        follows it. None for a blank text."""
        tokens = (*self.begin, *self._tgt_vocab.encode(text)) if text.strip() else ()
        return Prefix(tokens, self._starts_V if text[-1].isspace() else None) if tokens else None

    @cached_property
    def _starts_V(self) -> NDArray[np.bool_]:
        """Whether each subword begins a word or is EOS."""
        texts = [self._tgt_vocab.text_of(i) for i in range(len(self._tgt_vocab))]
        return np.array([i == EOS_ID or text.startswith(" ") for i, text in enumerate(texts)])

    @cached_property
    def vocab_bytes(self) -> VocabularyBytes:
        """The bytes of each target subword."""
        return VocabularyBytes(self._tgt_vocab)

    def max_target(self, length: int) -> int:
        """Returns the maximum number of target subwords, including EOS, that the engine and `min_length` allow for a
        source of `length` subwords."""
        ratio, least = self._search.max_ratio, self._search.min_length
        most = math.ceil(ratio * (length + 1)) if ratio else length + EXTRA_LENGTH
        most = max(most, least + EXTRA_LENGTH) if least else most
        return most if self._most is None else min(most, self._most)

    def _limit(self, length: int) -> int:
        """Returns the smallest of `max_target`, `max_length` and the additional limit."""
        most = self.max_target(length)
        if self._other_limit is not None:
            most = min(most, max(self._other_limit(length), self._search.min_length + 1))
        return min(most, self._search.max_length) if self._search.max_length else most


def named(code: str) -> str:
    """Returns a language's code with its name."""
    return code if language_name(code) == code else f"{code} ({language_name(code)})"
