"""Exports to CTranslate2: equal to the original, or refused."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cli_runner import Done
from exports import LINES, compared, encoded, random_model, written
from near_ties import Plain, equal_or_tied, plain

from vtrans.checkpoint import LoadedModel, RunFolder, choose_model, load_model, save_model
from vtrans.config import SearchConfig
from vtrans.console import Console
from vtrans.data.store import DataFolder
from vtrans.data.vocabulary import EOS_ID, PAD_ID
from vtrans.engines.ctranslate2_engine import CTranslate2Engine
from vtrans.engines.ctranslate2_folder import is_exported, load_exported
from vtrans.engines.torch_engine import TorchEngine
from vtrans.errors import InputError, VtransError
from vtrans.interop.ctranslate2 import exporter as exporting
from vtrans.interop.ctranslate2 import spec as specifying
from vtrans.interop.ctranslate2.original import CTranslate2Model
from vtrans.interop.exports import export_model
from vtrans.interop.verification import Tolerance, Verified, outputs, scorer, verify
from vtrans.translate.loading import load
from vtrans.translate.sources import EXTRA_LENGTH
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.translator import Translator

ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2, an optional extra, is not installed")

Run = Callable[..., Done]
QUIET = Console(quiet=True)


@pytest.fixture
def tiny_run(ending_run: RunFolder) -> RunFolder:
    """`run_copy` copies this one."""
    return ending_run


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def export(loaded: LoadedModel, out: Path, console: Console = QUIET, **options: Any) -> Verified:
    verified = export_model(loaded, "ctranslate2", out, console, **options)
    assert verified is not None
    return verified


def compare(loaded: LoadedModel, exported: CTranslate2Engine, lines: list[str]) -> Verified:
    program = CTranslate2Model(exported, exporting.TOLERANCES["float32"])
    return verify(outputs(loaded, lines, thorough=True), program, score=scorer(loaded))


def compared_output(loaded: LoadedModel, text: bytes, ours: Done, theirs: Done, nbest: int = 1, **search: Any) -> None:
    """Asserts that two commands' translations of a text, as JSON, are equal or near-ties."""

    def translated(exact: list[LoadedModel], line: str) -> Plain:
        config = dataclasses.replace(exact[0].search, **search)
        return plain(next(Translator(TorchEngine(exact), config, retry=False).nbest([line], nbest)))

    lines = text.decode().split("\n")[:-1]
    both = [
        [[SimpleNamespace(**t) for t in json.loads(line)["translations"]] for line in done.out.split(b"\n")[:-1]]
        for done in (ours, theirs)
    ]
    native, exported = ([plain(translations) for translations in each] for each in both)
    equal = equal_or_tied([loaded], translated, lines, native, exported, logprob=10)
    for best_a, best_b in itertools.compress(zip(*both, strict=True), equal):
        for a, b in zip(best_a, best_b, strict=True):
            assert a.text == b.text
            assert a.token_logprobs == pytest.approx(b.token_logprobs, abs=1e-3)
            assert (a.logprob, a.score) == pytest.approx((b.logprob, b.score), abs=1e-3)


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
    "of Marian": {
        "positions": "stored",
        "max_positions": 90,
        "activation": "swish",
        "projection_bias": True,
        "norm_eps": 1e-9,
    },
    "no source EOS": {"source_eos": False},
    "rotary": {"positions": "rotary", "norm": "pre"},
    "shared positions": {"positions": "learned", "max_positions": 90, "share_positions": True, "activation": "gelu"},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_architecture_gives_equal_results_when_exported(name: str, tiny_data: DataFolder, tmp_path: Path) -> None:
    loaded, lines = random_model(tiny_data, **VARIANTS[name]), [*LINES, "\u2603 \U0001d4b3"]
    exported = written(loaded, tmp_path / "out")
    compared(loaded, exported, loaded.search, 1, encoded(loaded, lines))
    comparisons = compare(loaded, exported, lines)
    assert comparisons.largest < 2e-4
    assert comparisons.sentences == len(lines)
    assert comparisons.lost < 1e-4
    reach = loaded.model.max_length or 40 + EXTRA_LENGTH
    assert comparisons.logprobs > reach  # the pair that reaches the end of the position table is among them


