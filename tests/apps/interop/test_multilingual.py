"""Imports and exports of models of M2M100's shape, compared with transformers."""

from pathlib import Path
from typing import Any

import foreign
import pytest
import torch
from cli_runner import Run
from exports import assert_equal, assert_has_all_tensors
from foreign import multilingual_folder
from safetensors.torch import load_file

from vtrans import load
from vtrans.apps.interop.formats import export_model, import_model, read_model
from vtrans.apps.interop.trimming import Keep, trimmed
from vtrans.model.checkpoint import LoadedModel, save_model, weights_of
from vtrans.system.console import Console
from vtrans.system.errors import FileError, InputError
from vtrans.text.vocabulary import BOS_ID

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
QUIET = Console(quiet=True)
LINES = [*foreign.TEXT[:4], "", "a dog \u6771 cat", "die Katze", "\uff21 dog", "aaaaa  ann", "hears dogs' parks"]
NLLB, M2M100 = {"from": "eng_Latn", "to": "deu_Latn"}, {"from": "en", "to": "de"}
VARIANTS: dict[str, dict[str, Any]] = {
    "NLLB": {},
    "NLLB in shards, unscaled, with gelu": {
        "shards": True, "scale_embedding": False, "activation_function": "gelu", "seed": 4
    },
    "NLLB with separate matrices": {"tie_word_embeddings": False, "seed": 5},
    "M2M100": {"m2m100": True},
    "M2M100 in bfloat16": {"m2m100": True, "dtype": "bfloat16"},
}  # fmt: skip


def direction(settings: dict[str, Any]) -> dict[str, str]:
    return M2M100 if settings.get("m2m100") else NLLB


@pytest.mark.parametrize("name", VARIANTS)
def test_an_import_equals_its_original(name: str, tmp_path: Path) -> None:
    settings = VARIANTS[name]
    folder, out = multilingual_folder(tmp_path / "hf", **settings), tmp_path / "model.safetensors"
    comparison = import_model(folder, out, QUIET, LINES, options=direction(settings))
    assert_equal(comparison, 2e-5)


@pytest.mark.parametrize("m2m100", [False, True])
def test_both_engines_begin_with_the_language_and_do_not_show_it(m2m100: bool, tmp_path: Path) -> None:
    folder, out = multilingual_folder(tmp_path / "hf", m2m100=m2m100), tmp_path / "model.safetensors"
    wanted = direction({"m2m100": m2m100})
    import_model(folder, out, QUIET, LINES, options=wanted)
    tag = f">>{wanted['to']}<<"
    found = []
    for engine in ("torch", "compiled"):
        translator = load(out, engine=engine)
        assert dict(translator.engine.tags) == {wanted["to"]: f">>{wanted['from']}<<"}
        ((result,),) = translator.nbest(["a dog sees a cat"], 1, raw=True)
        found.append((result.text, result.subwords))
        assert result.subwords[0] == tag
        assert result.token_logprobs[0] == 0.0
        assert ">>" not in result.text
        (scored,) = translator.logprob(["a dog sees a cat"], [result.tokens])
        assert scored.token_logprobs[0] == 0.0
        assert scored.logprob == pytest.approx(result.logprob, abs=1e-3)
        ((begun,),) = translator.nbest(["a dog sees a cat"], 1, prefixes=["die"], raw=True)
        assert begun.subwords[0] == tag
        assert begun.text.startswith("die")
    assert found[0] == found[1]


def test_languages_are_required_and_must_be_known(tmp_path: Path, run_cli: Run) -> None:
    folder = multilingual_folder(tmp_path / "hf")
    for wrong in ({}, {"from": "eng_Latn"}, {"from": "eng_Latn", "to": "xxx_Latn"}):
        with pytest.raises(InputError, match="deu_Latn"):
            read_model(folder, options=wrong)
    marian = foreign.hugging_face_folder(tmp_path / "marian")
    done = run_cli("import", marian, "--from", "en", "--to", "de", "--out", tmp_path / "x.safetensors")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "--from" in done.err


