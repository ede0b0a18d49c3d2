"""Small random models, lines for them, and translators made of both, shared by the tests of several packages."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from drawn import seeded
from torch import Tensor, nn

from vtrans.config import ModelConfig, SearchConfig
from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.learn_vocabulary import learn
from vtrans.engines.alignments import Links
from vtrans.engines.engine import Engine, Source
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import LoadedModel
from vtrans.model.network import Transformer
from vtrans.search.decoder import SubwordPair
from vtrans.search.loop import Hypothesis
from vtrans.storage.model_file import Model
from vtrans.text.languages import Languages
from vtrans.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, Vocabulary
from vtrans.translate.steps.line import Constraints, Line, lines_of
from vtrans.translate.translation import Translation
from vtrans.translate.translator import Translator

WORDS = ("a", "dog", "cat", "runs", "sleeps", "in", "the", "park", "ein", "Hund", "Łódź", "läuft", "5€")
SMALL = ModelConfig(d_model=16, d_ff=24, heads=2, encoder_layers=2, decoder_layers=1, tie="src-tgt-softmax")
ONE_STACK = dataclasses.replace(SMALL, architecture="decoder-only", encoder_layers=0, decoder_layers=2)
VARIANTS = {
    "post-norm, one matrix": SMALL,
    "pre-norm, tgt-softmax": dataclasses.replace(SMALL, norm="pre", tie="tgt-softmax"),
    "learned positions, untied": dataclasses.replace(SMALL, positions="learned", max_positions=60, tie="none"),
    "shared learned positions, src-tgt": dataclasses.replace(
        SMALL, norm="pre", positions="learned", share_positions=True, max_positions=60, tie="src-tgt"
    ),
    "rotary positions": dataclasses.replace(SMALL, positions="rotary"),
    "SSRU, pre-norm": dataclasses.replace(SMALL, autoregression="ssru", norm="pre", decoder_layers=2),
    "all layers of both stacks one": dataclasses.replace(SMALL, share_stacks=True, share_layers="all"),
    "decoder-only, prefix": dataclasses.replace(ONE_STACK, norm="pre"),
    "decoder-only, causal, learned positions": dataclasses.replace(
        ONE_STACK, source_mask="causal", positions="learned", max_positions=60, tie="none"
    ),
}
SEARCH = SearchConfig(beam=3, max_length=14)


class Livelier(nn.Module):
    """A projection plus a random one: an untrained model with tied weights only repeats its last subword, whatever the
    source. `eos` is added to the logit of EOS, so that translations end."""

    def __init__(self, projection: nn.Module, vocab: int, D: int, eos: float) -> None:
        super().__init__()
        self.projection, self.weight, self.bias, self.eos = projection, projection.weight, None, eos
        self.beside = nn.Parameter(torch.randn(vocab, D, dtype=torch.float64) / 2)

    def forward(self, h_D: Tensor) -> Tensor:
        logits_V: Tensor = 0.3 * self.projection(h_D) + h_D @ self.beside.T
        logits_V[..., EOS_ID] += self.eos
        return logits_V


def learned(text: Sequence[str], size: int | None = None, *, tags: Sequence[str] = (), **settings: Any) -> Vocabulary:
    """Learns from all characters of the text, with digits inside subwords unless `settings` say otherwise."""
    options = {"character_coverage": 1.0, "split_digits": False, **settings}
    return learn(text, size, PrepareOptions(**options), tags=tags)


@cache
def vocabulary(*, symbols: tuple[str, ...] = (), tags: tuple[str, ...] = ()) -> Vocabulary:
    return learned([" ".join(order) for order in itertools.permutations(WORDS, 2)], symbols=symbols, tags=tags)


def network(config: ModelConfig, vocab: int, seed: int = 1, eos: float = 4.0) -> Transformer:
    """A small model in float64; all weights are moved away from their symmetric initial values."""
    torch.manual_seed(seed)
    model = Transformer(config, vocab, vocab, joint=True, pad_id=PAD_ID).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=0.2)
    model.projection = Livelier(model.projection, vocab, config.d_model, eos)  # type: ignore[assignment]  # called in the same way
    return model


@cache
def loaded(config: ModelConfig = SMALL, seed: int = 1) -> LoadedModel:
    vocab = vocabulary()
    return LoadedModel(network(config, len(vocab), seed), vocab, vocab, SEARCH, {"step": 1})


def translator(config: ModelConfig = SMALL, *, retry: bool = True, **search: Any) -> Translator:
    return Translator(TorchEngine([loaded(config)]), dataclasses.replace(SEARCH, **search), retry=retry)


class FakeEngine(Engine):
    """An engine that finds the texts of `answers`, which are equally probable."""

    def __init__(self, vocab: Vocabulary) -> None:
        self.name, self.settings, self.device = "fake", SEARCH, "cpu"
        self.models: list[Model[Any]] = []
        self.max_length: int | None = None
        self.languages: Sequence[Languages] = ()
        self.tags: Mapping[str, str] = {}
        self.src_vocab = self.tgt_vocab = vocab

    def answers(self, source: Source) -> list[str]:
        raise NotImplementedError

    def search(
        self, sources: Sequence[Source], config: SearchConfig, **options: Any
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        for i, source in enumerate(sources):
            ids = [tuple(self.tgt_vocab.encode(text)) for text in self.answers(source)]
            yield i, [Hypothesis(tokens, -1.0, -1.0, True, (-1.0,) * (len(tokens) + 1)) for tokens in ids]

    def align(self, pairs: Sequence[SubwordPair], words: Any, batch_tokens: int) -> list[Links]:
        return [()] * len(pairs)

    def token_logprobs(
        self, pairs: Sequence[SubwordPair], batch_tokens: int, done: Callable[[], None] = lambda: None
    ) -> list[tuple[float, ...]]:
        return [(-1.0,) * len(target) for _, target in pairs]


def window(
    lines: Iterable[str],
    prefixes: Iterable[str] | None = None,
    constraints: Iterable[Constraints] | None = None,
    first: int = 1,
) -> list[Line]:
    """Returns lines to translate together."""
    return list(lines_of(lines, prefixes, constraints, first=first))


def sentences(count: int, seed: int = 0) -> list[str]:
    """Lines of 0 to 9 words without digits, which random models would lose. Lines without letters would be copied, so
    they are blank."""
    numbers, words = seeded(seed), [word.lstrip("5") for word in WORDS]
    lines = (" ".join(numbers.choices(words, k=numbers.randrange(10))) for _ in range(count))
    return [line if any(map(str.isalpha, line)) else "" for line in lines]


def forward(models: Sequence[Transformer], source: Sequence[int], prefix: Sequence[int]) -> Tensor:
    """Log-probabilities [V] of the next subword by full forward passes; the mean probability of several models."""
    src = torch.tensor([[*source, EOS_ID]])
    tgt = torch.tensor([[BOS_ID, *prefix]])
    with torch.no_grad():
        chances = [m(src, torch.ones_like(src, dtype=torch.bool), tgt)[0, -1].softmax(-1) for m in models]
    return torch.stack(chances).mean(0).log()


def same(a: list[list[Translation]], b: list[list[Translation]]) -> bool:
    """Asserts equal texts; returns whether the log-probabilities are equal up to rounding in float64."""
    flat_a, flat_b = list(itertools.chain(*a)), list(itertools.chain(*b))
    assert [t.text for t in flat_a] == [t.text for t in flat_b]
    assert [t.finished for t in flat_a] == [t.finished for t in flat_b]
    assert [t.score for t in flat_a] == pytest.approx([t.score for t in flat_b], abs=1e-9)
    return [t.logprob for t in flat_a] == pytest.approx([t.logprob for t in flat_b], abs=1e-9)
