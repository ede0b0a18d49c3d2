"""Exports of models of M2M100's shape: transformers gives their translations, and an import gets its weights back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import foreign
import pytest
import torch
from exports import assert_equal, assert_has_all_tensors
from foreign import multilingual_folder
from safetensors.torch import load_file

from vtrans.checkpoint import LoadedModel, save_model, weights_of
from vtrans.console import Console
from vtrans.interop.exports import export_model
from vtrans.interop.formats import import_model, read_model
from vtrans.interop.imported import install
from vtrans.interop.trimming import Keep, trimmed
from vtrans.text.vocabulary import BOS_ID

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
QUIET = Console(quiet=True)
LINES = [*foreign.TEXT[:4], "", "a dog \u6771 cat", "die \uff2batze"]  # the last has a letter to normalize
KEEP = Keep([foreign.TEXT[0], foreign.TARGET_TEXT[0]], 0)
VARIANTS: dict[str, dict[str, Any]] = {
    "NLLB": {},
    "NLLB with separate matrices": {"tie_word_embeddings": False, "seed": 5},
    "M2M100": {"m2m100": True},
}


def imported(folder: Path, keep: Keep | None = None, **settings: Any) -> LoadedModel:
    """The import of a folder with random weights, which is written."""
    multilingual_folder(folder, **settings)
    codes = ("en", "de") if settings.get("m2m100") else ("eng_Latn", "deu_Latn")
    model = read_model(folder, direction=dict(zip(("from", "to"), codes, strict=True)))
    return install(trimmed(model, keep) if keep else model)


def trained(loaded: LoadedModel) -> LoadedModel:
    """The model after changes to what M2M100 does not have: biases of subwords, and a row of the start."""
    bias = weights_of(loaded.model)["projection.bias"]
    with torch.no_grad():
        bias += torch.randn_like(bias)
        loaded.model.tgt_embedding.weight[BOS_ID] += 0.1
    return loaded


def plain_translations(folder: Path, **direction: Any) -> list[list[int]]:
    """What `generate` gives without options; `direction` is what a folder of several languages needs."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if direction:
        tokenizer.src_lang = direction["src_lang"]
        forced = tokenizer.convert_tokens_to_ids(direction["forced"])
        model.generation_config.forced_bos_token_id = forced
    inputs = [tokenizer(line, return_tensors="pt") for line in LINES if line]
    return [model.generate(**each, max_length=30)[0].tolist() for each in inputs]


@pytest.mark.parametrize("name", VARIANTS)
def test_an_import_is_exported_with_the_weights_and_translations_of_the_original(name: str, tmp_path: Path) -> None:
    settings = VARIANTS[name]
    loaded = imported(tmp_path / "hf", **settings)
    assert_equal(export_model(loaded, "huggingface", tmp_path / "out", QUIET, LINES), 2e-5)
    before, after = (load_file(tmp_path / folder / "model.safetensors") for folder in ("hf", "out"))
    assert before.keys() == after.keys()
    assert_has_all_tensors(tmp_path / "out")
    unused = {"model.shared.weight"} if "separate" in name else set()
    assert all(torch.equal(before[weight], after[weight]) for weight in before.keys() - unused)
    code, forced = ("en", "__de__") if settings.get("m2m100") else ("eng_Latn", "deu_Latn")
    assert plain_translations(tmp_path / "out") == plain_translations(tmp_path / "hf", src_lang=code, forced=forced)
    files = [tmp_path / "first.safetensors", tmp_path / "second.safetensors"]
    direction = dict(zip(("from", "to"), loaded.languages[0], strict=True))
    save_model(files[0], loaded)
    save_model(files[1], install(read_model(tmp_path / "out", direction=direction)))
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("keep", [None, KEEP])
@pytest.mark.parametrize("m2m100", [False, True])
def test_a_trained_or_trimmed_model_is_exported_and_imported_again(
    keep: Keep | None, m2m100: bool, tmp_path: Path
) -> None:
    loaded = trained(imported(tmp_path / "hf", keep, m2m100=m2m100))
    comparison = export_model(loaded, "huggingface", tmp_path / "out", QUIET, LINES[:1])
    assert_has_all_tensors(tmp_path / "out")
    assert comparison is not None
    assert comparison.largest < 2e-5
    direction = dict(zip(("from", "to"), loaded.languages[0], strict=True))
    again = import_model(tmp_path / "out", tmp_path / "again.safetensors", QUIET, LINES[:1], direction=direction)
    assert again is not None
