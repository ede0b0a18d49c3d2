"""The CTranslate2 engine: beam search with the results of `vtrans.search.beam`.

CTranslate2 (https://github.com/OpenNMT/CTranslate2) is an optional extra. Its search ranks, finishes and refills the
beam as ours does, and stops by count. It differs in five points, which are handled here (read in its `decoding.cc`,
versions 4.6 to 4.8, and tested):

- It divides by |Y| ** alpha only, and with alpha = 0 it stops as soon as the best live hypothesis is finished. It is
  called with an alpha so small that the power is 1 in its arithmetic, and ranks by bare sums; the length penalty is
  applied here.
- It returns at most `beam` hypotheses, the best by its own ranking, although more may have finished in the last step.
  If one that was left out could have won, the sentence is searched again for more hypotheses.
- A call has a single length limit, but each of our sentences has its own. A batch uses the largest limit; a sentence
  whose hypotheses are longer than its own limit is searched again with that.
- At the limit, it counts unfinished hypotheses as finished. The end token, which is requested, tells them apart.
- A rule (`min_length`, `no_repeat_ngram`, `suppress`) removes subwords before the softmax, so the others gain their
  probability; ours removes them afterwards. Greedy search chooses the same subwords either way. With a wider beam and a
  minimum length of 1, all sums of a sentence are too large by one constant, because the first step extends a single
  row. Forced decoding gives the difference.

Some settings would give other results, so `unsupported` names them. Under the other rules, rows of a wider beam gain
unequal amounts. The repetition penalty scales logits, not log-probabilities. After a prefix, EOS counts only if it is
the best subword, and a prefix cannot end a word. All samples of a batch come from one random generator.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from vtrans.config import SearchConfig
from vtrans.data.vocabulary import EOS_ID, Vocabulary
from vtrans.engines.alignments import Links
from vtrans.engines.engine import Source, Unsupported, suppressed_ids
from vtrans.engines.forced import Pair
from vtrans.errors import VtransError
from vtrans.keys import idle_because, keys_of
from vtrans.languages import Languages
from vtrans.search.loop import Hypothesis, length_penalty
from vtrans.translate.translation import TranslateOptions

NO_PENALTY = 1e-30  # an exponent other than 0 for which every |Y| ** alpha is 1
SCORED_TOKENS = 2048  # padded subwords scored at a time; their logits are in memory at once
SURE = 0.9  # a probability of EOS; above it, 1 - p has too few digits in float32
QUEUED = 4  # batches waiting per worker: enough to keep it busy, few enough for early results

# Settings that it has without conditions. Those that `unsupported` does not know must have their defaults.
SUPPORTED = ("alpha", "length_penalty", "max_length", "max_ratio", "max_source", "batch_tokens")
FEATURES = {
    "sampling": "its samples depend on the batch",
    "alignments": "it does not return its attention",
    "constraints": "its search has none",
    "glossary": "its search has no constraints",
    "prefixes": "it finishes and continues a prefix by other rules",
    "targets": "it scores only translations that it found",
}


class CTranslate2Engine:
    """Implements `Engine` with an exported model.

    `max_length` is the length of its position table; CTranslate2 fails on longer sequences. `quantization` is the type
    of the weights, `source` the SHA-256 of the model file that was exported, if known. `tokens` are CTranslate2's names
    of the subwords of both sides, if they are not the pieces, and `source_end` ends each source.
    """

    name = "ctranslate2"

    def __init__(
        self,
        translator: Any,
        src_vocab: Vocabulary,
        tgt_vocab: Vocabulary,
        search: SearchConfig,
        *,
        max_length: int,
        quantization: str,
        source: str | None = None,
        languages: Sequence[Languages] = (),
        tags: Mapping[str, str] | None = None,
        tokens: tuple[list[str], list[str]] | None = None,
        source_end: Sequence[str] = (),
    ) -> None:
        self.translator, self.src_vocab, self.tgt_vocab, self.search = translator, src_vocab, tgt_vocab, search
        self.max_length: int | None = max_length
        self.quantization, self.source = quantization, source
        self.languages, self.tags = languages, tags or {}
        self._src_pieces, self._tgt_pieces = tokens or (
            [vocab.piece(i) for i in range(len(vocab))] for vocab in (src_vocab, tgt_vocab)
        )
        self._source_end = source_end
        self._tgt_ids = {piece: i for i, piece in enumerate(self._tgt_pieces)}
        workers = int(translator.num_translators)
        self.place = f"on {translator.device}, {workers} worker{'' if workers == 1 else 's'} of CTranslate2"
        self._in_flight = QUEUED * workers

    def unsupported(self, search: SearchConfig, requested: Collection[str] = ()) -> list[Unsupported]:
        """Returns the search settings and features under which the results would not be those of the PyTorch engine."""
        widest = (len(self._tgt_pieces) - 1) // 2  # a step ranks 2 * beam subwords of the first row, except padding
        greedy = "it supports a larger value only with `beam` 1"
        checks = (
            ("stop", "count", search.stop == "count", "it stops by count only"),
            ("beam", widest, search.beam <= widest, "its beam is at most half of the vocabulary"),
            ("min_length", 1, search.beam == 1 or search.min_length <= 1, greedy),
            ("no_repeat_ngram", 0, search.beam == 1 or search.no_repeat_ngram == 0, greedy),
            ("suppress", (), search.beam == 1 or not search.suppress, greedy),
            ("repetition_penalty", 1.0, search.repetition_penalty == 1, "it scales logits, not log-probabilities"),
        )
        settings = [
            Unsupported(name, reason, getattr(search, name), nearest) for name, nearest, ok, reason in checks if not ok
        ]
        known = {*SUPPORTED, *(name for name, *_ in checks)}
        for name in keys_of(SearchConfig):
            value, default = getattr(search, name), getattr(SearchConfig, name)
            if name not in known and value != default and not idle_because(search, name):
                settings.append(Unsupported(name, "it has no such setting", value, default))
        return settings + [Unsupported(name, reason) for name, reason in FEATURES.items() if name in requested]

    def align(
        self, pairs: Sequence[Pair], words: Sequence[tuple[Sequence[int], Sequence[int]]], batch_tokens: int
    ) -> list[Links]:
        raise NotImplementedError("unsupported")

    def token_logprobs(
        self, pairs: Sequence[Pair], batch_tokens: int, done: Callable[[], None]
    ) -> list[tuple[float, ...]]:
        raise NotImplementedError("unsupported")

    def translate(
        self, sources: Sequence[Source], search: SearchConfig, options: TranslateOptions
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yields hypotheses as `Engine.translate`; they are those of the PyTorch engine except at near-ties.

        All workers search batches. `token_logprobs` take another pass, and are computed only for JSON.
        """
        assert not self.unsupported(search)
        under_way: deque[tuple[range, list[Any]]] = deque()
        for batch in _batches([len(source.tokens) for source in sources], search.batch_tokens):
            if len(under_way) == self._in_flight:
                yield from self._results(*under_way.popleft(), sources, search, options)
            members = [sources[i] for i in batch]
            under_way.append((batch, self._start(members, max(source.limit for source in members), search)))
        while under_way:
            yield from self._results(*under_way.popleft(), sources, search, options)

    def _start(
        self, sources: Sequence[Source], limit: int, search: SearchConfig, *, keep_all: bool = False
    ) -> list[Any]:
        """Starts a search. With `keep_all`, it returns every hypothesis that has finished by `limit`, provided that
        fewer than `beam` had finished before the last step."""
        factor = 2 if keep_all and search.beam > 1 else 1
        futures: list[Any] = self.translator.translate_batch(
            [self._source(source.tokens) for source in sources],
            asynchronous=True,
            beam_size=search.beam,
            num_hypotheses=factor * search.beam,
            patience=factor,
            length_penalty=NO_PENALTY,
            max_input_length=0,  # do not truncate sources
            max_decoding_length=limit,
            min_decoding_length=min(search.min_length, limit),
            no_repeat_ngram_size=search.no_repeat_ngram,
            suppress_sequences=[[self._tgt_pieces[i]] for i in suppressed_ids(search, self.tgt_vocab)] or None,
            return_scores=True,
            return_end_token=True,
        )
        return futures

    def _results(
        self,
        batch: range,
        futures: Sequence[Any],
        sources: Sequence[Source],
        search: SearchConfig,
        options: TranslateOptions,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        again: dict[int, list[int]] = defaultdict(list)
        for i, hyps in zip(batch, self._found([sources[i] for i in batch], futures, search), strict=True):
            limit = self._search_again(hyps, sources[i].limit, search, options.nbest)
            if limit is None:
                yield i, self._best(sources[i], hyps, options)
            else:
                again[limit].append(i)
        for limit, numbers in again.items():
            members = [sources[i] for i in numbers]
            futures = self._start(members, limit, search, keep_all=True)
            for i, hyps in zip(numbers, self._found(members, futures, search), strict=True):
                yield i, self._best(sources[i], hyps, options)

    def _best(self, source: Source, hyps: Sequence[Hypothesis], options: TranslateOptions) -> list[Hypothesis]:
        best = _ranked(hyps)[: options.nbest]
        if options.form != "json":
            return best
        scored = self.score([source.tokens] * len(best), [hyp.tokens for hyp in best])
        return [
            dataclasses.replace(hyp, token_logprobs=tuple(logprobs if hyp.finished else logprobs[:-1]))
            for hyp, logprobs in zip(best, scored, strict=True)
        ]

    def _found(self, sources: Sequence[Source], futures: Sequence[Any], search: SearchConfig) -> list[list[Hypothesis]]:
        """Returns the hypotheses of each source, with log-probabilities under the whole vocabulary."""
        results = [future.result() for future in futures]
        tokens = [[[self._tgt_ids[piece] for piece in pieces] for pieces in result.hypotheses] for result in results]
        sums = [list(result.scores) for result in results]
        if search.min_length or search.no_repeat_ngram or search.suppress:
            bests = [(of_one[0], sums_of_one[0]) for of_one, sums_of_one in zip(tokens, sums, strict=True)]
            gains = self._gains([source.tokens for source in sources], bests, search)
            sums = [[logprob - gain for logprob in of_one] for of_one, gain in zip(sums, gains, strict=True)]
        return [_hypotheses(*pair, search) for pair in zip(tokens, sums, strict=True)]

    def _gains(
        self, sources: Sequence[Sequence[int]], results: Sequence[tuple[list[int], float]], search: SearchConfig
    ) -> list[float]:
        """Returns how much the engine's sums of each source exceed those under the whole vocabulary.

        `results` holds the tokens and the sum of one hypothesis per source.
        """
        gains: dict[int, float] = {}
        if search.min_length == 1 and not search.no_repeat_ngram and not search.suppress:
            # EOS was removed in the first step. One step costs a sixth of scoring a hypothesis, but its float32 has
            # too few digits for 1 - p if p is close to 1.
            eos = (math.exp(logprob) for (logprob,) in self.score(sources, [[]] * len(sources)))
            gains = {i: -math.log1p(-p) for i, p in enumerate(eos) if p < SURE}
        rest = [i for i in range(len(sources)) if i not in gains]
        if rest:
            scored = self.score([sources[i] for i in rest], [_without_eos(results[i][0]) for i in rest])
            for i, logprobs in zip(rest, scored, strict=True):
                tokens, logprob = results[i]
                gains[i] = logprob - math.fsum(logprobs[: len(tokens)])
        return [gains[i] for i in range(len(sources))]

    def _search_again(self, hyps: Sequence[Hypothesis], limit: int, search: SearchConfig, nbest: int) -> int | None:
        """Returns the limit with which a sentence must be searched again, or None if the n best were found."""
        lengths = [len(hyp.tokens) + hyp.finished for hyp in hyps]
        if max(lengths) > limit:
            return limit
        if search.beam == 1:
            return None
        if not all(hyp.finished for hyp in hyps):
            return limit  # unfinished hypotheses take the places of finished ones
        # Fewer than `beam` had finished before the last step, so one of these finished in it. What was left out is not
        # longer than the longest of them and not more probable than the least probable.
        kind, last = search.length_penalty, max(lengths)
        least = min(hyp.logprob for hyp in hyps)
        bound = least / max(length_penalty(n, search.alpha, kind) for n in (1, last))
        return None if _ranked(hyps)[nbest - 1].score >= bound else last

    def _source(self, tokens: Sequence[int]) -> list[str]:
        """Returns the pieces of a source; CTranslate2 adds EOS, or `source_end` does if the model needs one."""
        return [*(self._src_pieces[i] for i in tokens[:-1]), *self._source_end]

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Returns the log-probabilities of each target's subwords and of EOS after them. Sources end in EOS."""
        results = self.translator.score_batch(
            [self._source(source) for source in sources],
            [[self._tgt_pieces[i] for i in target] for target in targets],
            max_batch_size=SCORED_TOKENS,
            batch_type="tokens",
            max_input_length=0,
        )
        return [list(result.log_probs) for result in results]


def _hypotheses(translations: Sequence[list[int]], logprobs: Sequence[float], search: SearchConfig) -> list[Hypothesis]:
    hypotheses = []
    for tokens, logprob in zip(translations, logprobs, strict=True):
        if math.isnan(logprob):
            raise VtransError("the engine returns NaN, so the exported weights are damaged; export the model again.")
        score = logprob / length_penalty(max(len(tokens), 1), search.alpha, search.length_penalty)
        bare = _without_eos(tokens)
        hypotheses.append(Hypothesis(tuple(bare), logprob, score, len(bare) < len(tokens), ()))
    return hypotheses


def _without_eos(tokens: list[int]) -> list[int]:
    return tokens[:-1] if tokens[-1:] == [EOS_ID] else tokens


def _ranked(hyps: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Returns the finished hypotheses, best first and at equal scores the shorter first, or the most probable one."""
    finished = [hyp for hyp in hyps if hyp.finished]
    if not finished:
        return [max(hyps, key=lambda hyp: hyp.logprob)]
    return sorted(finished, key=lambda hyp: (-hyp.score, len(hyp.tokens)))


def _batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[range]:
    """Yields consecutive sources that fit into `batch_tokens` padded subwords, at least one."""
    start, longest = 0, 0
    for i, length in enumerate(lengths):
        longest = max(longest, length)
        if i > start and (i + 1 - start) * longest > batch_tokens:
            yield range(start, i)
            start, longest = i, length
    if lengths:
        yield range(start, len(lengths))
