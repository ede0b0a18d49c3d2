"""Compares an exported model with the original: both translate sample sentences and score given translations."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vtrans.checkpoint import LoadedModel
from vtrans.config import SearchConfig
from vtrans.console import Console
from vtrans.data.vocabulary import EOS_ID, Vocabulary
from vtrans.engines.ctranslate2_engine import CTranslate2Engine
from vtrans.engines.engine import Engine, Source
from vtrans.engines.forced import Pair
from vtrans.engines.torch_engine import TorchEngine
from vtrans.search.loop import Hypothesis, length_penalty
from vtrans.translate.sources import EXTRA_LENGTH, cut_long
from vtrans.translate.translator import DEFAULT_OPTIONS

SAMPLES = 100  # generated sentences, if none are given
LONGEST_SAMPLE = 2048  # most positions of the pair that tests the whole position table


@dataclass(frozen=True)
class Tolerance:
    """Largest differences allowed between a model and its export, in natural logarithms."""

    token: float  # in the log-probability of any subword of a given translation
    mean: float  # in log-probabilities, as the mean of the absolute differences
    lost: float  # decrease of the mean score of the translations; the original scores both


# In float32, only the order of sums differs: by at most 6e-6 per subword in a Transformer-Tiny. Where two extensions
# are that close, the search may choose the other one, and a single translation may then score lower by more than
# rounding. Hence `lost` bounds the mean over all sentences: a wrong search loses much more than one such tie does.
# The other types round the weights, and often choose other words: in a Transformer-Tiny, int8 differs by 0.02 in the
# mean and 0.16 at most, and loses 0.004 of the score.
TOLERANCES = {
    "float32": Tolerance(token=2e-4, mean=2e-5, lost=1e-3),
    "float16": Tolerance(token=0.2, mean=0.01, lost=0.01),
    "int8": Tolerance(token=2.0, mean=0.1, lost=0.02),
}


@dataclass(frozen=True)
class Comparison:
    """The differences of a model and its export on sample sentences; `token`, `mean` and `lost` as in Tolerance."""

    quantization: str
    sentences: int
    subwords: int  # in the translations that both scored
    token: float
    mean: float
    equal: int  # sentences with equal translations
    lost: float

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def problem(self) -> str | None:
        """Returns the first difference that is larger than TOLERANCES allow, in words, or None."""
        allowed = TOLERANCES[self.quantization]
        for value, limit, what in (
            (self.token, allowed.token, "the log-probability of a subword differs by {:.2g}"),
            (self.mean, allowed.mean, "log-probabilities differ by {:.2g} in the mean"),
            (self.lost, allowed.lost, "its translations score {:.2g} less in the mean"),
        ):
            if not value <= limit:  # also for NaN
                return f"{what.format(value)}, more than {limit:g}"
        return None

    def show(self, console: Console) -> None:
        """Prints the differences."""
        console.info(
            f"{self.equal:,} of {self.sentences:,} sample sentences have the same translation as from the original; "
            f"the log-probabilities of {self.subwords:,} subwords differ by {self.mean:.2g} in the mean "
            f"and {self.token:.2g} at most"
        )
        if self.equal < self.sentences:
            console.info(
                f"over all sentences, the translations score {self.lost:.4f} less than the original's in the mean"
            )


def compare(
    loaded: LoadedModel,
    exported: CTranslate2Engine,
    lines: Sequence[str],
    done: Callable[[], None] = lambda: None,
) -> Comparison:
    """Translates the lines with both, and scores the original's translations with both, on the CPU in float32. `done`
    is called after each translation."""
    loaded.model.cpu().eval()
    original, reach = TorchEngine([loaded]), exported.max_length or LONGEST_SAMPLE
    longest = min(loaded.search.max_source, reach - 1)
    search = dataclasses.replace(loaded.search, **{s.name: s.nearest for s in exported.unsupported(loaded.search)})
    sources = _sources(loaded.src_vocab, lines, longest, reach)
    ours, theirs = (_best(engine, sources, search, done) for engine in (original, exported))
    pairs: list[Pair] = [(s.tokens[:-1], hyp.tokens) for s, hyp in zip(sources, ours, strict=True)]
    pairs.append(longest_pair(loaded, longest, reach))
    native = original.token_logprobs([(source, [*target, EOS_ID]) for source, target in pairs], 1)
    foreign = exported.score([[*source, EOS_ID] for source, _ in pairs], [target for _, target in pairs])
    gaps = np.abs(np.concatenate(native) - np.concatenate(foreign))
    different = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a.tokens != b.tokens]
    scores = _scores(original, [sources[i] for i in different], [theirs[i] for i in different], search)
    lost = math.fsum(ours[i].score - score for i, score in zip(different, scores, strict=True))
    return Comparison(
        exported.quantization,
        len(sources),
        len(gaps),
        float(gaps.max()),
        float(gaps.mean()),
        len(sources) - len(different),
        lost / len(sources),
    )


def _best(
    engine: Engine, sources: Sequence[Source], search: SearchConfig, done: Callable[[], None]
) -> list[Hypothesis]:
    found: dict[int, Hypothesis] = {}
    for i, (best, *_) in engine.translate(sources, search, DEFAULT_OPTIONS):
        found[i] = best
        done()
    return [found[i] for i in range(len(sources))]


def _sources(vocab: Vocabulary, lines: Sequence[str], longest: int, reach: int) -> list[Source]:
    """Returns the pieces of the lines, longest first."""
    pieces = [piece for ids in vocab.encode_batch(list(lines)) for piece in cut_long(ids, longest, vocab)]
    pieces.sort(key=len, reverse=True)
    # An unfinished translation is scored with EOS after it, which needs a position, too: hence reach - 1.
    limits = [min(len(piece) + EXTRA_LENGTH, reach - 1) for piece in pieces]
    return [Source([*piece, EOS_ID], limit, "") for piece, limit in zip(pieces, limits, strict=True)]


def _scores(
    original: TorchEngine, sources: Sequence[Source], found: Sequence[Hypothesis], search: SearchConfig
) -> list[float]:
    """Returns the original's scores of the translations that the export found."""
    targets = [[*hyp.tokens, *([EOS_ID] if hyp.finished else [])] for hyp in found]
    pairs = [(source.tokens[:-1], target) for source, target in zip(sources, targets, strict=True)]
    return [
        math.fsum(logprobs) / length_penalty(len(logprobs), search.alpha, search.length_penalty)
        for logprobs in original.token_logprobs(pairs, 1)
    ]


