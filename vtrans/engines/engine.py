"""The interface between Translator and what runs the models: PyTorch, with or without compiled code
(torch_engine.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from vtrans.checkpoint import LoadedModel
from vtrans.config import SearchConfig
from vtrans.engines.alignments import Links
from vtrans.engines.forced import Pair
from vtrans.errors import InputError
from vtrans.search.lexical import Phrase
from vtrans.search.loop import Hypothesis
from vtrans.search.rules import Prefix
from vtrans.text.languages import Languages
from vtrans.text.vocabulary import EOS_ID, PAD_ID, Vocabulary
from vtrans.translate.translation import TranslateOptions

NO_PREFIX = Prefix()


@dataclass(frozen=True)
class Source:
    """A line to translate, or a piece of a long line."""

    tokens: list[int]  # subwords with EOS, and with the tag of the target language if there is one
    limit: int  # most target subwords, EOS included
    name: str  # "line/piece"; a sample is a function of this name and its seed
    prefix: Prefix = NO_PREFIX  # the beginning of its translation
    phrases: tuple[Phrase, ...] = ()  # that its translation contains
    avoid: tuple[str, ...] = ()  # phrases that its translation does not contain


class Engine(Protocol):
    """A model, or an ensemble, that translates."""

    name: str  # compiled or torch
    device: torch.device
    models: list[LoadedModel]
    src_vocab: Vocabulary
    tgt_vocab: Vocabulary
    search: SearchConfig  # as stored with the model
    languages: Sequence[Languages]  # the pairs that the model translates, if known
    tags: Mapping[str, str]  # the subwords with which its sources begin, by target language
    max_length: int | None  # longest source and target, EOS included; None: unlimited

    def translate(
        self, sources: Sequence[Source], search: SearchConfig, options: TranslateOptions
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yields (index into `sources`, its hypotheses, best first) in any order.

        There may be fewer hypotheses than `options.nbest`. Sources come longest first. The hypotheses have
        `token_logprobs` at least if `options.form` is "json".
        """

    def align(
        self, pairs: Sequence[Pair], words: Sequence[tuple[Sequence[int], Sequence[int]]], batch_tokens: int
    ) -> list[Links]:
        """Returns the links of each pair, as `alignments.align`."""

    def token_logprobs(
        self, pairs: Sequence[Pair], batch_tokens: int, done: Callable[[], None]
    ) -> list[tuple[float, ...]]:
        """Returns the log-probabilities of each pair's target, as `forced.token_logprobs`."""


def suppressed_ids(search: SearchConfig, vocab: Vocabulary) -> tuple[int, ...]:
    """Returns the ids of the subwords that `search.suppress` names. Raises InputError for one that is not in the
    vocabulary, and for the end of sentence, without which no translation would end."""
    ids = []
    for piece in search.suppress:
        id = vocab.id_of(piece)
        if id is None or id in (PAD_ID, EOS_ID):
            raise InputError(f"`suppress` must name subwords of the target vocabulary except </s>, got {piece!r}.")
        ids.append(id)
    return tuple(sorted(set(ids)))