def test_a_folder_that_lacks_files_is_not_taken_for_a_model_without_languages(tmp_path: Path) -> None:
    folder = multilingual_folder(tmp_path / "hf")
    for name, said in (
        ("sentencepiece.bpe.model", r"lacks the file sentencepiece\.bpe\.model.* copy"),
        ("tokenizer.json", r"vocab\.json for M2M100, or tokenizer\.json for NLLB"),
        ("config.json", "Hugging Face folder"),
    ):
        (folder / name).unlink()
        with pytest.raises(FileError, match=said):
            read_model(folder, options=NLLB)
    other = multilingual_folder(tmp_path / "other", m2m100=True)
    (other / "tokenizer_config.json").write_text("{}")
    with pytest.raises(FileError, match=r"languages.* copy special_tokens_map\.json"):
        read_model(other, options=M2M100)


# Exports.

EXPORTED_LINES = [*foreign.TEXT[:4], "", "a dog \u6771 cat", "die \uff2batze"]  # the last has a letter to normalize
KEEP = Keep([foreign.TEXT[0], foreign.TARGET_TEXT[0]], 0)
EXPORTED = ["NLLB", "NLLB with separate matrices", "M2M100"]


def imported(folder: Path, keep: Keep | None = None, **settings: Any) -> LoadedModel:
    """The import of a folder with random weights, which is written."""
    multilingual_folder(folder, **settings)
    loaded = read_model(folder, options=direction(settings)).model
    return trimmed(loaded, keep)[0] if keep else loaded


def trained(loaded: LoadedModel) -> LoadedModel:
    """The model after changes to what M2M100 does not have: biases of subwords, and a row of the start."""
    bias = weights_of(loaded.model)["projection.bias"]
    with torch.no_grad():
        bias += torch.randn_like(bias)
        loaded.model.tgt_embedding.weight[BOS_ID] += 0.1
    return loaded


def plain_translations(folder: Path, **given: Any) -> list[list[int]]:
    """Returns the output of `generate` without options; `given` holds the options of a multilingual folder."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if given:
        tokenizer.src_lang = given["src_lang"]
        forced = tokenizer.convert_tokens_to_ids(given["forced"])
        model.generation_config.forced_bos_token_id = forced
    inputs = [tokenizer(line, return_tensors="pt") for line in EXPORTED_LINES if line]
    return [model.generate(**each, max_length=30)[0].tolist() for each in inputs]


@pytest.mark.parametrize("name", EXPORTED)
def test_an_import_is_exported_with_the_weights_and_translations_of_the_original(name: str, tmp_path: Path) -> None:
    settings = VARIANTS[name]
    loaded = imported(tmp_path / "hf", **settings)
    assert_equal(export_model(loaded, "huggingface", tmp_path / "out", QUIET, EXPORTED_LINES), 2e-5)
    before, after = (load_file(tmp_path / folder / "model.safetensors") for folder in ("hf", "out"))
    assert before.keys() == after.keys()
    assert_has_all_tensors(tmp_path / "out")
    unused = {"model.shared.weight"} if "separate" in name else set()
    assert all(torch.equal(before[weight], after[weight]) for weight in before.keys() - unused)
    code, forced = ("en", "__de__") if settings.get("m2m100") else ("eng_Latn", "deu_Latn")
    assert plain_translations(tmp_path / "out") == plain_translations(tmp_path / "hf", src_lang=code, forced=forced)
    files = [tmp_path / "first.safetensors", tmp_path / "second.safetensors"]
    save_model(files[0], loaded)
    save_model(files[1], read_model(tmp_path / "out", options=direction(settings)).model)
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("keep", [None, KEEP])
@pytest.mark.parametrize("m2m100", [False, True])
def test_a_trained_or_trimmed_model_is_exported_and_imported_again(
    keep: Keep | None, m2m100: bool, tmp_path: Path
) -> None:
    loaded = trained(imported(tmp_path / "hf", keep, m2m100=m2m100))
    comparison = export_model(loaded, "huggingface", tmp_path / "out", QUIET, EXPORTED_LINES[:1])
    assert_has_all_tensors(tmp_path / "out")
    assert comparison is not None
    assert comparison.largest < 2e-5
    wanted, out = direction({"m2m100": m2m100}), tmp_path / "again.safetensors"
    assert import_model(tmp_path / "out", out, QUIET, EXPORTED_LINES[:1], options=wanted) is not None
