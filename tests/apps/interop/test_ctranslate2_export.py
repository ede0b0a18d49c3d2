"""Exports to CTranslate2: equal to the original, or refused."""

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runner import Run
from drawn import some
from exports import LINES, random_model, written

from vtrans.apps.interop import comparison
from vtrans.apps.interop.comparison import Comparison, Program, encoded, outputs, scorer
from vtrans.apps.interop.ctranslate2 import exporter as exporting
from vtrans.apps.interop.formats import export_model, read_model
from vtrans.data.store import DataFolder
from vtrans.engines.torch_engine import TorchEngine
from vtrans.model.checkpoint import LoadedModel
from vtrans.storage.run_folder import RunFolder
from vtrans.system.console import Console
from vtrans.system.errors import InputError, VtransError
from vtrans.text.vocabulary import PAD_ID
from vtrans.translate.steps.split import EXTRA_LENGTH
from vtrans.translate.translator import Translator

ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed: pip install ctranslate2")

QUIET = Console(quiet=True)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def export(loaded: LoadedModel, out: Path, console: Console = QUIET, **options: Any) -> Comparison:
    found = export_model(loaded, "ctranslate2", out, console, **options)
    assert found is not None
    return found


def compare(loaded: LoadedModel, program: Program, lines: list[str]) -> Comparison:
    return comparison.compare(outputs(loaded, lines, program), program, loaded.tgt_vocab, scorer(loaded))


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


@pytest.mark.parametrize("name", some(VARIANTS, 5))
def test_every_architecture_gives_equal_results_when_exported(name: str, tiny_data: DataFolder, tmp_path: Path) -> None:
    loaded, lines = random_model(tiny_data, **VARIANTS[name]), [*LINES, "\u2603 \U0001d4b3"]
    found = compare(*written(loaded, tmp_path / "out"), lines)
    assert found.largest < 2e-4
    assert found.sentences == len(lines)
    assert found.translations is not None
    assert found.translations.lost < 1e-4
    reach = loaded.model.config.max_length or 40 + EXTRA_LENGTH
    assert found.logprobs > reach  # the pair that reaches the end of the position table is among them


def damaged(change: Callable[[Any], None]) -> Callable[[LoadedModel, int], Any]:
    make = exporting.specification

    def specification(loaded: LoadedModel, positions: int) -> Any:
        spec = make(loaded, positions)
        change(spec)
        return spec

    return specification


def _bias(spec: Any) -> None:
    spec.decoder.layer[0].ffn.linear_1.bias[3] += 0.01


def _positions(spec: Any) -> None:
    spec.decoder.position_encodings.encodings[-2] *= -1  # the last one of the model


def _pad(spec: Any) -> None:
    spec.decoder.projection.bias[PAD_ID] = 9.0


@pytest.mark.parametrize("change", [_bias, _positions, _pad])
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


def test_the_command_compares_the_samples(run_cli: Run, run_copy: RunFolder, tmp_path: Path) -> None:
    text = ("\n".join(["", *LINES[:5], "  ", LINES[5]]) + "\n").encode()
    (tmp_path / "samples").write_bytes(text)
    done = run_cli("export", run_copy.path, "--sample-file", tmp_path / "samples", "--json")
    assert done.code == 0, done.err
    figures = json.loads(done.out)
    assert figures["sentences"] == 6
    assert figures["translations"]["equal"] == 6
    assert "6 of 6 translations are equal" in done.err
    assert (run_copy.path / "ctranslate2" / "model.bin").is_file()


def test_the_commands_name_the_problem(run_cli: Run, run_copy: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_cli("export", run_copy.last)
    assert (done.code, "--out" in done.err) == (2, True)
    done = run_cli("export", run_copy.path, "--to", "onnx")
    assert (done.code, "--to" in done.err) == (2, True)
    assert run_cli("export", run_copy.path, "--quiet").code == 0
    exported = run_copy.path / "ctranslate2"
    done = run_cli("translate", "--model", exported, stdin=b"a\n")
    assert (done.code, "vtrans import" in done.err) == (2, True)
    read_model(exported)
    assert run_cli("export", run_copy.path, "--quiet").code == 0  # replaces its own
    shutil.rmtree(exported)
    monkeypatch.setattr(exporting, "specification", damaged(_bias))
    done = run_cli("export", run_copy.path)
    assert (done.code, "--quantization" in done.err) == (1, True)
    assert not (run_copy.path / "ctranslate2").exists()


@pytest.mark.parametrize("bias", [True, False])
def test_suppressed_subwords_are_left_out_of_the_softmax(bias: bool, tiny_data: DataFolder, tmp_path: Path) -> None:
    loaded = random_model(tiny_data, projection_bias=bias, tie="none")
    said = [token for (t,) in Translator(TorchEngine([loaded]), retry=False).nbest(LINES) for token in t.tokens]
    often = max(said, key=said.count)
    piece = loaded.tgt_vocab.piece(often)
    loaded = dataclasses.replace(loaded, search=dataclasses.replace(loaded.search, suppress=(piece,)))
    before = {name: weight.clone() for name, weight in loaded.model.state_dict().items()}
    found = export(loaded, tmp_path / "out", QUIET, samples=LINES)
    assert found.largest < 2e-4
    _, program = written(loaded, tmp_path / "again")
    translations = program.translate(encoded(loaded, LINES))
    assert translations is not None
    assert not any(often in tokens for tokens in translations)
    after = loaded.model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
