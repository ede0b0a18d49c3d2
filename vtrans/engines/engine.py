"""The interface between Translator and what runs the models: torch_engine.py or compiled_engine.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vtrans.config import SearchConfig
from vtrans.engines.alignments import Links
from vtrans.search.decoder import SubwordPair
from vtrans.search.lexical import LexicalConstraint
from vtrans.search.loop import Hypothesis
from vtrans.search.options import Sampling
from vtrans.search.rules import Rule
from vtrans.storage.model_file import Model
from vtrans.text.languages import Languages
from vtrans.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Source:
    """A line to translate, or a piece of a long line."""

    tokens: list[int]  # subwords with EOS, and with the tag of the target language if there is one
    limit: int  # most target subwords, EOS included
    name: str  # "line/piece"; a sample is a function of this name and its seed
    prefix: tuple[int, ...] = ()  # the beginning of its translation, which one of the rules determines
    phrases: tuple[LexicalConstraint, ...] = ()  # that its translation contains
    rules: tuple[Rule, ...] = ()  # of its translation alone


class Engine(Protocol):
    """A model, or an ensemble, that translates."""

    name: str  # compiled or torch
    device: str  # such as cpu or cuda:0
    models: list[Model[Any]]
    src_vocab: Vocabulary
    tgt_vocab: Vocabulary
    settings: SearchConfig  # as stored with the model
    languages: Sequence[Languages]  # the pairs that the model translates, if known
    tags: Mapping[str, str]  # the subwords with which its sources begin, by target language
    max_length: int | None  # longest source and target, EOS included; None: unlimited

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
        """Yields (index into `sources`, its hypotheses, best first) in any order.

        A search finds at most `nbest` hypotheses; with `sampling`, they are that many samples. `rules` are those of all
        sources, as `rules_of` makes them from the search settings. Sources come longest first. Raises AbandonedError
        before a step if `abandoned()` is true.
        """

    def align(
        self, pairs: Sequence[SubwordPair], words: Sequence[tuple[Sequence[int], Sequence[int]]], batch_tokens: int
    ) -> list[Links]:
        """Returns the links of each pair, by decreasing attention. `words` holds, for both sides of each pair, the
        number of each subword's word, without EOS. A batch has at most `batch_tokens` subwords."""

    def token_logprobs(
        self, pairs: Sequence[SubwordPair], batch_tokens: int, done: Callable[[], None] = lambda: None
    ) -> list[tuple[float, ...]]:
        """Returns, for each pair, the natural log-probability of each subword of its target given those before it.

        Those of several models are averaged as in the search. `done` is called once per pair that has a target. Raises
        LogprobsError if a model returns NaN.
        """
