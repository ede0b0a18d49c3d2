"""The engines torch and compiled: one model, or an ensemble, with all search settings, constraints and shortlists."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vtrans.checkpoint import LoadedModel, arrays_of
from vtrans.compiled.decoder import CompiledDecoder
from vtrans.config import DECODING_PRECISIONS, SearchConfig
from vtrans.engines.alignments import Links, align
from vtrans.engines.engine import Source, suppressed_ids
from vtrans.engines.forced import Pair, token_logprobs
from vtrans.engines.incremental import IncrementalDecoder
from vtrans.engines.shortlist import Candidates, shortlisted
from vtrans.errors import InputError
from vtrans.numerics.seeds import derived_seed
from vtrans.search.banks import Banks, width_of
from vtrans.search.beam import beam_search
from vtrans.search.ensemble import Ensemble
from vtrans.search.lexical import phrase_tokens
from vtrans.search.loop import Decoder, Hypothesis
from vtrans.search.rules import Rules
from vtrans.search.sampling import sample
from vtrans.text.vocabulary import BOS_ID, EOS_ID
from vtrans.translate.translation import TranslateOptions
from vtrans.wording.avoid import Avoided, Spelling
from vtrans.wording.phrases import continues_word


class TorchEngine:
    """Implements `Engine` with models on one `device`.

    The probabilities of several models are averaged by `weights`, which need not sum to 1; by default they are equal.
    With `shortlist`, the search is limited to the subwords that the first model's shortlist has for a sentence.
    `precision` is that of IncrementalDecoder. With `library`, this is the engine compiled: CompiledDecoder searches,
    and torch computes word alignments and the log-probabilities of given translations. Raises InputError if the models'
    vocabularies differ or there is no shortlist.
    """

    def __init__(
        self,
        models: Sequence[LoadedModel],
        weights: Sequence[float] | None = None,
        *,
        shortlist: bool = False,
        precision: str = DECODING_PRECISIONS[0],
        library: ctypes.CDLL | None = None,
    ) -> None:
        self.name = "compiled" if library else "torch"
        self.models = list(models)
        self.weights = normalized(weights, len(self.models))
        first = self.models[0]
        self.src_vocab, self.tgt_vocab, self.search = first.src_vocab, first.tgt_vocab, first.search
        self.languages, self.tags = first.languages, first.tags
        for number, other in enumerate(self.models[1:], 2):
            if _subwords(first) != _subwords(other):
                raise InputError(
                    f"model {number} of the ensemble has another vocabulary or other tags than model 1; combine only "
                    "models that were trained on the same data folder."
                )
        self._transformers = [loaded.model for loaded in self.models]
        self.device = next(self._transformers[0].parameters()).device
        self.max_length = min((t.max_length for t in self._transformers if t.max_length), default=None)
        self._candidates, common = None, list[int]()
        if shortlist:
            if first.shortlist is None:
                raise InputError(
                    "`shortlist` needs a model with a shortlist, but this one has none; run `vtrans shortlist` on it."
                )
            joint = first.joint
            tags = [id for tag in first.tags.values() if joint and (id := self.tgt_vocab.id_of(tag)) is not None]
            self._candidates = Candidates(first.shortlist, len(self.tgt_vocab), joint, tags)
            common = self._candidates.common_V.nonzero()[0].tolist()
        self.decoders: Sequence[IncrementalDecoder | CompiledDecoder] = [
            CompiledDecoder(arrays_of(t), library, precision, common) if library else IncrementalDecoder(t, precision)
            for t in self._transformers
        ]

    def translate(
        self, sources: Sequence[Source], search: SearchConfig, options: TranslateOptions
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        groups: dict[int, list[int]] = {}  # by width of the beam; those without phrases are a group of their own
        for i, source in enumerate(sources):
            groups.setdefault(width_of(source.phrases, search.beam) if source.phrases else 0, []).append(i)
        for width, indices in groups.items():
            members = [sources[i] for i in indices]
            for i, hypotheses in self._search(members, search, options, phrases=width > 0):
                yield indices[i], hypotheses

    def _search(
        self, sources: Sequence[Source], search: SearchConfig, options: TranslateOptions, *, phrases: bool
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Searches for translations of sources, or samples them. Either all sources have phrases, or none has."""
        decoder, rules = self.decoder(sources), self.rules(sources, search)
        tokens, limits = [source.tokens for source in sources], [source.limit for source in sources]
        sampling = options.sampling
        if sampling is None:
            return beam_search(
                decoder,
                tokens,
                limits,
                config=search,
                nbest=options.nbest,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                rules=rules,
                abandoned=options.abandoned,
                banks=Banks([s.phrases for s in sources], self._continues_V, search.beam) if phrases else None,
            )
        return sample(
            decoder,
            tokens,
            limits,
            sampling=sampling,
            seeds=[derived_seed("sample", sampling.seed, source.name) for source in sources],
            nbest=options.nbest,
            # Many samples fill a batch with few sentences: it gets no more rows than in a search.
            batch_tokens=search.batch_tokens * search.beam // max(options.nbest, search.beam),
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            rules=rules,
            abandoned=options.abandoned,
        )

    @cached_property
    def _continues_V(self) -> NDArray[np.bool_]:
        return np.array([continues_word(self.tgt_vocab, i) for i in range(len(self.tgt_vocab))])

    @cached_property
    def _starts_V(self) -> NDArray[np.bool_]:
        texts = [self.tgt_vocab.text_of(i) for i in range(len(self.tgt_vocab))]
        return np.array([i == EOS_ID or text.startswith(" ") for i, text in enumerate(texts)])

    @cached_property
    def _spelling(self) -> Spelling:
        return Spelling(self.tgt_vocab)

    def decoder(self, sources: Sequence[Source]) -> Decoder[Any]:
        """Returns the models as one decoder, with their shortlists."""
        parts: list[Decoder[Any]] = list(self.decoders)
        if self._candidates:
            forced = [(*source.prefix.tokens, *phrase_tokens(source.phrases)) for source in sources]
            parts = [shortlisted(decoder, self._candidates, forced) for decoder in self.decoders]
        return parts[0] if len(parts) == 1 else Ensemble(parts, self.weights)

    def rules(self, sources: Sequence[Source], search: SearchConfig) -> Rules | None:
        """Returns the rules for the translations of these sources; None if there are none."""
        prefixes = [source.prefix for source in sources]
        some = any(prefix.tokens for prefix in prefixes)
        avoid = [source.avoid for source in sources]
        suppressed = suppressed_ids(search, self.tgt_vocab)
        if not search.has_rules and not some and not any(avoid):
            return None
        return Rules(
            EOS_ID,
            prefixes if some else (),
            self._starts_V if any(prefix.closed for prefix in prefixes) else None,
            search.min_length,
            search.no_repeat_ngram,
            search.repetition_penalty,
            suppressed,
            Avoided(self._spelling, avoid).completing if any(avoid) else None,
        )

    @torch.inference_mode()
    def align(
        self, pairs: Sequence[Pair], words: Sequence[tuple[Sequence[int], Sequence[int]]], batch_tokens: int
    ) -> list[Links]:
        return align(self._transformers, self.weights, pairs, words, batch_tokens)

    @torch.inference_mode()
    def token_logprobs(
        self, pairs: Sequence[Pair], batch_tokens: int, done: Callable[[], None] = lambda: None
    ) -> list[tuple[float, ...]]:
        return token_logprobs(self._transformers, self.weights, pairs, batch_tokens, done)


def _subwords(loaded: LoadedModel) -> tuple[str, str, Mapping[str, str]]:
    """Returns what equal ids of two models need to have in common to mean the same."""
    return loaded.src_vocab.digest, loaded.tgt_vocab.digest, loaded.tags


def normalized(weights: Sequence[float] | None, models: int) -> tuple[float, ...]:
    """Returns the weights of an ensemble, scaled to sum to 1. Raises InputError for invalid weights."""
    if models == 0:
        raise InputError("there is no model to translate with; give a run folder or a model file.")
    if weights is None:
        return (1 / models,) * models
    if len(weights) != models:
        raise InputError(f"`weights` must have one number per model, {models}, got {len(weights)}.")
    for weight in weights:
        if not 0 < weight < math.inf:
            raise InputError(
                f"`weights` must be above 0, got {weight}; to give a model no weight, leave the model out."
            )
    if models == 1:
        raise InputError("`weights` needs several models, but there is only one; leave it out.")
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)
