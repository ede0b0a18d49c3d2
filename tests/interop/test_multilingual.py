"""Imports of M2M100 and NLLB, compared with transformers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foreign
import pytest
from cli_runner import Done
from exports import assert_equal
from foreign import multilingual_folder

from vtrans import load
from vtrans.console import Console
from vtrans.errors import FileError, InputError
from vtrans.interop.comparison import OWN
from vtrans.interop.formats import import_model, read_model

pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
QUIET = Console(quiet=True)
LINES = [*foreign.TEXT[:4], "", "a dog \u6771 cat", "die Katze", "\uff21 dog", "aaaaa  ann", "hears dogs' parks"]
NLLB, M2M100 = {"from": "eng_Latn", "to": "deu_Latn"}, {"from": "en", "to": "de"}
VARIANTS: dict[str, dict[str, Any]] = {
    "NLLB": {},
    "NLLB in shards, unscaled, with gelu": {
        "shards": True, "scale_embedding": False, "activation_function": "gelu", "seed": 4
    },
    "NLLB as transformers saves it": {"saved": True},
    "NLLB with separate matrices": {"tie_word_embeddings": False, "seed": 5},
    "M2M100": {"m2m100": True},
    "M2M100 as transformers saves it": {"m2m100": True, "saved": True, "dtype": "bfloat16"},
}  # fmt: skip


def direction(settings: dict[str, Any]) -> dict[str, str]:
    return M2M100 if settings.get("m2m100") else NLLB


@pytest.mark.parametrize("name", VARIANTS)
def test_an_import_equals_its_original(name: str, tmp_path: Path) -> None:
    settings = VARIANTS[name]
    folder, out = multilingual_folder(tmp_path / "hf", **settings), tmp_path / "model.safetensors"
    comparison = import_model(folder, out, QUIET, LINES, direction=direction(settings))
    assert assert_equal(comparison, 2e-5).searches.keys() == {"beam 1", "beam 4", OWN}


@pytest.mark.parametrize("m2m100", [False, True])
def test_both_engines_begin_with_the_language_and_do_not_show_it(m2m100: bool, tmp_path: Path) -> None:
    folder, out = multilingual_folder(tmp_path / "hf", m2m100=m2m100), tmp_path / "model.safetensors"
    wanted = direction({"m2m100": m2m100})
    import_model(folder, out, QUIET, LINES, direction=wanted)
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


def test_languages_are_required_and_must_be_known(tmp_path: Path, run_cli: Callable[..., Done]) -> None:
    folder = multilingual_folder(tmp_path / "hf")
    for wrong in ({}, {"from": "eng_Latn"}, {"from": "eng_Latn", "to": "xxx_Latn"}):
        with pytest.raises(InputError, match="deu_Latn"):
            read_model(folder, direction=wrong)
    marian = foreign.hugging_face_folder(tmp_path / "marian")
    done = run_cli("import", marian, "--from", "en", "--to", "de", "--out", tmp_path / "x.safetensors")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "--from" in done.err


def test_a_folder_that_lacks_files_is_not_taken_for_a_model_without_languages(tmp_path: Path) -> None:
    folder = multilingual_folder(tmp_path / "hf")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileError, match=r"vocab.json for M2M100, or tokenizer.json for NLLB"):
        read_model(folder, direction=NLLB)
    (folder / "config.json").unlink()
    with pytest.raises(FileError, match="Hugging Face folder"):
        read_model(folder, direction=NLLB)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model["merges"].append(model["merges"][0]),  # a piece has merges in two places
        lambda model: model["vocab"].update({"\u2581ca": model["vocab"].pop("zw")}),  # which would merge with t
    ],
)
def test_merges_that_sentencepiece_does_not_have_are_refused(change: Callable[[Any], object], tmp_path: Path) -> None:
    folder = multilingual_folder(tmp_path / "hf", saved=True)
    content = json.loads((folder / "tokenizer.json").read_text())
    change(content["model"])
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(FileError, match=r"lacks the file sentencepiece\.bpe\.model.* copy"):
        read_model(folder, direction=NLLB)


def test_languages_that_a_folder_does_not_list_need_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = multilingual_folder(tmp_path / "hf", m2m100=True, saved=True)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"language_codes": "m2m1000"}))
    with pytest.raises(FileError, match=r"language_codes must be 'm2m100' or 'wmt21' .*'m2m1000'"):
        read_model(folder, direction=M2M100)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"languages.*\[huggingface\]"):
        read_model(folder, direction=M2M100)
