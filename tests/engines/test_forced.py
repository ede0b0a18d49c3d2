"""Forced decoding: the log-probabilities that a model gives to given translations."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from drawn import each_with, some
from torch import Tensor
from translators import SEARCH, SMALL, VARIANTS, forward, loaded, network, sentences, translator, vocabulary

import vtrans.engines.forced
from vtrans.checkpoint import LoadedModel
from vtrans.console import Console
from vtrans.engines.forced import forced_batches, token_logprobs
from vtrans.engines.torch_engine import TorchEngine
from vtrans.errors import InputError, VtransError
from vtrans.model import Transformer
from vtrans.search.loop import length_penalty
from vtrans.text.vocabulary import EOS_ID, PAD_ID
from vtrans.translate.loading import load
from vtrans.translate.stream import logprob_stream
from vtrans.translate.translator import Translator

LINES = [line for line in sentences(40, seed=5) if line]


# Rescoring a translation gives the score that its search gave it.


@pytest.mark.parametrize(("max_length", "name"), each_with([0, 14, 3], list(VARIANTS)))
def test_rescoring_a_translation_gives_the_score_of_its_search(name: str, max_length: int) -> None:
    made = translator(VARIANTS[name], max_length=max_length, batch_tokens=100)
    met = []
    for translations in zip(*made.nbest(LINES, 3), strict=True):
        again = list(made.logprob(LINES, [t.tokens for t in translations]))
        for t, rescored in zip(translations, again, strict=True):
            if t.tokens:  # a place for which the search found nothing has no subwords to score
                assert (rescored.text, rescored.finished, rescored.subwords) == (t.text, t.finished, t.subwords)
                assert rescored.token_logprobs == pytest.approx(t.token_logprobs, abs=1e-9)
                assert rescored.logprob == pytest.approx(t.logprob, abs=1e-9)
                assert rescored.score == pytest.approx(t.score, abs=1e-9)
                met.append(t)
    assert len(met) >= len(LINES)
    assert any(not t.finished for t in met) or max_length != 3
    assert any(t.finished for t in met) or max_length != 0


@pytest.mark.parametrize("second", ["pre-norm, tgt-softmax", "decoder-only, prefix"])
def test_rescoring_with_an_ensemble_gives_the_score_of_its_search(second: str) -> None:
    models = [loaded(SMALL, 1), loaded(VARIANTS[second], 2)]
    for weights in (None, [1.0, 3.0]):
        made = Translator(TorchEngine(models, weights=weights), SEARCH)
        translations = [best[0] for best in made.nbest(LINES)]
        for t, rescored in zip(translations, made.logprob(LINES, [t.tokens for t in translations]), strict=True):
            assert rescored.token_logprobs == pytest.approx(t.token_logprobs, abs=1e-9)
            assert rescored.score == pytest.approx(t.score, abs=1e-9)


# Log-probabilities, compared with one full forward pass per prefix.


@pytest.mark.parametrize("name", some(VARIANTS))
def test_each_subword_is_predicted_from_those_before_it(name: str) -> None:
    vocab, model = vocabulary(), loaded(VARIANTS[name]).model
    sources, targets = LINES[:12], LINES[-12:]
    for source, target, t in zip(sources, targets, translator(VARIANTS[name]).logprob(sources, targets), strict=True):
        tokens = [*vocab.encode(target), EOS_ID]
        steps = [forward([model], vocab.encode(source), tokens[:i])[token].item() for i, token in enumerate(tokens)]
        assert t.tokens == tuple(tokens)
        assert t.subwords == tuple(vocab.piece(token) for token in tokens)
        assert t.token_logprobs == pytest.approx(steps, abs=1e-9)
        assert t.logprob == pytest.approx(math.fsum(steps), abs=1e-9)
        assert t.score == pytest.approx(math.fsum(steps) / length_penalty(len(tokens), 0.6, "gnmt"), abs=1e-9)
        assert (t.text, t.finished) == (target, True)


def test_an_ensemble_averages_probabilities_by_its_weights() -> None:
    vocab = vocabulary()
    models = [loaded(SMALL, 1), loaded(VARIANTS["pre-norm, tgt-softmax"], 2)]
    made = Translator(TorchEngine(models, weights=[6.0, 2.0]), SEARCH)
    for source, t in zip(LINES[:6], made.logprob(LINES[:6], LINES[6:12]), strict=True):
        for i, token in enumerate(t.tokens):
            chances = [forward([m.model], vocab.encode(source), t.tokens[:i])[token].exp().item() for m in models]
            assert math.exp(t.token_logprobs[i]) == pytest.approx(0.75 * chances[0] + 0.25 * chances[1], abs=1e-12)


def test_an_error_names_the_target_with_an_invalid_subword() -> None:
    for ids in ([5, PAD_ID], [-1], [len(vocabulary())], ["5"], [5.0]):
        with pytest.raises(InputError, match="target 2 "):
            list(translator().logprob(["dog", "cat"], ["Hund", ids]))  # type: ignore[list-item]  # on purpose
    with pytest.raises(InputError, match=r"target 1 .*EOS"):
        list(translator().logprob(["dog"], [[5, EOS_ID, 5, EOS_ID]]))


# Batches, order, memory.


@pytest.mark.parametrize("batch_tokens", [1, 50, 5000])
def test_log_probabilities_depend_neither_on_the_batch_nor_on_the_block(
    batch_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = list(reversed(LINES))
    alone = [next(iter(translator().logprob([a], [b]))) for a, b in zip(LINES, targets, strict=True)]
    for block in (1, 1 << 23):
        monkeypatch.setattr(vtrans.engines.forced, "LOGITS", block)
        together = list(translator(batch_tokens=batch_tokens).logprob(LINES, targets))
        for a, b in zip(alone, together, strict=True):
            assert a.tokens == b.tokens
            assert a.token_logprobs == pytest.approx(b.token_logprobs, abs=1e-9)


def test_batches_hold_pairs_of_similar_length_within_the_budget() -> None:
    pairs = [([5] * (i % 13), [6] * (i * 7 % 17)) for i in range(100)]
    seen = []
    for rows, batch in forced_batches(pairs, 60, torch.device("cpu")):
        B, S = batch.src_BS.shape
        assert B * max(S, batch.tgt_in_BT.shape[1]) <= 60
        assert batch.keep_BS.sum(1).tolist() == [len(pairs[i][0]) + 1 for i in rows]
        assert batch.targets_N.tolist() == [token for i in rows for token in pairs[i][1]]
        seen += rows
    assert sorted(seen) == [i for i, (_, target) in enumerate(pairs) if target]
    sizes = [max(len(pairs[i][0]) + 1, len(pairs[i][1])) for i in seen]
    assert sizes == sorted(sizes, reverse=True)


def test_positions_without_padding_are_projected_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    vocab = vocabulary()
    model = network(SMALL, len(vocab))
    shapes: list[tuple[int, ...]] = []

    def spied(h_D: Tensor) -> Tensor:
        shapes.append(tuple(h_D.shape))
        return Transformer.logits(model, h_D)

    monkeypatch.setattr(model, "logits", spied)
    monkeypatch.setattr(vtrans.engines.forced, "LOGITS", 4 * len(vocab))
    pairs = [([5] * n, [6] * n) for n in (9, 2, 1)]
    with torch.no_grad():
        assert [len(part) for part in token_logprobs([model], [1.0], pairs, 1000)] == [9, 2, 1]
    assert shapes == [(4, SMALL.d_model)] * 3


def test_results_come_in_order_window_by_window(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = list(reversed(LINES))
    whole = list(translator().logprob(LINES, targets))
    monkeypatch.setattr("vtrans.translate.translator.WINDOW", 3)
    read: list[int] = []

    def lines() -> Any:
        for i, line in enumerate(LINES):
            read.append(i)
            yield line

    results = translator().logprob(lines(), targets)
    assert next(results).tokens == whole[0].tokens
    assert len(read) == 3, "at most one window is read ahead"
    rest = list(results)
    assert [t.tokens for t in rest] == [t.tokens for t in whole[1:]]
    assert [t.logprob for t in rest] == pytest.approx([t.logprob for t in whole[1:]], abs=1e-9)


@pytest.mark.parametrize(("n", "m"), [(5, 4), (4, 5), (3, 2), (0, 1), (6, 12)])
def test_an_error_names_unequal_numbers_of_sources_and_targets(n: int, m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtrans.translate.translator.WINDOW", 3)
    with pytest.raises(InputError, match=rf"\b{n} sources.* {m} targets"):
        list(translator().logprob(["dog"] * n, ["Hund"] * m))


def test_one_string_in_place_of_a_list_is_an_error() -> None:
    with pytest.raises(InputError, match="`sources`"):
        translator().logprob("A dog runs.", ["Ein Hund."])
    with pytest.raises(InputError, match="`targets`"):
        translator().logprob(["A dog runs."], "Ein Hund.")


# Blank and long lines.


def test_a_blank_source_has_a_blank_target_with_probability_1() -> None:
    made = translator()
    found = list(made.logprob(["", " ", "\u200b", "", "dog"], ["", "\t", "", "Hund", ""]))
    blank = next(iter(made.nbest([""])))[0]
    assert found[:3] == [blank] * 3
    assert (found[3].text, found[3].logprob, found[3].score) == ("Hund", -math.inf, -math.inf)
    fields = found[3].as_dict()
    assert (fields["logprob"], fields["score"]) == (None, None)
    empty = forward([loaded().model], vocabulary().encode("dog"), [])[EOS_ID].item()
    assert found[4].logprob == pytest.approx(empty, abs=1e-9)
    assert (found[4].text, found[4].tokens, found[4].finished) == ("", (EOS_ID,), True)


def test_a_pair_that_is_too_long_gets_nan_and_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    search = dataclasses.replace(SEARCH, max_source=5, max_length=0)
    made = Translator(TorchEngine([loaded()]), search, Console())
    found = list(made.logprob(["dog", "dog " * 9, "cat"], ["Hund", "Hund", "cat " * 60]))
    assert [math.isnan(t.logprob) and math.isnan(t.score) for t in found] == [False, True, True]
    assert [t.as_dict()["logprob"] is None for t in found] == [False, True, True]
    warnings = " ".join(capsys.readouterr().err.split())
    assert all(part in warnings for part in ("line 2 ", "line 3 ", " 5 ", " 55"))


@pytest.mark.parametrize("name", some(VARIANTS))
def test_the_length_limit_of_the_search_does_not_limit_rescoring(name: str) -> None:
    whole = list(translator(VARIANTS[name], max_length=0).logprob(LINES, reversed(LINES)))
    capped = list(translator(VARIANTS[name], max_length=3).logprob(LINES, reversed(LINES)))
    assert any(len(t.tokens) > 3 for t in whole)
    assert capped == whole
    assert all(math.isfinite(t.logprob) for t in whole)


@pytest.mark.parametrize("form", ["NaN", "infinity"])
def test_nan_and_infinity_from_a_model_are_errors(form: str) -> None:
    vocab, model = vocabulary(), network(SMALL, len(vocabulary()))
    broken = model.decoder.get_parameter("layers.0.feed_forward.outer.bias")
    broken.data[3] = math.nan if form == "NaN" else math.inf
    broken_model = LoadedModel(model, vocab, vocab, SEARCH, {})
    made = Translator(TorchEngine([broken_model]))
    with pytest.raises(VtransError) as caught:
        list(made.logprob(["dog"], ["Hund"]))
    assert caught.value.exit_code == 1
    with pytest.raises(VtransError):
        list(Translator(TorchEngine([loaded(), broken_model])).logprob(["dog"], ["Hund"]))


@pytest.mark.parametrize("name", ["learned positions, untied", "decoder-only, causal, learned positions"])
def test_a_target_may_use_all_learned_positions_but_no_more(name: str) -> None:
    config = VARIANTS[name]
    vocab = vocabulary()
    made = Translator(
        TorchEngine([LoadedModel(network(config, len(vocab)), vocab, vocab, SEARCH, {})]),
        translator(max_length=0).search,
    )
    reach = config.max_length
    assert reach is not None
    word = vocab.encode("dog")[0]
    within, beyond = made.logprob(["dog", "dog"], [[word] * reach, [word] * (reach + 1)])
    assert len(within.token_logprobs) == reach
    assert math.isnan(beyond.logprob)


# The stream.


def test_the_stream_writes_one_line_per_pair() -> None:
    made, out = translator(), io.BytesIO()
    total = logprob_stream(made, ["dog", "", "cat"], ["Hund", "", "Łódź"], out)
    expected = list(made.logprob(["dog", "", "cat"], ["Hund", "", "Łódź"]))
    assert out.getvalue().decode() == "".join(f"{t.logprob:.6f}\t{t.score:.6f}\n" for t in expected)
    assert total == pytest.approx(sum(t.logprob for t in expected))
    out = io.BytesIO()
    logprob_stream(made, ["dog", "", "cat"], ["Hund", "", "Łódź"], out, as_json=True)
    objects = [json.loads(line) for line in out.getvalue().decode().split("\n")[:-1]]
    assert [entry["source"] for entry in objects] == ["dog", "", "cat"]
    assert [entry["translations"][0]["subwords"] for entry in objects] == [list(t.subwords) for t in expected]
    assert [entry["translations"][0]["logprob"] for entry in objects] == [t.logprob for t in expected]


# Weights of an ensemble.


@pytest.mark.parametrize(
    ("models", "weights", "what"),
    [
        (2, [1.0], "2, got 1"),
        (1, [1.0, 2.0], "1, got 2"),
        (1, [1.0], "`weights`"),
        (2, [1.0, 0.0], "got 0.0"),
        (2, [1.0, -1.0], "got -1.0"),
        (2, [math.inf, 1.0], "got inf"),
        (2, [1.0, math.nan], "got nan"),
    ],
)
def test_invalid_weights_are_errors(models: int, weights: list[float], what: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=what):
        Translator(TorchEngine([loaded()] * models, weights=weights), SEARCH)
    with pytest.raises(InputError, match=what):
        load([tmp_path] * models, weights=weights)
