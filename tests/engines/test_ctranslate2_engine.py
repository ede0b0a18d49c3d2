"""The CTranslate2 engine: the results of the PyTorch engine, or a refusal."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from conftest import TRAIN_PAIRS
from exports import LINES, compared, encoded, random_model, written

from vtrans.checkpoint import RunFolder, load_model
from vtrans.config import SearchConfig
from vtrans.data.store import DataFolder
from vtrans.data.vocabulary import BOS_ID, EOS_ID, PAD_ID
from vtrans.engines.ctranslate2_folder import exported_folder, load_exported
from vtrans.engines.torch_engine import TorchEngine
from vtrans.errors import FileError, InputError
from vtrans.interop.samples import generated_sentences
from vtrans.search.options import Sampling
from vtrans.translate.loading import load
from vtrans.translate.sources import EXTRA_LENGTH
from vtrans.translate.translator import Translator

pytest.importorskip("ctranslate2", reason="CTranslate2, an optional extra, is not installed")


def test_translations_are_scored_a_batch_at_a_time(
    tiny_data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise all would be padded to the longest, and the logits of a thousand would take tens of gigabytes."""
    loaded = random_model(tiny_data)
    engine = written(loaded, tmp_path / "out")
    sources = encoded(loaded, LINES)
    targets = [list(range(5, 6 + i % 7)) for i in range(len(sources))]
    together = engine.score(sources, targets)
    monkeypatch.setattr("vtrans.engines.ctranslate2_engine.SCORED_TOKENS", 20)
    calls: list[dict[str, Any]] = []
    translator = engine.translator

    class Counting:
        def score_batch(self, *args: Any, **options: Any) -> Any:
            calls.append(options)
            return translator.score_batch(*args, **options)

    monkeypatch.setattr(engine, "translator", Counting())
    for apart, all_at_once in zip(engine.score(sources, targets), together, strict=True):
        assert apart == pytest.approx(all_at_once, abs=1e-5)
    assert [(call["max_batch_size"], call["batch_type"]) for call in calls] == [(20, "tokens")]


CONFIGS = [
    SearchConfig(beam=1),
    SearchConfig(beam=4, batch_tokens=30),
    SearchConfig(beam=4, alpha=0.0),
    SearchConfig(beam=3, alpha=1.0, length_penalty="length", batch_tokens=60),
    SearchConfig(beam=5, alpha=2.0),
    SearchConfig(beam=4, alpha=-1.0),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.beam} {c.length_penalty} {c.alpha}")
@pytest.mark.parametrize("full", [False, True], ids=["best", "nbest"])
def test_the_engine_finds_what_the_search_finds(
    config: SearchConfig, full: bool, ending_run: RunFolder, tiny_data: DataFolder, tmp_path: Path
) -> None:
    """Equal tokens, scores and order, also at short limits, with a model that ends its translations and one that does
    not."""
    nbest, ends = config.beam if full else 1, set()
    for number, loaded in enumerate([load_model(ending_run.last), random_model(tiny_data)]):
        exported = written(loaded, tmp_path / str(number))
        lines = [pair[0] for pair in TRAIN_PAIRS[::6]] + generated_sentences(loaded.src_vocab)[:40:2]
        ends |= {best.finished for best, *_ in compared(loaded, exported, config, nbest, encoded(loaded, lines))}
    assert ends == {True, False}


RULED = [
    SearchConfig(beam=4, min_length=1),
    SearchConfig(beam=3, min_length=1, alpha=1.0, length_penalty="length", batch_tokens=60),
    SearchConfig(beam=5, min_length=1, alpha=2.0),
    SearchConfig(beam=1, min_length=1),
    SearchConfig(beam=1, min_length=5, batch_tokens=60),
    SearchConfig(beam=1, no_repeat_ngram=1),
    SearchConfig(beam=1, no_repeat_ngram=2),
    SearchConfig(beam=1, min_length=9, no_repeat_ngram=3),
    SearchConfig(beam=1, min_length=1, suppress=("\u2581Der", "e", "<unk>")),
]


