"""Encodes lines as sources of the search, within the lengths that an engine and the search settings allow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vtrans.config import SearchConfig
from vtrans.engines.engine import Engine, Source
from vtrans.search.avoid import Avoid, VocabularyBytes
from vtrans.search.lexical import least_tokens
from vtrans.search.rules import Prefix, Rule, begin_ids, suppressed_ids
from vtrans.system.errors import InputError
from vtrans.text.languages import language_name
from vtrans.text.vocabulary import EOS_ID, FORMALITY, Formality, Vocabulary
from vtrans.translate.steps.line import MOST_PHRASES, Line
from vtrans.translate.wording.phrases import NO_WORDING, Wording, encoded

EXTRA_LENGTH = 50  # target subwords allowed beyond the length of the source (Vaswani et al. 2017, section 6.1)


class SourceReader:
    """Makes sources of lines, within the lengths that an engine and the search settings allow.

    `max_source` is the length, in subwords without tag and EOS, above which a line is cut into pieces. `limit` returns
    another limit of the target subwords, EOS included, for a source of that many subwords. Raises InputError if
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
        # EOS and what `beginning` returns.
        others = 1 + bool(self._tags) + max(map(len, engine.src_vocab.formality.values()), default=0)
        self.max_source = search.max_source if self._most is None else min(search.max_source, self._most - others)
        longest = self._limit(1 << 50)
        if search.min_length >= longest:
            most = "`max_length`" if longest == search.max_length else "the most that the model allows"
            least = f"{search.min_length:,}"
            raise InputError(f"`min_length` must be below {longest:,}, {most}, because EOS counts, got {least}.")

    def beginning(self, to: str | None, formality: Formality | None = None) -> list[int]:
        """Returns the subwords with which sources begin that are translated into the language `to`, with a form of
        address: those of a tag and of a symbol, or none.

        `to` may be None for a model of one target language, and for one with a foreign vocabulary, whose lines may name
        their languages themselves unless `search.begin` does. Raises InputError for any other value that is not a
        language of the model, and for a form of address that the model has not learned.
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
        """Returns the subwords of a text, without EOS, in the source vocabulary unless another is given.

        Raises InputError for an unpaired surrogate, naming the line by its number. `to` is as for `beginning`; without
        it, a text may begin with a tag of its own if the vocabulary is foreign.
        """
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(f"line {number} contains an unpaired surrogate.") from None
        (ids,) = (vocab or self._src_vocab).encode_batch([text], tags=to is None and not self.begin)
        return ids

    def source(self, line: Line, k: int, ids: list[int], wording: Wording) -> Source:
        """Returns the source of piece k of a line, which has these subwords, with what its translation must obey: the
        first one begins with the prefix. Raises InputError if this leaves no room for EOS."""
        source = Source([*line.before, *ids, EOS_ID], self._limit(len(ids)), f"{line.number}/{k}")
        prefix, number = "" if k else line.prefix, line.number
        if not prefix and wording == NO_WORDING:
            return source
        if avoided := wording.avoided(prefix):
            raise InputError(f"`avoid` of line {number} must not be part of its prefix, as {avoided[0]!r} is.")
        begun = self._prefix(prefix)
        begun_tokens = begun.tokens if begun else ()
        if sum(wording.codes.values()) > MOST_PHRASES:
            wording = replace(wording, codes={})  # those that are missing are put at the end
        phrases = encoded(wording, self._tgt_vocab, self._suppressed, number)
        needed = {"prefix": len(begun_tokens), "phrases": least_tokens(phrases)}
        limit = self._limit(max(len(ids), sum(needed.values())))
        if needed["phrases"] >= limit:  # what may be left out is left out
            phrases = encoded(Wording(wording.phrases, wording.avoid), self._tgt_vocab, self._suppressed, number)
            needed["phrases"] = least_tokens(phrases)
        for name, size in needed.items():
            if size >= limit:
                raise InputError(
                    f"the {name} of line {number} must have fewer than {limit:,} subwords, to leave room for EOS, "
                    f"got {size:,}; shorten the {name}{self._remedy(limit)}."
                )
        rules: list[Rule] = [begun] if begun else []
        if wording.avoid:
            rules.append(Avoid(self.vocab_bytes, wording.avoid))
        return replace(source, limit=limit, prefix=begun_tokens, phrases=phrases, rules=tuple(rules))

    def _prefix(self, text: str) -> Prefix | None:
        """Returns the rule that a translation begins with this text, whose last word may be continued unless whitespace
        follows it; None for a blank text."""
        tokens = (*self.begin, *self._tgt_vocab.encode(text)) if text.strip() else ()
        return Prefix(tokens, self._starts_V if text[-1].isspace() else None) if tokens else None

    @cached_property
    def _starts_V(self) -> NDArray[np.bool_]:
        """Whether a subword begins a word, or ends the sentence."""
        texts = [self._tgt_vocab.text_of(i) for i in range(len(self._tgt_vocab))]
        return np.array([i == EOS_ID or text.startswith(" ") for i, text in enumerate(texts)])

    @cached_property
    def vocab_bytes(self) -> VocabularyBytes:
        """The bytes of each target subword."""
        return VocabularyBytes(self._tgt_vocab)

    def max_target(self, length: int) -> int:
        """Returns the most target subwords, EOS included, that the engine and `min_length` allow for a source of
        `length` subwords."""
        ratio, least = self._search.max_ratio, self._search.min_length
        most = math.ceil(ratio * (length + 1)) if ratio else length + EXTRA_LENGTH
        most = max(most, least + EXTRA_LENGTH) if least else most
        return most if self._most is None else min(most, self._most)

    def _limit(self, length: int) -> int:
        """Returns `max_target`, or `max_length` or the other limit if that is less."""
        most = self.max_target(length)
        if self._other_limit is not None:
            most = min(most, max(self._other_limit(length), self._search.min_length + 1))
        return min(most, self._search.max_length) if self._search.max_length else most

    def _remedy(self, limit: int) -> str:
        """Returns which setting to raise for a larger limit, as the end of a sentence; "" if the model sets the
        limit."""
        if limit == self._search.max_length:
            return ", or raise `max_length`"
        return ", or raise `max_ratio`" if self._search.max_ratio and limit != self._most else ""


def named(code: str) -> str:
    """Returns a language's code with its name."""
    return code if language_name(code) == code else f"{code} ({language_name(code)})"
