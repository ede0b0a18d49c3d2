"""Minimum Bayes risk decoding: utilities equal sacrebleu, and the choice equals the definition."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from drawn import seeded
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from translators import sentences, translator, vocabulary

from vtrans.search import mbr
from vtrans.search.loop import Hypothesis
from vtrans.search.mbr import UTILITIES, ranked
from vtrans.search.options import Mbr, Sampling
from vtrans.system.errors import InputError
from vtrans.translate.steps.search import chosen
from vtrans.translate.translation import TranslateOptions, Translation

METRICS: dict[str, Any] = {"chrf": CHRF(), "bleu": BLEU(effective_order=True)}
ODD = [
    "",
    " ",
    "a",
    "aa",
    "a" * 20,
    "a b",
    " a  b ",
    "ab",
    "5€.",
    "5 € .",
    "日本語。",
    "&quot;3.4&quot;, a-b",
    "the the",
]


def hypotheses(texts: Sequence[str], seed: int = 0) -> list[Hypothesis]:
    """Returns hypotheses for these texts, with random log-probabilities, which differ."""
    numbers = seeded(seed)
    return [Hypothesis((number,), -numbers.random(), 0.0, True, ()) for number in range(len(texts))]


def one_of(texts: Sequence[str], seed: int) -> list[str]:
    numbers = seeded(seed)
    return numbers.choices(texts, k=numbers.randint(1, 30))


def brute_force(texts: Sequence[str], metric: str) -> dict[str, float]:
    """Returns the expected utility of each text, with one call of sacrebleu for each pair."""
    return {
        hyp: sum(METRICS[metric].sentence_score(hyp, [ref]).score for ref in texts) / len(texts) for hyp in set(texts)
    }


@pytest.mark.parametrize("metric", UTILITIES)
@pytest.mark.parametrize("block", [3, 4096])
def test_utilities_equal_sacrebleu(metric: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mbr, "COUNTED_NGRAMS", block)
    for texts in (ODD, sentences(20), ["".join(seeded(i).choices("ab c.", k=i)) for i in range(20)]):
        expected = [[METRICS[metric].sentence_score(hyp, [ref]).score for ref in texts] for hyp in texts]
        found = UTILITIES[metric](texts)
        if metric == "chrf":
            assert found.tolist() == expected
        else:  # numpy's exponential may differ in the last bit
            assert found == pytest.approx(np.array(expected), rel=1e-13)


@pytest.mark.parametrize("metric", UTILITIES)
@pytest.mark.parametrize("seed", range(5))
def test_the_ranking_equals_its_definition_in_any_order(metric: str, seed: int) -> None:
    texts = one_of([*sentences(12, seed), "a dog", ""], seed)
    own = hypotheses(texts, seed)
    hyps = ranked(own, texts, UTILITIES[metric])
    expected = brute_force(texts, metric)
    assert {texts[hyp.tokens[0]]: hyp.score for hyp in hyps} == pytest.approx(expected)
    assert len(hyps) == len(expected)
    assert [hyp.score for hyp in hyps] == sorted((hyp.score for hyp in hyps), reverse=True)
    for hyp in hyps:  # the most probable hypothesis stands for its text
        same = [other for other, text in zip(own, texts, strict=True) if text == texts[hyp.tokens[0]]]
        assert hyp.logprob == max(other.logprob for other in same)
    order = seeded(seed).sample(range(len(texts)), len(texts))
    assert ranked([own[i] for i in order], [texts[i] for i in order], UTILITIES[metric]) == hyps


LINES = ["a dog runs", "", "the cat sleeps in the park", "ein Hund läuft", "dog " * 40]


def check(found: list[list[Translation]], candidates: list[list[Translation]], metric: str, n: int) -> None:
    """Asserts that the first lines, which have one piece each, get the n best of their candidates."""
    for best, others in list(zip(found, candidates, strict=True))[:4]:
        expected = brute_force([t.text for t in others if t.score > -np.inf], metric) if others[0].tokens else {}
        kept = [t for t in best if t.score > -np.inf]
        assert len(best) == n
        if not expected:
            assert {t.text for t in best} == {""}
            continue
        assert len(kept) == min(n, len(expected))
        assert [t.score for t in kept] == pytest.approx(sorted(expected.values(), reverse=True)[:n])
        assert {t.text: t.score for t in kept} == pytest.approx({t.text: expected[t.text] for t in kept})


@pytest.mark.parametrize("metric", UTILITIES)
def test_the_candidates_are_the_hypotheses_of_the_search_or_samples(metric: str) -> None:
    made = translator(beam=5)
    nbest = partial(made.nbest, raw=True)  # with the U+FFFD that the metric has seen
    check(list(nbest(LINES, 2, mbr=Mbr(metric))), list(nbest(LINES, 5)), metric, 2)
    draw = Sampling(seed=3, epsilon=0.01)
    hyps = list(nbest(LINES, 3, draw, mbr=Mbr(metric, samples=9)))
    check(hyps, list(nbest(LINES, 9, draw)), metric, 3)
    assert list(made.translate(LINES, draw, mbr=Mbr(metric, samples=9), raw=True)) == [best[0].text for best in hyps]
    (usual,) = nbest(LINES[:1], 2, draw, mbr=Mbr(metric))
    check([usual], list(nbest(LINES[:1], 64, draw)), metric, 2)


def test_candidates_that_are_too_few_are_refused() -> None:
    with pytest.raises(InputError, match=r"`beam` .*1"):
        translator(beam=1).nbest(LINES, mbr=Mbr())
    with pytest.raises(InputError, match=r"`nbest` .*`mbr_samples` \(8\).* 9"):
        translator().nbest(LINES, 9, Sampling(), mbr=Mbr(samples=8))
    with pytest.raises(InputError, match=r"`mbr_samples` .* 8"):
        translator().nbest(LINES, mbr=Mbr(samples=8))
    for samples in (1, 5000):
        with pytest.raises(InputError, match=f"`mbr_samples` .*{samples}"):
            Mbr(samples=samples)
    with pytest.raises(InputError, match=r"`mbr` .*chrf, bleu.*ter"):
        Mbr("ter")


def test_the_best_hypothesis_of_a_text_stands_for_all_that_spell_it() -> None:
    vocab = vocabulary()
    whole = tuple(vocab.encode("park"))
    letters = tuple(id for letter in "\u2581park" if (id := vocab.id_of(letter)) is not None)
    assert vocab.decode(letters) == vocab.decode(whole)
    other = tuple(vocab.encode("Hund"))
    hyps = [Hypothesis(tokens, -i, -i, True, ()) for i, tokens in enumerate((whole, letters, other))]
    assert chosen(hyps, TranslateOptions(2), vocab) == [hyps[0], hyps[2]]
    assert chosen(hyps, TranslateOptions(1), vocab) == hyps[:1]
    samples = TranslateOptions(3, sampling=Sampling())
    assert chosen(hyps, samples, vocab) == hyps
