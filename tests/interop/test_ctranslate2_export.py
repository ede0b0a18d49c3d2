"""The export to CTranslate2 and the search on its engine: the same translations as the original's, or a refusal."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import math
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from cli_runner import Done
from conftest import TRAIN_PAIRS, VALID_PAIRS, tiny_train

from vtrans.checkpoint import LoadedModel, RunFolder, choose_model, load_model, save_model
from vtrans.config import Key, ModelConfig, Sampling, SearchConfig
from vtrans.console import Console
from vtrans.data.store import DataFolder
from vtrans.data.vocabulary import BOS_ID, EOS_ID, PAD_ID
from vtrans.decoding.beam import beam_search
from vtrans.decoding.constraints import Constrained, Rules
from vtrans.decoding.ctranslate2_engine import CTranslate2Engine
from vtrans.decoding.ctranslate2_folder import exported_folder, is_exported, load_exported
from vtrans.decoding.engine import Source
from vtrans.decoding.incremental import IncrementalDecoder
from vtrans.decoding.loading import load
from vtrans.decoding.search import Hypothesis
from vtrans.decoding.sources import EXTRA_LENGTH
from vtrans.decoding.torch_engine import TorchEngine
from vtrans.decoding.translation import TranslateOptions
from vtrans.decoding.translator import Translator
from vtrans.errors import FileError, InputError, VtransError
from vtrans.interop import comparison, ctranslate2_spec
from vtrans.interop import ctranslate2_export as exporting
from vtrans.interop.comparison import compare, made_up
from vtrans.interop.ctranslate2_export import export
from vtrans.model import Transformer

ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2, an optional extra, is not installed")

Run = Callable[..., Done]
QUIET = Console(quiet=True)
SMALL = ModelConfig(d_model=16, d_ff=24, heads=2, encoder_layers=2, decoder_layers=1, tie="src-tgt-softmax")
SHORT = SearchConfig(max_source=40)  # for a position table that is soon compared to its end
LINES = [pair[0] for pair in VALID_PAIRS]


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory: pytest.TempPathFactory, tiny_data: DataFolder) -> RunFolder:
    """In place of the common one: a model that ends some of its translations."""
    return tiny_train(tiny_data, tmp_path_factory.mktemp("export-run") / "run", "train.batch_tokens=280")


def random_model(data: DataFolder, search: SearchConfig | None = None, **changes: Any) -> LoadedModel:
    """An untrained model, its weights made larger so that what it predicts is decided."""
    config = dataclasses.replace(SMALL, **changes)
    torch.manual_seed(5)
    sizes = len(data.src_vocab), len(data.tgt_vocab)
    model = Transformer(config, *sizes, joint=data.joint, pad_id=PAD_ID)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:  # biases and norms are 0 and 1 before training, and so would not be tested
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif "embedding" in name or "projection" in name:
                parameter.mul_(1.5)
                parameter[EOS_ID] += 0.2
    return LoadedModel(model.eval(), data.src_vocab, data.tgt_vocab, search or SHORT, {"step": 0})


def written(loaded: LoadedModel, folder: Path, quantization: str = "float32") -> CTranslate2Engine:
    """The export as it is, uncompared."""
    folder.mkdir()
    exporting.write(loaded, folder, quantization)
    return load_exported(folder, "cpu")


def searched(
    loaded: LoadedModel, exported: CTranslate2Engine, config: SearchConfig, nbest: int, sources: list[list[int]]
) -> list[tuple[list[Hypothesis], list[Hypothesis]]]:
    """What the two searches find of each source, with limits short and long."""
    limits = [(3, 7, len(source) + EXTRA_LENGTH)[i % 3] for i, source in enumerate(sources)]
    rules = Rules(EOS_ID, None, config.min_length, config.no_repeat_ngram)
    decoder = Constrained(IncrementalDecoder(loaded.model), rules)
    with torch.inference_mode():
        ours = dict(beam_search(decoder, sources, limits, config=config, nbest=nbest, bos_id=BOS_ID, eos_id=EOS_ID))
    asked = [Source(source, limit, "") for source, limit in zip(sources, limits, strict=True)]
    theirs = dict(exported.translate(asked, config, TranslateOptions(nbest)))
    assert set(ours) == set(theirs) == set(range(len(sources)))
    return [(ours[i], theirs[i]) for i in range(len(sources))]


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def encoded(loaded: LoadedModel, lines: list[str]) -> list[list[int]]:
    return sorted(([*ids, EOS_ID] for ids in loaded.src_vocab.encode_batch(lines)), key=len, reverse=True)


def stable(loaded: LoadedModel, lines: list[str]) -> list[str]:
    """The lines whose translation stays the same if all weights change by more than float32 rounds."""
    noisy = copy.deepcopy(loaded)
    kept = list(lines)
    for _ in range(3):
        with torch.no_grad():
            for parameter, original in zip(noisy.model.parameters(), loaded.model.parameters(), strict=True):
                parameter.copy_(original * (1 + 1e-4 * torch.randn_like(original)))
        before, after = (list(Translator(TorchEngine([m]), retry=False).translate(kept)) for m in (loaded, noisy))
        kept = [line for line, x, y in zip(kept, before, after, strict=True) if x == y]
    return kept


VARIANTS: dict[str, dict[str, Any]] = {
    "post": {},
    "pre": {"norm": "pre"},
    "gelu": {"activation": "gelu", "encoder_layers": 1, "decoder_layers": 3},
    "tgt-softmax": {"tie": "tgt-softmax"},
    "src-tgt": {"tie": "src-tgt", "norm": "pre"},
    "none": {"tie": "none"},
    "learned": {"positions": "learned", "max_positions": 90},
    "shared layers": {"share_layers": "all", "share_group": 2, "encoder_layers": 3},
    "shared attention": {"share_layers": "attention", "norm": "pre", "decoder_layers": 2},
    "shared stacks": {"share_stacks": True, "decoder_layers": 2},
    "deep and shallow": {"encoder_layers": 12, "decoder_layers": 1},
    "shallow and deep": {"encoder_layers": 1, "decoder_layers": 12, "norm": "pre"},
    "unscaled": {"scale_embedding": False},
    "shared positions": {"positions": "learned", "max_positions": 90, "share_positions": True, "activation": "gelu"},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_architecture_is_the_same_on_the_engine(name: str, tiny_data: DataFolder, tmp_path: Path) -> None:
    loaded = random_model(tiny_data, **VARIANTS[name])
    found = compare(loaded, written(loaded, tmp_path / "out"), [*LINES, "\u2603 \U0001d4b3"])
    assert found.token < 2e-4
    assert found.sentences == len(LINES) + 1
    assert found.equal >= found.sentences - 1
    assert found.lost < 1e-4
    reach = loaded.model.max_length or 40 + EXTRA_LENGTH
    assert found.subwords > reach  # the pair that reaches the end of the position table is among them


def test_a_translation_that_reaches_the_end_of_a_position_table(tiny_data: DataFolder, tmp_path: Path) -> None:
    """Unfinished, as those of a model that hardly learned are: EOS after it would have no position."""
    loaded = random_model(tiny_data, tie="none", positions="learned", max_positions=30, share_positions=True)
    with torch.no_grad():
        loaded.model.projection.weight[EOS_ID] -= 1.0
    found = export(loaded, tmp_path / "out", QUIET, samples=LINES)
    assert found.sentences == len(LINES)
    exported = load_exported(tmp_path / "out", "cpu")
    options = TranslateOptions(form="json")  # with token_logprobs
    for search in (SearchConfig(max_source=40), SearchConfig(max_source=40, beam=1, no_repeat_ngram=3)):
        ((best,),) = Translator(TorchEngine([loaded]), search, retry=False).translate_window(LINES[:1], options)
        ((theirs,),) = Translator(exported, search, retry=False).translate_window(LINES[:1], options)
        assert (best.finished, len(best.tokens)) == (False, 30)
        assert (theirs.finished, theirs.tokens) == (False, best.tokens)
        assert theirs.token_logprobs == pytest.approx(best.token_logprobs, abs=1e-3)
        assert theirs.logprob == pytest.approx(best.logprob, abs=1e-3)


@pytest.mark.parametrize(
    ("search", "named"),
    [
        (SearchConfig(min_length=1), []),
        (SearchConfig(beam=1, min_length=4, no_repeat_ngram=3), []),
        (SearchConfig(min_length=4, no_repeat_ngram=3), ["min_length = 4", "no_repeat_ngram = 3"]),
        (SearchConfig(stop="exhaustive", repetition_penalty=1.5), ["stop = exhaustive", "repetition_penalty = 1.5"]),
        (SearchConfig(beam=300), ["beam = 300"]),
    ],
    ids=lambda value: "" if isinstance(value, SearchConfig) else ", ".join(value) or "none",
)
def test_exporting_names_the_stored_settings_that_the_engine_does_not_support(
    search: SearchConfig, named: list[str], tiny_data: DataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Translating with them is refused, and with what the warnings propose it is not."""
    loaded = random_model(tiny_data, dataclasses.replace(search, max_source=40))
    found = export(loaded, tmp_path / "out", Console(quiet=True), samples=LINES[:3])
    assert (found.sentences, found.problem()) == (3, None)
    said = capsys.readouterr().err
    assert re.findall(r"search\.(\w+ = \S+),", said) == named
    if named:
        with pytest.raises(InputError, match=f"`{named[0].replace(' = ', '` ')} "):
            load(tmp_path / "out", device="cpu")
    proposed = dict(re.findall(r"with (\w+) ([\w.]+),", said))
    kinds = {name: type(value) for name, value in dataclasses.asdict(search).items()}
    translator = load(tmp_path / "out", device="cpu", **{name: kinds[name](v) for name, v in proposed.items()})
    assert len(list(translator.translate(LINES[:3]))) == 3


