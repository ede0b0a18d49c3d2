"""Scores translations that are given, not searched for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from vtrans.config import SearchConfig
from vtrans.engines.engine import Engine
from vtrans.engines.forced import checked_target
from vtrans.errors import InputError
from vtrans.search.loop import length_penalty
from vtrans.text.lines import one_line
from vtrans.text.vocabulary import EOS_ID
from vtrans.translate.sources import SourceReader
from vtrans.translate.translation import Counts, Translation

Target = str | Sequence[int]


def windows_of_pairs(
    sources: Iterator[str], targets: Iterator[Target], size: int
) -> Iterator[tuple[int, list[str], list[Target]]]:
    """Yields the number of the first pair of each window, and the two sides of the window. Raises InputError for
    unequal numbers of sources and targets."""
    first = 1
    while True:
        lines, given = list(islice(sources, size)), list(islice(targets, size))
        if len(lines) != len(given):
            n, m = (first - 1 + len(part) + sum(1 for _ in rest) for part, rest in ((lines, sources), (given, targets)))
            raise InputError(f"there are {n:,} sources, but {m:,} targets; each source needs one target.")
        if not lines:
            return
        yield first, lines, given
        first += len(lines)


@dataclass(frozen=True)
class Scorer:
    """Scores pairs with an engine and the length penalty of `search`, as `Translator.logprob` says."""

    engine: Engine
    search: SearchConfig
    reader: SourceReader
    warn: Callable[[str], None]

    def score(
        self,
        lines: Sequence[str],
        given: Sequence[Target],
        first: int,
        counts: Counts,
        done: Callable[[], None],
        to: str | None,
    ) -> list[Translation]:
        """Returns the given translations with their log-probabilities. `first` is the number of the first line."""
        reader, vocab = self.reader, self.engine.tgt_vocab
        sources, tag = reader.encode(lines, first, to=to), reader.tag(to)
        texts = reader.encode([t if isinstance(t, str) else "" for t in given], first, vocab, to=to)
        targets = [
            [*text, EOS_ID] if isinstance(target, str) else checked_target(target, number, len(vocab))
            for number, (text, target) in enumerate(zip(texts, given, strict=True), first)
        ]
        longest = reader.max_target(reader.max_source)
        known: dict[int, float] = {}  # log-probabilities of pairs that are not given to the model
        for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if not source or not lines[i].strip():
                known[i] = -math.inf if any(token > EOS_ID for token in target) else 0.0
                counts.blank += 1
            elif len(source) > reader.max_source or len(target) > longest:
                known[i] = math.nan
                self.warn(
                    f"line {first + i} has {len(source):,} source and {len(target):,} target subwords, more than "
                    f"{reader.max_source:,} and {longest:,}; it gets no log-probability"
                )
        pairs = [([*tag, *s], () if i in known else t) for i, (s, t) in enumerate(zip(sources, targets, strict=True))]
        scored = self.engine.token_logprobs(pairs, self.search.batch_tokens, done)
        counts.lines += len(lines)
        counts.tgt_tokens += sum(map(len, scored))
        return [
            self._scored(target, known.get(i, math.fsum(logprobs)), logprobs)
            for i, (target, logprobs) in enumerate(zip(targets, scored, strict=True))
        ]

    def _scored(self, tokens: Sequence[int], logprob: float, logprobs: Sequence[float]) -> Translation:
        if logprob == 0.0 and not logprobs:  # the translation of a blank line
            return Translation("", 0.0, 0.0, True)
        vocab = self.engine.tgt_vocab
        return Translation(
            one_line(vocab.decode(tokens)),
            logprob,
            logprob / length_penalty(len(tokens), self.search.alpha, self.search.length_penalty),
            tokens[-1] == EOS_ID,
            tuple(tokens),
            tuple(vocab.piece(t) for t in tokens),
            tuple(logprobs),
        )
