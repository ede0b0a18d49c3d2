"""The tags of target languages in exports, and in models that are imported."""

import dataclasses
import json
from pathlib import Path

import pytest
from conftest import VALID_PAIRS
from corpora import made, two_languages
from exports import random_model

from vtrans.apps.interop.formats import WRITERS, read_model
from vtrans.config import SearchConfig
from vtrans.data.store import DataFolder
from vtrans.engines.torch_engine import TorchEngine
from vtrans.system.console import Console
from vtrans.translate.translator import Translator

LINES = [*(src for src, _ in VALID_PAIRS[:4]), "", ">>de<< dog"]
SEARCH = SearchConfig(beam=2, max_source=40, max_length=12)


@pytest.mark.parametrize("to", ["ctranslate2", "huggingface"])
def test_an_export_translates_into_each_language(to: str, tmp_path: Path) -> None:
    if to == "ctranslate2":
        pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed: pip install ctranslate2")
    made(two_languages(tmp_path, vocab_size=320))
    data, folder = DataFolder.open(tmp_path / "data"), tmp_path / "folder"
    model = dataclasses.replace(random_model(data, SEARCH, tie="none"), languages=data.languages, tags=data.tags)
    folder.mkdir()
    WRITERS[to](model, folder, Console(quiet=True))
    again = read_model(folder).model
    assert again.tags == model.tags
    before, after = (Translator(TorchEngine([each]), SEARCH, retry=False) for each in (model, again))
    found = [list(before.translate(LINES, to=code, raw=True)) for code in model.tags]
    assert found == [list(after.translate(LINES, to=code, raw=True)) for code in model.tags]
    assert found[0] != found[1]
    if to == "huggingface":
        tokenizer = json.loads((folder / "tokenizer_config.json").read_bytes())
        assert (tokenizer["source_lang"], tokenizer["target_lang"]) == ("en", "mul")
        assert "- fr\n" in (folder / "README.md").read_text(encoding="utf-8")
        assert again.languages == model.languages
