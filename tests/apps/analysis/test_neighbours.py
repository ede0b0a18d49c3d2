"""Nearest embeddings in the steps of a translation: they are consistent with the search."""

import dataclasses
import math

import pytest
from translators import window

from vtrans.apps.analysis.neighbours import steps
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import load_model
from vtrans.storage.run_folder import RunFolder
from vtrans.translate.translator import Translator


def test_the_steps_agree_with_the_search(tiny_run: RunFolder) -> None:
    loaded = load_model(tiny_run.last)
    greedy = Translator(TorchEngine([loaded]), dataclasses.replace(loaded.search, beam=1), retry=False)
    sentence = "The old cat hears me today."
    ((best,),) = greedy.translate_window(window([sentence]))
    text, found = steps(greedy, sentence, 5)
    assert text == best.text
    assert [step.chosen.id for step in found] == list(best.tokens)
    assert [step.logprob for step in found] == pytest.approx(best.token_logprobs, abs=1e-4)
    assert {step.rank_by_dot for step in found} == {1}, "beam 1 chooses the row with the largest dot product"
    E = loaded.model.projection.weight.detach()
    for step in found:
        assert step.by_dot[0] == step.chosen
        assert [row.dot for row in step.by_dot] == sorted((row.dot for row in step.by_dot), reverse=True)
        assert [row.cosine for row in step.by_cosine] == sorted((r.cosine for r in step.by_cosine), reverse=True)
        # The dot product over the cosine is |h| |row|, and |h| is the same for all rows of a step.
        norms = [row.dot / row.cosine / float(E[row.id].norm()) for row in step.by_dot]
        assert norms == pytest.approx([norms[0]] * 5, rel=1e-3)
        assert step.rank_by_cosine >= 1
        assert 0 not in {row.id for row in (*step.by_dot, *step.by_cosine)}, "padding is never predicted"
    _, every = steps(greedy, sentence, 10**6)
    for rows in (every[0].by_dot, every[0].by_cosine):
        assert sorted(row.id for row in rows) == list(range(1, len(loaded.tgt_vocab)))
    assert math.fsum(step.logprob for step in found) == pytest.approx(best.logprob, abs=1e-3)