def made_up(vocab: Vocabulary) -> list[str]:
    """Returns SAMPLES sentences of 1 to 30 words of the vocabulary, the same in each call; frequent words are likelier.

    They mean nothing but reach all parts of a network; a file of real sentences is a better sample.
    """
    subwords = [i for i in range(len(vocab)) if vocab.is_subword(i)]
    words = [i for i in subwords if len(vocab.piece(i)) > 1 and vocab.piece(i).startswith("\u2581")] or subwords
    numbers = random.Random("samples")
    lengths = [1 + 30 * k // SAMPLES for k in range(SAMPLES)]
    # Pieces are sorted by falling frequency; a rank on a logarithmic scale follows Zipf's law.
    return [vocab.decode(words[int(len(words) ** numbers.random()) - 1] for _ in range(n)) for n in lengths]


def longest_pair(loaded: LoadedModel, longest: int, reach: int) -> tuple[list[int], list[int]]:
    """Returns a random source and target, without EOS, as long as the position table allows."""
    numbers = random.Random("longest")
    sides = []
    for vocab, length in ((loaded.src_vocab, longest), (loaded.tgt_vocab, reach - 1)):
        subwords = [i for i in range(len(vocab)) if vocab.is_subword(i)]
        sides.append([numbers.choice(subwords) for _ in range(min(length, LONGEST_SAMPLE))])
    return sides[0], sides[1]