@pytest.mark.parametrize(
    "config", RULED, ids=lambda c: f"{c.beam} {c.alpha} {c.min_length} {c.no_repeat_ngram} {len(c.suppress)}"
)
def test_the_engine_finds_what_the_search_finds_under_rules(
    config: SearchConfig, ending_run: RunFolder, tiny_data: DataFolder, tmp_path: Path
) -> None:
    """Although the engine normalizes over the subwords that a rule allows. Two models end at once, another one hardly
    ends and repeats itself; without the rule they find other translations."""
    eager, endless = random_model(tiny_data, tie="none"), random_model(tiny_data, tie="none")
    sure = random_model(tiny_data, tie="none")  # of EOS: in float32, 1 - p has too few digits
    with torch.no_grad():
        src = torch.tensor(encoded(eager, LINES[:1]))
        memory = eager.model.encode(src, src != PAD_ID)
        first = eager.model.decode(torch.tensor([[BOS_ID]]), memory, src != PAD_ID)[0, 0]
        # EOS is the likeliest first subword of this sentence, and about as likely in others.
        eager.model.projection.weight[EOS_ID] = first * (eager.model.logits(first).max() + 0.2) / first.square().sum()
        sure.model.projection.weight[EOS_ID] = eager.model.projection.weight[EOS_ID] * 5
        endless.model.projection.weight[EOS_ID] -= 1.0
    changed = 0
    for number, loaded in enumerate([load_model(ending_run.last), eager, endless, sure]):
        exported = written(loaded, tmp_path / str(number))
        sources = encoded(loaded, [pair[0] for pair in TRAIN_PAIRS[::6]] + generated_sentences(loaded.src_vocab)[:40:2])
        free = dataclasses.replace(config, min_length=0, no_repeat_ngram=0, suppress=())
        without, ruled = (compared(loaded, exported, each, config.beam, sources) for each in (free, config))
        changed += sum(a.tokens != b.tokens for (a, *_), (b, *_) in zip(without, ruled, strict=True))
    assert changed > 10


