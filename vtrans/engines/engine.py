"""The interface between Translator and the engines, torch_engine.py and compiled_engine.py."""

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
    """A line to translate, or one piece of a long line."""

    tokens: list[int]  # source subwords, including EOS and the tag of the target language, if any
    limit: int  # maximum number of target subwords, including EOS
    name: str  # "line/piece"; a sample depends only on this name and the seed
    prefix: tuple[int, ...] = ()  # the beginning of the translation, enforced by one of `rules`
    phrases: tuple[LexicalConstraint, ...] = ()  # required in the translation
    rules: tuple[Rule, ...] = ()  # for this translation only


class Engine(Protocol):
    """A model, or an ensemble, that translates."""

    name: str  # compiled or torch
    device: str  # such as cpu or cuda:0
    models: list[Model[Any]]
    src_vocab: Vocabulary
    tgt_vocab: Vocabulary
    settings: SearchConfig  # stored with the model
    languages: Sequence[Languages]  # the language pairs of the model, if known
    tags: Mapping[str, str]  # the first subword of a source, by target language
    max_length: int | None  # maximum length of source and target, including EOS; None: unlimited

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

    def align(
        self, pairs: Sequence[SubwordPair], words: Sequence[tuple[Sequence[int], Sequence[int]]], batch_tokens: int
    ) -> list[Links]:
        """Returns the word links of each pair, by decreasing attention. `words` holds, for both sides of each pair, the
        word number of each subword except EOS. A batch has at most `batch_tokens` subwords."""

    def token_logprobs(
        self, pairs: Sequence[SubwordPair], batch_tokens: int, done: Callable[[], None] = lambda: None
    ) -> list[tuple[float, ...]]:
        """Returns, for each pair, the natural log-probability of each target subword given the preceding ones.

        Several models are averaged as in the search. `done` is called once per pair that has a target. Raises
        LogprobsError if a model returns NaN.
        """