@pytest.mark.parametrize("tie", ["tgt-softmax", "none"])
def test_separate_vocabularies(tie: str, tiny_data_separate: DataFolder, tmp_path: Path) -> None:
    loaded = random_model(tiny_data_separate, tie=tie)
    found = export(loaded, tmp_path / "out", QUIET, samples=LINES)
    assert (found.sentences, found.problem()) == (len(LINES), None)
    assert {"src.model", "tgt.model"} < {file.name for file in (tmp_path / "out").iterdir()}
    exported = load_exported(tmp_path / "out", "cpu")
    assert exported.src_vocab.digest == loaded.src_vocab.digest
    assert exported.tgt_vocab.digest == loaded.tgt_vocab.digest


def test_translations_are_scored_a_batch_at_a_time(
    tiny_data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once, each would be padded to the longest, and the logits of a thousand take tens of gigabytes."""
    loaded = random_model(tiny_data)
    engine = written(loaded, tmp_path / "out")
    sources = encoded(loaded, LINES)
    targets = [list(range(5, 6 + i % 7)) for i in range(len(sources))]
    together = engine.score(sources, targets)
    monkeypatch.setattr("vtrans.decoding.ctranslate2_engine.SCORED_TOKENS", 20)
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
def test_the_search_on_the_engine_is_the_search(
    config: SearchConfig, full: bool, tiny_run: RunFolder, tiny_data: DataFolder, tmp_path: Path
) -> None:
    """Scores, order and what is unfinished, for limits that cut searches short, with a model that has
    learnt to end and one that has not."""
    nbest, ends = config.beam if full else 1, set()
    for number, loaded in enumerate([load_model(tiny_run.last), random_model(tiny_data)]):
        exported = written(loaded, tmp_path / str(number))
        lines = [pair[0] for pair in TRAIN_PAIRS[::6]] + made_up(loaded.src_vocab)[:40:2]
        sources = encoded(loaded, lines)
        pairs = searched(loaded, exported, config, nbest, sources)
        different = 0
        for source, (ours, theirs) in zip(sources, pairs, strict=True):
            if [h.tokens for h in ours] != [h.tokens for h in theirs]:
                different += 1
                continue
            assert [h.finished for h in ours] == [h.finished for h in theirs], source
            assert [h.logprob for h in ours] == pytest.approx([h.logprob for h in theirs], rel=1e-5, abs=2e-4)
            assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], rel=1e-5, abs=2e-4)
        assert different <= len(sources) // 50  # near-ties
        ends |= {ours[0].finished for ours, _ in pairs}
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
]


@pytest.mark.parametrize("config", RULED, ids=lambda c: f"{c.beam} {c.alpha} {c.min_length} {c.no_repeat_ngram}")
def test_the_rules_on_the_engine_are_the_rules(
    config: SearchConfig, tiny_run: RunFolder, tiny_data: DataFolder, tmp_path: Path
) -> None:
    """Equal translations and scores, though the engine normalises over what a rule leaves. Two models end at
    once, another hardly ends and repeats itself; without the rule they find something else."""
    eager, endless = random_model(tiny_data, tie="none"), random_model(tiny_data, tie="none")
    sure = random_model(tiny_data, tie="none")  # of EOS, to more digits than float32 has for 1 - p
    with torch.no_grad():
        src = torch.tensor(encoded(eager, LINES[:1]))
        memory = eager.model.encode(src, src != PAD_ID)
        first = eager.model.decode(torch.tensor([[BOS_ID]]), memory, src != PAD_ID)[0, 0]
        # EOS is the likeliest first subword of this sentence, and about as likely in others.
        eager.model.projection.weight[EOS_ID] = first * (eager.model.logits(first).max() + 0.2) / first.square().sum()
        sure.model.projection.weight[EOS_ID] = eager.model.projection.weight[EOS_ID] * 5
        endless.model.projection.weight[EOS_ID] -= 1.0
    changed = 0
    for number, loaded in enumerate([load_model(tiny_run.last), eager, endless, sure]):
        exported = written(loaded, tmp_path / str(number))
        sources = encoded(loaded, [pair[0] for pair in TRAIN_PAIRS[::6]] + made_up(loaded.src_vocab)[:40:2])
        free = dataclasses.replace(config, min_length=0, no_repeat_ngram=0)
        unruled = searched(loaded, exported, free, config.beam, sources)
        different = 0
        for (ours, theirs), (without, _) in zip(
            searched(loaded, exported, config, config.beam, sources), unruled, strict=True
        ):
            changed += ours[0].tokens != without[0].tokens
            if [h.tokens for h in ours] != [h.tokens for h in theirs]:
                different += 1
                continue
            assert [h.finished for h in ours] == [h.finished for h in theirs]
            assert [h.logprob for h in ours] == pytest.approx([h.logprob for h in theirs], rel=1e-5, abs=2e-4)
            assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], rel=1e-5, abs=2e-4)
        assert different <= len(sources) // 50  # near-ties
    assert changed > 10


def test_what_the_engine_left_out_is_searched_again(
    tiny_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_model(tiny_run.last)
    exported, config = written(loaded, tmp_path / "out"), SearchConfig(beam=4)
    sources = encoded(loaded, [pair[0] for pair in TRAIN_PAIRS[::2]])

    def different() -> int:
        pairs = searched(loaded, exported, config, 4, sources)
        return sum([h.tokens for h in ours] != [h.tokens for h in theirs] for ours, theirs in pairs)

    assert different() <= 1
    monkeypatch.setattr(exported, "_search_again", lambda *_: None)
    assert different() > 5


def test_padding_is_never_predicted(tiny_data: DataFolder, tmp_path: Path) -> None:
    loaded = random_model(tiny_data, tie="none")
    with torch.no_grad():
        loaded.model.projection.weight[PAD_ID] = loaded.model.projection.weight[EOS_ID] * 20
    exported = written(loaded, tmp_path / "out")
    config = SearchConfig(beam=3)
    pairs = searched(loaded, exported, config, 3, encoded(loaded, LINES))
    assert not any(PAD_ID in h.tokens for _, theirs in pairs for h in theirs)
    assert sum([h.tokens for h in ours] != [h.tokens for h in theirs] for ours, theirs in pairs) <= 1  # near-ties


@pytest.mark.parametrize("changes", [{}, {"positions": "learned", "max_positions": 40}], ids=["sinusoidal", "learned"])
def test_a_long_line_is_cut_as_natively(changes: dict[str, Any], tiny_data: DataFolder, tmp_path: Path) -> None:
    search = SearchConfig(max_source=30, beam=2)
    loaded = random_model(tiny_data, search, **changes)
    exported = written(loaded, tmp_path / "out")
    assert exported.max_length == changes.get("max_positions", 30 + EXTRA_LENGTH)
    ours, theirs = Translator(TorchEngine([loaded]), retry=False), Translator(exported, retry=False)
    lines = [" ".join(LINES[:8]), "", " ", LINES[0], "\u200b"]
    assert list(ours.translate(lines)) == list(theirs.translate(lines))
    assert ours.counts.cut == theirs.counts.cut == 1
    assert dataclasses.replace(ours.counts, seconds=0) == dataclasses.replace(theirs.counts, seconds=0)


def test_quantising_leaves_the_original_as_it_is(
    tiny_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_model(tiny_run.last)
    # How much so small a model loses by 8 bits depends on how it was trained and on the processor.
    for quantization in ("float16", "int8"):
        monkeypatch.setitem(comparison.TOLERANCES, quantization, comparison.Tolerance(*[math.inf] * 3))
    before = {name: p.clone() for name, p in loaded.model.named_parameters()}
    sizes = {}
    for quantization in exporting.QUANTIZATIONS:
        found = export(loaded, tmp_path / quantization, QUIET, quantization=quantization, samples=LINES)
        assert (found.mean > 1e-4) == (quantization != "float32")
        sizes[quantization] = (tmp_path / quantization / "model.bin").stat().st_size
        assert load_exported(tmp_path / quantization).quantization == quantization
    assert max(sizes["int8"], sizes["float16"]) < sizes["float32"]
    assert all(torch.equal(before[name], p) for name, p in loaded.model.named_parameters())


def damaged(change: Callable[[Any], None]) -> Callable[[LoadedModel, int], Any]:
    make = ctranslate2_spec.specification

    def specification(loaded: LoadedModel, positions: int) -> Any:
        spec = make(loaded, positions)
        change(spec)
        return spec

    return specification


def _bias(spec: Any) -> None:
    spec.decoder.layer[0].ffn.linear_1.bias[3] += 0.01


def _activation(spec: Any) -> None:
    spec.encoder.activation = spec.encoder.activation.dtype.type(1)  # GELUTanh, the approximation


def _positions(spec: Any) -> None:
    spec.decoder.position_encodings.encodings[-2] *= -1  # the last one that the model has


def _pad(spec: Any) -> None:
    spec.decoder.projection.bias[PAD_ID] = 9.0


def _epsilon(spec: Any) -> None:
    spec.config.layer_norm_epsilon = 1e-3


@pytest.mark.parametrize("change", [_bias, _activation, _positions, _pad, _epsilon])
def test_a_difference_is_found(
    change: Callable[[Any], None], tiny_data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = random_model(tiny_data, activation="gelu")
    export(loaded, tmp_path / "out", QUIET, samples=LINES)
    before = (tmp_path / "out" / "model.bin").read_bytes()
    monkeypatch.setattr(exporting, "specification", damaged(change))
    with pytest.raises(VtransError, match="float32") as caught:
        export(loaded, tmp_path / "out", QUIET, samples=LINES)
    assert caught.value.exit_code == 1
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out" / "model.bin").read_bytes() == before


def test_a_comparison_outside_the_tolerances_is_a_problem() -> None:
    found = comparison.Comparison("float32", 10, 100, 1e-6, 1e-7, 9, 1e-4)
    assert found.problem() is None
    for bad in ({"lost": 0.01}, {"token": float("nan")}, {"mean": 1.0}, {"quantization": "int8", "lost": 0.5}):
        assert dataclasses.replace(found, **bad).problem() is not None


def test_translations_that_score_less_are_counted(
    tiny_data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worse search, here a greedy one, finds translations with a lower score by the same weights."""
    loaded = random_model(tiny_data)
    exported = written(loaded, tmp_path / "out")
    assert compare(loaded, exported, LINES).lost < 1e-3
    translate = exported.translate
    monkeypatch.setattr(
        exported, "translate", lambda sources, search, options: translate(sources, SearchConfig(beam=1), options)
    )
    found = compare(loaded, exported, LINES)
    assert found.equal < len(LINES)
    assert found.lost > 1e-3
    assert found.problem() is not None


# Refusals.


def test_what_can_not_be_exported_is_refused_by_name(
    tiny_data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, out = random_model(tiny_data), tmp_path / "out"

    @dataclasses.dataclass(frozen=True)
    class Wider(ModelConfig):
        experts: int = dataclasses.field(default=1, metadata={"key": Key("experts", int)})

    for config, words in (
        (
            {"architecture": "decoder-only", "encoder_layers": 0},
            r"model\.architecture = decoder-only can't be exported",
        ),
        ({"cross_attention_residual": False}, r"model\.cross_attention_residual = false can't be exported"),
    ):
        with pytest.raises(InputError, match=words):
            exporting.check_exportable(dataclasses.replace(SMALL, **config))
    exporting.check_exportable(Wider())
    with pytest.raises(InputError, match=r"model\.experts = 8"):
        exporting.check_exportable(Wider(experts=8))
    with pytest.raises(InputError, match=r"`quantization` .*'int4'"):
        export(loaded, out, QUIET, quantization="int4")
    with pytest.raises(InputError, match="blank"):
        export(loaded, out, QUIET, samples=["", "  "])
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match=r"out .*`out`"):
        export(loaded, out, QUIET, samples=LINES)
    assert names(tmp_path) == ["out"]
    assert names(out) == ["thesis.txt"]
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(InputError, match=r"pip install 'vtrans\[ctranslate2\]'"):
        export(loaded, tmp_path / "new", QUIET, samples=LINES)


def test_what_the_engine_does_not_do_is_refused(
    tiny_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    written(load_model(tiny_run.last), folder)
    for changes, sentence in (
        ({"stop": "exhaustive"}, "`stop` exhaustive"),
        ({"min_length": 2}, "`min_length` 2"),
        ({"no_repeat_ngram": 3}, "`no_repeat_ngram` 3"),
        ({"repetition_penalty": 1.5}, "`repetition_penalty` 1.5"),
        ({"repetition_penalty": 1.5, "beam": 1}, "`repetition_penalty` 1.5"),
        ({"beam": 200}, "`beam` 159"),
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
        load([folder, tiny_run.last])
    with pytest.raises(InputError, match=r"run `vtrans export .*last\.safetensors"):
        load(tiny_run.last, engine="ctranslate2")
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
    with pytest.raises(InputError, match=r"pip install 'vtrans\[ctranslate2\]'"):
        load(folder)


def test_a_damaged_folder_is_refused(tiny_run: RunFolder, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    written(load_model(tiny_run.last), folder)
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
    assert exported_folder(tiny_run.path, None) is None


# The commands.


def test_export_and_translate(run_cli: Run, run_copy: RunFolder, tmp_path: Path) -> None:
    lines = stable(load_model(run_copy.choose_model()[0]), LINES)
    text = ("\n".join(["", *lines[:5], "  ", lines[5]]) + "\n").encode()
    (tmp_path / "samples").write_bytes(text)
    done = run_cli("export", run_copy.path, "--sample-file", tmp_path / "samples", "--json")
    assert done.code == 0, done.err
    figures = json.loads(done.out)
    assert figures["sentences"] == figures["equal"] == 6
    assert "6 of 6 " in done.err
    folder = run_copy.path / "ctranslate2"
    assert is_exported(folder)
    native = run_cli("translate", "--model", run_copy.path, "--no-retry", stdin=text)
    for words in (["--model", folder], ["--model", run_copy.path, "--engine", "ctranslate2"]):
        engine = run_cli("translate", *words, "--no-retry", stdin=text)
        assert engine.code == 0
        assert engine.out == native.out
        assert f"model: {folder} (float32), on cpu" in engine.err
    words = ["--nbest", "2", "--json", "--quiet", "--no-retry"]
    for ours, theirs in zip(
        run_cli("translate", "--model", run_copy.path, *words, stdin=text).out.split(b"\n")[:-1],
        run_cli("translate", "--model", folder, *words, stdin=text).out.split(b"\n")[:-1],
        strict=True,
    ):
        for a, b in zip(json.loads(ours)["translations"], json.loads(theirs)["translations"], strict=True):
            assert (a["text"], a["tokens"], a["finished"]) == (b["text"], b["tokens"], b["finished"])
            assert a["token_logprobs"] == pytest.approx(b["token_logprobs"], abs=1e-3)
            assert (a["logprob"], a["score"]) == pytest.approx((b["logprob"], b["score"]), abs=1e-3)
    buffered = run_cli(
        "translate", "--model", folder, "--line-buffered", "--max-length", "3", "--quiet", "--no-retry", stdin=text
    )
    short = run_cli("translate", "--model", run_copy.path, "--max-length", "3", "--quiet", "--no-retry", stdin=text)
    assert buffered.out == short.out


def test_a_stored_minimum_length_is_exported_and_translated_with(run_cli: Run, run_copy: RunFolder) -> None:
    loaded = load_model(run_copy.best)
    save_model(run_copy.best, dataclasses.replace(loaded, search=SearchConfig(min_length=1)))
    done = run_cli("export", run_copy.path)
    assert (done.code, "does not support" in done.err) == (0, False), done.err
    text = ("\n".join(LINES) + "\n").encode()
    words = ["translate", "--model", run_copy.path, "--no-retry"]  # only torch can retry with this beam
    native, engine = run_cli(*words, stdin=text), run_cli(*words, "--engine", "ctranslate2", stdin=text)
    assert engine.code == 0, engine.err
    assert engine.out == native.out


def test_the_commands_say_what_is_wrong(run_cli: Run, run_copy: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_cli("translate", "--model", run_copy.path, "--engine", "ctranslate2", stdin=b"a\n")
    assert done.code == 2
    assert f"run `vtrans export {run_copy.path} --out FOLDER`" in done.err
    done = run_cli("export", run_copy.last)
    assert (done.code, "--out" in done.err) == (2, True)
    done = run_cli("export", run_copy.path, "--to", "onnx")
    assert (done.code, "--to" in done.err) == (2, True)
    assert run_cli("export", run_copy.path, "--quiet").code == 0
    exported = run_copy.path / "ctranslate2"
    for name in ("model.bin", "vtrans.json", "new"):
        done = run_cli("translate", "--model", run_copy.path, "--output", exported / name, stdin=b"a\n")
        assert (done.code, str(exported / name) in done.err) == (2, True)
    load_exported(exported, "cpu")
    shutil.rmtree(exported)
    monkeypatch.setattr(exporting, "specification", damaged(_bias))
    done = run_cli("export", run_copy.path)
    assert (done.code, "--quantization" in done.err) == (1, True)
    assert not (run_copy.path / "ctranslate2").exists()


def test_a_stale_export_is_refused(run_cli: Run, run_copy: RunFolder) -> None:
    """Also one whose model was trained again for as many steps, and so has the same facts about its training."""
    assert run_cli("export", run_copy.path, "--quiet").code == 0
    folder, model = run_copy.path / "ctranslate2", choose_model(run_copy.path).file
    assert run_cli("translate", "--model", run_copy.path, "--engine", "ctranslate2", stdin=b"a\n").code == 0
    original = load_model(model)
    other = load_model(model)
    with torch.no_grad():
        other.model.projection.weight[EOS_ID, 0] += 1e-3
    searched = dataclasses.replace(original, search=SearchConfig(alpha=2.0))
    averaged = dataclasses.replace(original, training={"average_of": [20, 30], "run_step": 30})
    for file, changed in ((model, other), (model, searched), (run_copy.averaged, averaged)):
        save_model(file, changed)
        done = run_cli("translate", "--model", run_copy.path, "--engine", "ctranslate2", stdin=b"a\n")
        assert (done.code, done.out) == (2, b"")
        assert str(file) in done.err
        assert f"vtrans export {run_copy.path}" in done.err
        with pytest.raises(InputError):
            load(run_copy.path, engine="ctranslate2")
        assert run_cli("translate", "--model", folder, stdin=b"a\n").code == 0
        assert run_cli("export", run_copy.path, "--quiet").code == 0  # replaces its own
        assert run_cli("translate", "--model", run_copy.path, "--engine", "ctranslate2", stdin=b"a\n").code == 0
    shutil.copy(run_copy.averaged, run_copy.path / "again")  # equal bytes in another file
    (run_copy.path / "again").replace(run_copy.averaged)
    assert run_cli("translate", "--model", run_copy.path, "--engine", "ctranslate2", stdin=b"a\n").code == 0
