"""Loading a translator: models, precisions, devices."""

import pytest

import vtrans
from vtrans.storage.run_folder import RunFolder
from vtrans.system.errors import FileError, InputError, RecipeError
from vtrans.translate.loading import load


def test_load_takes_a_run_and_overrides_by_name(tiny_run: RunFolder) -> None:
    made = vtrans.load(tiny_run.path, device="cpu", beam=3)
    assert (made.search.beam, made.search.max_length) == (3, 20)
    assert len(list(made.translate(["The dog sees me today.", ""]))) == 2
    assert vtrans.load(str(tiny_run.last), device="cpu").search.beam == 2
    both = vtrans.load([tiny_run.last, tiny_run.path], device="cpu")
    assert len(both.engine.models) == 2
    with pytest.raises(RecipeError, match=r"unknown key search\.baem; did you mean beam\?"):
        vtrans.load(tiny_run.path, baem=3)
    with pytest.raises(RecipeError, match=r"search\.beam"):
        vtrans.load(tiny_run.path, beam=0)
    with pytest.raises(InputError, match="no model was given"):
        load([])
    with pytest.raises(FileError, match="nowhere"):
        load("nowhere")


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "int8"])
def test_lower_precisions_give_nearly_equal_log_probabilities(tiny_run: RunFolder, precision: str) -> None:
    lines = ["a dog runs in the park", "", "the cat sleeps"]
    exact = load(tiny_run.path, device="cpu", stop="exhaustive")
    rough = load(tiny_run.path, device="cpu", stop="exhaustive", precision=precision)
    translations = list(rough.nbest(lines, raw=True))
    assert [len(best) for best in translations] == [1, 1, 1]
    given = exact.logprob([line for line in lines if line], [best[0].tokens for best in translations if best[0].tokens])
    for own, other in zip([best[0] for best in translations if best[0].tokens], given, strict=True):
        assert own.logprob == pytest.approx(other.logprob, rel=0.05, abs=0.05)
        assert own.logprob != other.logprob
