"""Scores existing translations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from vtrans.config import SearchConfig
from vtrans.engines.engine import Engine
from vtrans.search.loop import length_penalty
from vtrans.search.rules import with_certain
from vtrans.system.errors import InputError
from vtrans.text.lines import one_line
from vtrans.text.vocabulary import EOS_ID, PAD_ID
from vtrans.translate.steps.line import Line, together
from vtrans.translate.steps.split import SourceReader
from vtrans.translate.translation import Translation

Target = str | Sequence[int]


def lines_to_score(sources: Iterable[str], targets: Iterable[Target]) -> Iterator[tuple[Line, Target]]:
    """Yields the sources as lines, each with its target. Raises InputError if their numbers differ."""
    for number, pair in together(sources=sources, targets=targets):
        yield Line(number, pair["sources"]), pair["targets"]


def score(
    given: Sequence[tuple[Line, Target]],
    engine: Engine,
    search: SearchConfig,
    reader: SourceReader,
    to: str | None,
    done: Callable[[], None],
) -> None:
    """Sets each line's translation to its target, with its log-probability. See `Translator.logprob`."""
    tag, longest, vocab = reader.beginning(to), reader.max_target(reader.max_source), engine.tgt_vocab
    targets: dict[Line, list[int]] = {}
    known: dict[Line, float] = {}  # log-probabilities of pairs that bypass the model
    for line, own in given:
        line.ids = reader.encode(engine.src_vocab.as_source(line.text), line.number, to=to)
        if isinstance(own, str):
            target = [*reader.begin, *reader.encode(own, line.number, vocab, to=to), EOS_ID]
        else:
            target = checked_target(own, line.number, len(vocab))
        targets[line] = target
        if not line.ids or not line.text.strip():
            known[line] = -math.inf if any(token > EOS_ID for token in target) else 0.0
            line.counts.blank = 1
        elif len(line.ids) > reader.max_source or len(target) > longest:
            known[line] = math.nan
            line.warnings.append(
                f"line {line.number} has {len(line.ids):,} source and {len(target):,} target subwords, more than "
                f"{reader.max_source:,} and {longest:,}; it gets no log-probability"
            )
    pairs = [([*tag, *line.ids], () if line in known else target) for line, target in targets.items()]
    scored = engine.token_logprobs(pairs, search.batch_tokens, done)
    for (line, target), logprobs in zip(targets.items(), scored, strict=True):
        logprobs = with_certain(reader.begin, target, logprobs)
        logprob = known.get(line, math.fsum(logprobs))
        line.counts.tgt_tokens = len(logprobs)
        if logprob == 0.0 and not logprobs:  # the translation of a blank line
            line.translations = [Translation("", 0.0, 0.0, True)]
            continue
        line.translations = [
            Translation(
                one_line(vocab.decode(target)),
                logprob,
                logprob / length_penalty(len(target), search.alpha, search.length_penalty),
                target[-1] == EOS_ID,
                tuple(target),
                tuple(vocab.piece(t) for t in target),
                tuple(logprobs),
            )
        ]


def checked_target(tokens: Sequence[int], number: int, size: int) -> list[int]:
    """Returns the subword ids of target `number`; `size` is the vocabulary size. Raises InputError for an invalid id,
    and for EOS anywhere but at the end."""
    for place, token in enumerate(tokens, 1):
        if not isinstance(token, int) or token == PAD_ID or not 0 <= token < size:
            raise InputError(f"target {number} must be a text or subword ids from 1 to {size - 1:,}, got {token!r}.")
        if token == EOS_ID and place < len(tokens):
            raise InputError(
                f"target {number} must have EOS, {EOS_ID}, only at its end; if its line was translated in pieces, "
                "give the pieces one by one."
            )
    return list(tokens)