def test_a_sentence_with_omitted_hypotheses_is_searched_again(
    ending_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_model(ending_run.last)
    exported, config = written(loaded, tmp_path / "out"), SearchConfig(beam=4)
    sources = encoded(loaded, [pair[0] for pair in TRAIN_PAIRS[::2]])
    compared(loaded, exported, config, 4, sources)
    monkeypatch.setattr(exported, "_search_again", lambda *_: None)
    with pytest.raises(AssertionError):
        compared(loaded, exported, config, 4, sources)


def test_padding_is_never_predicted(tiny_data: DataFolder, tmp_path: Path) -> None:
    loaded = random_model(tiny_data, tie="none")
    with torch.no_grad():
        loaded.model.projection.weight[PAD_ID] = loaded.model.projection.weight[EOS_ID] * 20
    exported = written(loaded, tmp_path / "out")
    ours = compared(loaded, exported, SearchConfig(beam=3), 3, encoded(loaded, LINES))
    assert not any(PAD_ID in h.tokens for hypotheses in ours for h in hypotheses)


@pytest.mark.parametrize("changes", [{}, {"positions": "learned", "max_positions": 40}], ids=["sinusoidal", "learned"])
def test_a_long_line_is_cut_as_in_the_torch_engine(
    changes: dict[str, Any], tiny_data: DataFolder, tmp_path: Path
) -> None:
    search = SearchConfig(max_source=30, beam=2)
    loaded = random_model(tiny_data, search, **changes)
    exported = written(loaded, tmp_path / "out")
    assert exported.max_length == changes.get("max_positions", 30 + EXTRA_LENGTH)
    ours, theirs = Translator(TorchEngine([loaded]), retry=False), Translator(exported, retry=False)
    lines = [" ".join(LINES[:8]), "", " ", LINES[0], "\u200b"]
    assert list(ours.translate(lines)) == list(theirs.translate(lines))
    assert ours.counts.cut == theirs.counts.cut == 1
    assert dataclasses.replace(ours.counts, seconds=0) == dataclasses.replace(theirs.counts, seconds=0)


def test_unsupported_parameters_are_refused_by_name(
    ending_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    written(load_model(ending_run.last), folder)
    for changes, sentence in (
        ({"stop": "exhaustive"}, "`stop` exhaustive"),
        ({"min_length": 2}, "`min_length` 2"),
        ({"no_repeat_ngram": 3}, "`no_repeat_ngram` 3"),
        ({"repetition_penalty": 1.5}, "`repetition_penalty` 1.5"),
        ({"repetition_penalty": 1.5, "beam": 1}, "`repetition_penalty` 1.5"),
        ({"beam": 200}, "`beam` 159"),
        ({"beam": 4, "beam_groups": 2}, "`beam_groups` 2"),
        ({"device": "mps"}, "`device`"),
        ({"engine": "torch"}, "`engine`"),
        ({"engine": "onnx"}, "got 'onnx'"),
        ({"weights": [2.0]}, "`weights`"),
        ({"shortlist": True}, "`shortlist`"),
        ({"precision": "float32"}, "`precision`"),
    ):
        with pytest.raises(InputError, match=re.escape(sentence)):
            load(folder, **cast(dict[str, Any], {"device": "cpu", **changes}))
    with pytest.raises(InputError, match="one model at a time"):
        load([folder, ending_run.last])
    with pytest.raises(InputError, match=r"run `vtrans export .*last\.safetensors"):
        load(ending_run.last, engine="ctranslate2")
    with pytest.raises(FileError, match="there is no model"):
        load(tmp_path / "nowhere", engine="ctranslate2")
    translator = load(folder, device="cpu")
    with pytest.raises(InputError, match="`sampling`"):
        translator.nbest(["a"], 1, Sampling())
    with pytest.raises(InputError, match="`alignments`"):
        translator.nbest(["a"], 1, alignments=True)
    with pytest.raises(InputError, match="`prefixes`"):
        translator.nbest(["a"], 1, prefixes=["b"])
    with pytest.raises(InputError, match="`targets`"):
        translator.logprob(["a"], ["b"])
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(InputError, match=r"pip install '\.\[ctranslate2\]'"):
        load(folder)


def test_a_damaged_folder_is_refused(ending_run: RunFolder, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    written(load_model(ending_run.last), folder)
    description = json.loads((folder / "vtrans.json").read_bytes())

    def refused(sentence: str, name: str, content: bytes | None) -> None:
        whole = (folder / name).read_bytes()
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)
        with pytest.raises(FileError, match=sentence):
            load_exported(folder, "cpu")
        (folder / name).write_bytes(whole)

    weights = bytearray((folder / "model.bin").read_bytes())
    weights[len(weights) // 2] ^= 1
    refused("model.bin", "model.bin", bytes(weights))
    refused("model.bin", "model.bin", None)
    config = json.loads((folder / "config.json").read_bytes())
    refused("config.json", "config.json", json.dumps({**config, "layer_norm_epsilon": 0.1}).encode())
    refused("vocab.model", "vocab.model", b"other")
    refused("vocab.model", "vocab.model", None)
    refused("vtrans.json", "vtrans.json", b"{")
    refused("vtrans.json", "vtrans.json", b"[]")
    refused("format 1, got 2", "vtrans.json", json.dumps({**description, "format": 2}).encode())
    refused("positions", "vtrans.json", json.dumps({**description, "positions": None}).encode())
    refused("vocabulary", "vtrans.json", json.dumps({**description, "vocabularies": []}).encode())
    refused("vocabulary", "vtrans.json", json.dumps({**description, "files": {}}).encode())
    whole = (folder / "model.bin").read_bytes()
    (folder / "model.bin").write_bytes(whole[:9000])
    files = {**description["files"], "model.bin": hashlib.sha256(whole[:9000]).hexdigest()}
    refused("CTranslate2", "vtrans.json", json.dumps({**description, "files": files}).encode())
    (folder / "model.bin").write_bytes(whole)
    load_exported(folder, "cpu")
    assert exported_folder(folder, None) == exported_folder(folder, "ctranslate2") == folder
    assert exported_folder(ending_run.path, None) is None
