"""Forced decoding: the log-probabilities of existing translations."""

import dataclasses
import math
from pathlib import Path

import pytest
from drawn import each_with
from translators import SEARCH, SMALL, VARIANTS, forward, loaded, network, sentences, translator, vocabulary

import vtrans.engines.forced
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import LoadedModel
from vtrans.system.console import Console
from vtrans.system.errors import InputError, VtransError
from vtrans.text.vocabulary import EOS_ID, PAD_ID
from vtrans.translate.loading import load
from vtrans.translate.translator import Translator

LINES = [line for line in sentences(40, seed=5) if line]


@pytest.mark.parametrize(("max_length", "name"), each_with([0, 14, 3], list(VARIANTS)))
def test_rescoring_a_translation_gives_the_score_of_its_search(name: str, max_length: int) -> None:
    made = translator(VARIANTS[name], max_length=max_length, batch_tokens=100)
    met = []
    for translations in zip(*made.nbest(LINES, 3, raw=True), strict=True):
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


@pytest.mark.parametrize(
    ("models", "weights", "what"),
    [
        (2, [1.0], "2, got 1"),
        (1, [1.0], "`weights`"),
        (2, [1.0, 0.0], "got 0.0"),
        (2, [math.inf, 1.0], "got inf"),
        (2, [1.0, math.nan], "got nan"),
    ],
)
def test_invalid_weights_are_errors(models: int, weights: list[float], what: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=what):
        Translator(TorchEngine([loaded()] * models, weights=weights), SEARCH)
    with pytest.raises(InputError, match=what):
        load([tmp_path] * models, weights=weights)
