"""The common base of both engines: one model, or an ensemble, with all search settings, rules and shortlists.

Legend: S source length with EOS, T target length, M models.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtrans.config import SearchConfig
from vtrans.engines.alignments import Links, links
from vtrans.engines.candidates import Candidates
from vtrans.engines.engine import Engine, Source
from vtrans.search.banks import banked_search, width_of
from vtrans.search.beam import beam_search
from vtrans.search.decoder import Decoder, Ensemble, SubwordPair, bad_logprobs
from vtrans.search.lexical import phrase_tokens
from vtrans.search.loop import Hypothesis, SearchTask
from vtrans.search.options import Sampling
from vtrans.search.rules import Rule, RuleSet, begin_ids
from vtrans.search.sampling import sample
from vtrans.storage.model_file import Model
from vtrans.system.errors import InputError
from vtrans.system.seeds import derived_seed
from vtrans.text.piece_table import is_byte
from vtrans.text.vocabulary import EOS_ID
from vtrans.text.words import is_word


class ModelEngine(Engine, ABC):
    """An engine, except for how decoders and forced passes compute.

    The probabilities of several models are averaged by `weights`, which need not sum to 1; by default they are equal.
    With `shortlist`, the search is limited to the subwords that the first model's shortlist has for a sentence. Raises
    InputError if the models' vocabularies differ or there is no shortlist.
    """

    decoders: Sequence[Decoder[Any]]
    """A decoder for each model."""
    beam_search = staticmethod(beam_search)
    """Searches with such a decoder. An engine may have another function that finds the same in less time."""

    def __init__(self, models: Sequence[Model[Any]], weights: Sequence[float] | None, *, shortlist: bool) -> None:
        self.models = list(models)
        self.weights = normalized(weights, len(self.models))
        first = self.models[0]
        self.src_vocab, self.tgt_vocab, self.settings = first.src_vocab, first.tgt_vocab, first.search
        self.languages, self.tags = first.languages, first.tags
        for number, other in enumerate(self.models[1:], 2):
            if _subwords(first) != _subwords(other):
                raise InputError(
                    f"model {number} of the ensemble has another vocabulary or other tags than model 1; combine only "
                    "models that were trained on the same data folder."
                )
        lengths = [loaded.model.config.max_length for loaded in models]
        self.max_length = min((length for length in lengths if length), default=None)
        self._candidates: Candidates | None = None
        if shortlist:
            if first.shortlist is None:
                raise InputError(
                    "`shortlist` needs a model with a shortlist, but this one has none; run `vtrans shortlist` on it."
                )
            joint = first.joint
            tags = [id for tag in first.tags.values() if joint and (id := self.tgt_vocab.id_of(tag)) is not None]
            begin = begin_ids(first.search, self.tgt_vocab)
            self._candidates = Candidates(first.shortlist, len(self.tgt_vocab), joint, tags, begin)

    @abstractmethod
    def _listed_decoders(self, candidates: Candidates, forced: Sequence[Sequence[int]]) -> Sequence[Decoder[Any]]:
        """Returns a decoder for each model, restricted to the candidates and the `forced` subwords of a sentence.
        Sentences enter in the order of these."""

    @abstractmethod
    def _attention(
        self, model: int, pairs: Sequence[SubwordPair], batch_tokens: int
    ) -> Iterator[tuple[int, NDArray[np.floating]]]:
        """Yields the index of each pair, which has a target, and a model's attention [T, S] that aligns its subwords.
        Both sides may be longer than the pair. The order is the same for all models."""

    @abstractmethod
    def _logprobs(
        self, model: int, pairs: Sequence[SubwordPair], batch_tokens: int
    ) -> Iterator[tuple[int, Sequence[float] | NDArray[np.floating]]]:
        """Yields the index of each pair, which has a target, and the natural log-probability of each subword of its
        target by a model. The order is the same for all models."""

    def search(
        self,
        sources: Sequence[Source],
        config: SearchConfig,
        *,
        rules: Sequence[Rule],
        nbest: int = 1,
        sampling: Sampling | None = None,
        abandoned: Callable[[], bool] | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        groups: dict[int, list[int]] = {}  # by width of the beam; those without phrases are a group of their own
        for i, source in enumerate(sources):
            groups.setdefault(width_of(source.phrases, config.beam) if source.phrases else 0, []).append(i)
        for width, indices in groups.items():
            members = [sources[i] for i in indices]
            own = {i: source.rules for i, source in enumerate(members) if source.rules}
            tokens, limits = [source.tokens for source in members], [source.limit for source in members]
            task = SearchTask(tokens, limits, config, nbest, RuleSet(rules, own), abandoned)
            decoders = self.decoders
            if self._candidates:
                forced = [(*source.prefix, *phrase_tokens(source.phrases)) for source in members]
                decoders = self._listed_decoders(self._candidates, forced)
            decoder = decoders[0] if len(decoders) == 1 else Ensemble(decoders, self.weights)
            if sampling is not None:
                seeds = [derived_seed("sample", sampling.seed, source.name) for source in members]
                found = sample(decoder, task, sampling, seeds)
            elif width:
                found = banked_search(decoder, task, [source.phrases for source in members], self._continues_V)
            else:
                found = self.beam_search(decoder, task)
            for i, hypotheses in found:
                yield indices[i], hypotheses

    @cached_property
    def _continues_V(self) -> NDArray[np.bool_]:
        """Whether a subword may continue the word before it. A single byte may be part of a letter."""
        texts = map(self.tgt_vocab.text_of, range(len(self.tgt_vocab)))
        return np.array([i > EOS_ID and (is_byte(text) or is_word(text[0])) for i, text in enumerate(texts)])

    def align(
        self, pairs: Sequence[SubwordPair], words: Sequence[tuple[Sequence[int], Sequence[int]]], batch_tokens: int
    ) -> list[Links]:
        alignments: list[Links] = [()] * len(pairs)
        for i, parts in _given(pairs, self._attention, batch_tokens, len(self.models)):
            attention_TS = np.sum([weight * part for weight, part in zip(self.weights, parts, strict=True)], axis=0)
            alignments[i] = links(attention_TS, *words[i])
        return alignments

    def token_logprobs(
        self, pairs: Sequence[SubwordPair], batch_tokens: int, done: Callable[[], None] = lambda: None
    ) -> list[tuple[float, ...]]:
        logprobs: list[tuple[float, ...]] = [()] * len(pairs)
        log_weights_M1 = np.log(self.weights)[:, None]
        for i, parts in _given(pairs, self._logprobs, batch_tokens, len(self.models)):
            logprobs_MT = np.array(parts, dtype=np.float64)
            if np.isnan(logprobs_MT).any():
                raise bad_logprobs()
            # Clamped as in the search: rounding may leave a certain subword above 0.
            mean_T = np.minimum(np.logaddexp.reduce(logprobs_MT + log_weights_M1), 0.0)
            logprobs[i] = tuple(mean_T.tolist())
            done()
        return logprobs


def _given(
    pairs: Sequence[SubwordPair], compute: Callable[..., Iterator[tuple[int, Any]]], batch_tokens: int, models: int
) -> Iterator[tuple[int, list[Any]]]:
    """Yields the index of each pair that has a target, and what each model computes for it."""
    given = [i for i, (_, target) in enumerate(pairs) if target]
    some = [pairs[i] for i in given]
    for found in zip(*(compute(model, some, batch_tokens) for model in range(models)), strict=True):
        yield given[found[0][0]], [part for _, part in found]


def _subwords(loaded: Model[Any]) -> tuple[str, str, Mapping[str, str]]:
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
