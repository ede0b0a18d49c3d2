"""The base class of both engines, torch_engine.py and compiled_engine.py.

Legend: S source length with EOS, T target length, M models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtrans.config import SearchConfig
from vtrans.engines.alignments import Links, links
from vtrans.engines.candidates import Candidates, More
from vtrans.search.banks import banked_search, width_of
from vtrans.search.beam import beam_search
from vtrans.search.decoder import Decoder, Ensemble, SubwordPair, bad_logprobs
from vtrans.search.lexical import LexicalConstraint, phrase_tokens
from vtrans.search.loop import Hypothesis, SearchTask
from vtrans.search.options import Sampling
from vtrans.search.rules import Rule, RuleSet, begin_ids
from vtrans.search.sampling import sample
from vtrans.storage.model_file import Model
from vtrans.system.errors import InputError
from vtrans.system.seeds import derived_seed
from vtrans.text.languages import Languages
from vtrans.text.piece_table import is_byte
from vtrans.text.vocabulary import EOS_ID, Vocabulary
from vtrans.text.words import is_word


@dataclass(frozen=True)
class Source:
    """A line to translate, or one piece of a long line."""

    tokens: list[int]  # source subwords, including EOS and the tag of the target language, if any
    limit: int  # maximum number of target subwords, including EOS
    name: str  # "line/piece"; a sample depends only on this name and the seed
    prefix: tuple[int, ...] = ()  # the beginning of the translation, enforced by one of `rules`
    phrases: tuple[LexicalConstraint, ...] = ()  # required in the translation
    rules: tuple[Rule, ...] = ()  # for this translation only


class Engine:
    """A model, or an ensemble, that translates. A subclass computes the steps of decoders and the forced passes.

    The probabilities of several models are averaged by `weights`, which need not sum to 1; by default they are equal.
    With `shortlist`, the search is restricted to the subwords that the first model's shortlist allows for a sentence.
    Raises InputError if the models' vocabularies differ or there is no shortlist.
    """

    name: str  # compiled or torch
    device: str  # such as cpu or cuda:0
    models: list[Model[Any]]
    src_vocab: Vocabulary
    tgt_vocab: Vocabulary
    settings: SearchConfig  # stored with the model
    languages: Sequence[Languages]  # the language pairs of the model, if known
    tags: Mapping[str, str]  # the first subword of a source, by target language
    max_length: int | None  # maximum length of source and target, including EOS; None: unlimited
    decoders: Sequence[Decoder[Any]]  # one per model
    beam_search = staticmethod(beam_search)
    """Runs beam search with a decoder. An engine may replace it with a faster function that gives the same results."""

    def __init__(self, models: Sequence[Model[Any]], weights: Sequence[float] | None, *, shortlist: bool) -> None:
        self.models = list(models)
        self.weights = normalized(weights, len(self.models))
        first = self.models[0]
        self.src_vocab, self.tgt_vocab, self.settings = first.src_vocab, first.tgt_vocab, first.search
        self.languages, self.tags = first.languages, first.tags
        for number, other in enumerate(self.models[1:], 2):
            if _subwords(first) != _subwords(other):
                raise InputError(
                    f"model {number} of the ensemble differs from model 1 in its vocabulary or tags; combine only "
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

    def _limited(self, model: int, candidates: Candidates, more: More) -> Decoder[Any]:
        """Returns a decoder of a model that predicts only the common candidates and `more`."""
        raise NotImplementedError

    def _attention(
        self, model: int, pairs: Sequence[SubwordPair], batch_tokens: int
    ) -> Iterator[tuple[int, NDArray[np.floating]]]:
        """Yields the index of each pair and the attention [T, S] with which a model aligns its subwords. All pairs have
        a target. Both axes may include padding. The order is the same for all models."""
        raise NotImplementedError

    def _logprobs(
        self, model: int, pairs: Sequence[SubwordPair], batch_tokens: int
    ) -> Iterator[tuple[int, Sequence[float] | NDArray[np.floating]]]:
        """Yields the index of each pair and a model's natural log-probability of each target subword. All pairs have a
        target. The order is the same for all models."""
        raise NotImplementedError

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
        """Yields (index into `sources`, hypotheses) in any order; hypotheses are sorted best first.

        A search finds at most `nbest` hypotheses per source; with `sampling`, exactly `nbest` samples. `rules` apply to
        all sources; `rules_of` makes them from the search settings. Sources must be sorted longest first. Raises
        AbandonedError before a step if `abandoned()` is true.
        """
        groups: dict[int, list[int]] = {}  # by beam width; 0: sources without phrases
        for i, source in enumerate(sources):
            groups.setdefault(width_of(source.phrases, config.beam) if source.phrases else 0, []).append(i)
        for width, indices in groups.items():
            members = [sources[i] for i in indices]
            by_sentence = {i: source.rules for i, source in enumerate(members) if source.rules}
            tokens, limits = [source.tokens for source in members], [source.limit for source in members]
            task = SearchTask(tokens, limits, config, nbest, RuleSet(rules, by_sentence), abandoned)
            decoders = self.decoders
            if self._candidates:
                forced = [(*source.prefix, *phrase_tokens(source.phrases)) for source in members]
                decoders = [
                    self._limited(model, self._candidates, self._candidates.entering(forced))
                    for model in range(len(self.models))
                ]
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
        """Whether each subword may continue the preceding word. A single byte may, because it can be part of a
        letter."""
        texts = map(self.tgt_vocab.text_of, range(len(self.tgt_vocab)))
        return np.array([i > EOS_ID and (is_byte(text) or is_word(text[0])) for i, text in enumerate(texts)])

    def align(
        self, pairs: Sequence[SubwordPair], words: Sequence[tuple[Sequence[int], Sequence[int]]], batch_tokens: int
    ) -> list[Links]:
        """Returns the word links of each pair, by decreasing attention. `words` holds, for both sides of each pair, the
        word number of each subword except EOS. A batch has at most `batch_tokens` subwords."""
        alignments: list[Links] = [()] * len(pairs)
        for i, parts in _given(pairs, self._attention, batch_tokens, len(self.models)):
            attention_TS = np.sum([weight * part for weight, part in zip(self.weights, parts, strict=True)], axis=0)
            alignments[i] = links(attention_TS, *words[i])
        return alignments

    def token_logprobs(
        self, pairs: Sequence[SubwordPair], batch_tokens: int, done: Callable[[], None] = lambda: None
    ) -> list[tuple[float, ...]]:
        """Returns, for each pair, the natural log-probability of each target subword given the preceding ones.

        Several models are averaged as in the search. `done` is called once per pair that has a target. Raises
        LogprobsError if a model returns NaN.
        """
        logprobs: list[tuple[float, ...]] = [()] * len(pairs)
        log_weights_M1 = np.log(self.weights)[:, None]
        for i, parts in _given(pairs, self._logprobs, batch_tokens, len(self.models)):
            logprobs_MT = np.array(parts, dtype=np.float64)
            if np.isnan(logprobs_MT).any():
                raise bad_logprobs()
            # Rounding may leave a certain subword above 0; clamp it, as in the search.
            mean_T = np.minimum(np.logaddexp.reduce(logprobs_MT + log_weights_M1), 0.0)
            logprobs[i] = tuple(mean_T.tolist())
            done()
        return logprobs


def _given(
    pairs: Sequence[SubwordPair], compute: Callable[..., Iterator[tuple[int, Any]]], batch_tokens: int, models: int
) -> Iterator[tuple[int, list[Any]]]:
    """Yields the index of each pair that has a target, and the result of `compute` for each model."""
    given = [i for i, (_, target) in enumerate(pairs) if target]
    some = [pairs[i] for i in given]
    for found in zip(*(compute(model, some, batch_tokens) for model in range(models)), strict=True):
        yield given[found[0][0]], [part for _, part in found]


def _subwords(loaded: Model[Any]) -> tuple[str, str, Mapping[str, str]]:
    """Returns the vocabularies and tags, which must be equal for equal ids to mean the same in two models."""
    return loaded.src_vocab.digest, loaded.tgt_vocab.digest, loaded.tags


def normalized(weights: Sequence[float] | None, models: int) -> tuple[float, ...]:
    """Returns the weights of an ensemble, scaled to sum to 1. Raises InputError for invalid weights."""
    if models == 0:
        raise InputError("no model was given; give a run folder or a model file.")
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
