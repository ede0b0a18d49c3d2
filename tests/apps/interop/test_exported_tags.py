"""The tags of target languages in exports, and in models that are imported."""

import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest
from conftest import VALID_PAIRS
from corpora import made, two_languages
from exports import random_model, written

import vtrans.apps.interop.huggingface.exporter as huggingface_exporter
from vtrans.apps.interop.comparison import Outputs
from vtrans.apps.interop.ctranslate2.exporter import DEFAULTS
from vtrans.apps.interop.formats import read_model
from vtrans.config import SearchConfig
from vtrans.data.store import DataFolder
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import LoadedModel
from vtrans.system.console import Console
from vtrans.text.vocabulary import EOS_ID
from vtrans.translate.translator import Translator

LINES = [*(src for src, _ in VALID_PAIRS[:4]), "", ">>de<< dog"]
SEARCH = SearchConfig(beam=2, max_source=40, max_length=12)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("tags")
    made(two_languages(folder, vocab_size=320))
    data = DataFolder.open(folder / "data")
    return dataclasses.replace(random_model(data, SEARCH, tie="none"), languages=data.languages, tags=data.tags)


def assert_has_tags_of(model: LoadedModel, folder: Path) -> None:
    again = read_model(folder).model
    assert again.tags == model.tags
    before, after = (Translator(TorchEngine([each]), SEARCH, retry=False) for each in (model, again))
    found = [list(before.translate(LINES, to=code, raw=True)) for code in model.tags]
    assert found == [list(after.translate(LINES, to=code, raw=True)) for code in model.tags]
    assert found[0] != found[1]


@pytest.mark.skipif(
    importlib.util.find_spec("ctranslate2") is None, reason="CTranslate2 is not installed: pip install ctranslate2"
)
def test_an_export_for_ctranslate2_translates_into_each_language(tmp_path: Path, model: LoadedModel) -> None:
    _, program = written(model, tmp_path / "folder")
    plain = dataclasses.replace(DEFAULTS, max_length=12, max_source=40)
    made = Translator(TorchEngine([model]), plain, retry=False)
    for code in model.tags:
        sources = [[*made.reader.beginning(code), *ids, EOS_ID] for ids in model.src_vocab.encode_batch(LINES[:3])]
        translations = program.translate(Outputs(LINES[:3], sources, [12] * 3, plain))
        assert translations is not None
        texts = [model.tgt_vocab.decode(tokens) for tokens in translations]
        assert texts == list(made.translate(LINES[:3], to=code, raw=True))
    assert_has_tags_of(model, tmp_path / "folder")


def test_an_export_to_hugging_face_names_its_languages_and_takes_tags(tmp_path: Path, model: LoadedModel) -> None:
    huggingface_exporter.write(model, tmp_path, Console(quiet=True))
    tokenizer = json.loads((tmp_path / "tokenizer_config.json").read_bytes())
    assert (tokenizer["source_lang"], tokenizer["target_lang"]) == ("en", "mul")
    assert "- fr\n" in (tmp_path / "README.md").read_text(encoding="utf-8")
    assert_has_tags_of(model, tmp_path)