def test_a_translation_that_reaches_the_end_of_a_position_table(tiny_data: DataFolder, tmp_path: Path) -> None:
    """It is unfinished, and EOS after it would have no position."""
    loaded = random_model(tiny_data, tie="none", positions="learned", max_positions=30, share_positions=True)
    with torch.no_grad():
        loaded.model.projection.weight[EOS_ID] -= 1.0
    verified = export(loaded, tmp_path / "out", QUIET, samples=LINES)
    assert verified.sentences == len(LINES)
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
        (SearchConfig(beam=1, suppress=("<unk>",)), []),
        (SearchConfig(beam=1, min_length=4, no_repeat_ngram=3), []),
        (SearchConfig(min_length=4, no_repeat_ngram=3), ["min_length = 4", "no_repeat_ngram = 3"]),
        (SearchConfig(stop="exhaustive", repetition_penalty=1.5), ["stop = exhaustive", "repetition_penalty = 1.5"]),
        (SearchConfig(beam=300), ["beam = 300"]),
        (SearchConfig(beam=6, beam_groups=3), ["beam_groups = 3"]),
    ],
    ids=lambda value: "" if isinstance(value, SearchConfig) else ", ".join(value) or "none",
)
def test_exporting_names_the_stored_settings_that_the_engine_does_not_support(
    search: SearchConfig, named: list[str], tiny_data: DataFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Translating with them is refused; translating with the settings that the warnings propose is not."""
    loaded = random_model(tiny_data, dataclasses.replace(search, max_source=40))
    verified = export(loaded, tmp_path / "out", Console(quiet=True), samples=LINES[:3])
    assert (verified.sentences, verified.problem()) == (3, None)
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
    verified = export(loaded, tmp_path / "out", QUIET, samples=LINES)
    assert (verified.sentences, verified.problem()) == (len(LINES), None)
    assert {"src.model", "tgt.model"} < {file.name for file in (tmp_path / "out").iterdir()}
    exported = load_exported(tmp_path / "out", "cpu")
    assert exported.src_vocab.digest == loaded.src_vocab.digest
    assert exported.tgt_vocab.digest == loaded.tgt_vocab.digest


def test_quantization_does_not_change_the_original(
    tiny_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_model(tiny_run.last)
    # How much 8 bits cost so small a model depends on its training and on the processor.
    for quantization in ("float16", "int8"):
        monkeypatch.setitem(exporting.TOLERANCES, quantization, Tolerance(*[math.inf] * 3))
    before = {name: p.clone() for name, p in loaded.model.named_parameters()}
    sizes = {}
    for quantization in exporting.TOLERANCES:
        verified = export(loaded, tmp_path / quantization, QUIET, quantization=quantization, samples=LINES)
        assert (verified.mean > 1e-4) == (quantization != "float32")
        sizes[quantization] = (tmp_path / quantization / "model.bin").stat().st_size
        assert load_exported(tmp_path / quantization).quantization == quantization
    assert max(sizes["int8"], sizes["float16"]) < sizes["float32"]
    assert all(torch.equal(before[name], p) for name, p in loaded.model.named_parameters())


def damaged(change: Callable[[Any], None]) -> Callable[[LoadedModel, int], Any]:
    make = specifying.specification

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
    spec.decoder.position_encodings.encodings[-2] *= -1  # the last one of the model


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
    comparisons = compare(loaded, exported, LINES)
    assert sum(comparisons.equal.values()) < len(LINES)
    assert comparisons.lost > 1e-3
    assert comparisons.problem() is not None


# Refusals.


def test_an_architecture_that_cannot_be_exported_is_refused_by_name(
    tiny_data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, out = random_model(tiny_data), tmp_path / "out"
    with pytest.raises(InputError, match=r"model\.autoregression"):
        export(random_model(tiny_data, autoregression="ssru"), out, QUIET, samples=LINES)
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
    with pytest.raises(InputError, match=r"pip install '\.\[ctranslate2\]'"):
        export(loaded, tmp_path / "new", QUIET, samples=LINES)


# The commands.


def test_export_and_translate(run_cli: Run, run_copy: RunFolder, tmp_path: Path) -> None:
    loaded = load_model(run_copy.choose_model()[0])
    text = ("\n".join(["", *LINES[:5], "  ", LINES[5]]) + "\n").encode()
    (tmp_path / "samples").write_bytes(text)
    done = run_cli("export", run_copy.path, "--sample-file", tmp_path / "samples", "--json")
    assert done.code == 0, done.err
    figures = json.loads(done.out)
    assert figures["sentences"] == 6
    assert f"{sum(figures['equal'].values())} of 6 " in done.err
    folder = run_copy.path / "ctranslate2"
    assert is_exported(folder)
    for words, nbest, search in (
        (["--nbest", "2"], 2, {}),
        (["--max-length", "3", "--line-buffered"], 1, {"max_length": 3}),
    ):
        words = ["translate", "--json", "--no-retry", *words, "--model"]
        native = run_cli(*words, run_copy.path, stdin=text)
        for model in ([folder], [run_copy.path, "--engine", "ctranslate2"]):
            exported = run_cli(*words, *model, stdin=text)
            assert exported.code == 0
            assert f"model: {folder} (float32), on cpu" in exported.err
            compared_output(loaded, text, native, exported, nbest, **search)


def test_a_stored_minimum_length_also_holds_for_the_export(run_cli: Run, run_copy: RunFolder) -> None:
    loaded = dataclasses.replace(load_model(run_copy.best), search=SearchConfig(min_length=1))
    save_model(run_copy.best, loaded)
    done = run_cli("export", run_copy.path)
    assert (done.code, "does not support" in done.err) == (0, False), done.err
    text = ("\n".join(LINES) + "\n").encode()
    # With this beam, only torch can search again.
    words = ["translate", "--model", run_copy.path, "--no-retry", "--json"]
    native, exported = run_cli(*words, stdin=text), run_cli(*words, "--engine", "ctranslate2", stdin=text)
    assert exported.code == 0, exported.err
    compared_output(loaded, text, native, exported)


def test_the_commands_name_the_problem(run_cli: Run, run_copy: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_cli("translate", "--model", run_copy.path, "--engine", "ctranslate2", stdin=b"a\n")
    assert done.code == 2
    assert f"vtrans export {run_copy.path}" in done.err
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
    """Even if its model was trained again for as many steps, so that the facts about its training are equal."""
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
    shutil.copy(run_copy.averaged, run_copy.path / "again")  # the same bytes in another file
    (run_copy.path / "again").replace(run_copy.averaged)
    assert run_cli("translate", "--model", run_copy.path, "--engine", "ctranslate2", stdin=b"a\n").code == 0


@pytest.mark.parametrize("bias", [True, False])
def test_suppressed_subwords_are_left_out_of_the_softmax(bias: bool, tiny_data: DataFolder, tmp_path: Path) -> None:
    loaded = random_model(tiny_data, projection_bias=bias, tie="none")
    said = [token for (t,) in Translator(TorchEngine([loaded]), retry=False).nbest(LINES) for token in t.tokens]
    often = max(said, key=said.count)
    piece = loaded.tgt_vocab.piece(often)
    loaded = dataclasses.replace(loaded, search=dataclasses.replace(loaded.search, suppress=(piece,)))
    before = {name: weight.clone() for name, weight in loaded.model.state_dict().items()}
    verified = export(loaded, tmp_path / "out", QUIET, samples=LINES)
    assert verified.largest < 2e-4
    exported = load_exported(tmp_path / "out", "cpu")
    assert exported.search.suppress == ()
    assert all(often not in t.tokens for (t,) in Translator(exported, retry=False).nbest(LINES))
    after = loaded.model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
