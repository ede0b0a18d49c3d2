"""Damaged and hostile models of other programs: each gets one sentence and exit code 2, in bounded time and memory."""

import json
import os
import re
import resource
import shutil
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import marian_models
import numpy as np
import pytest
import torch
from cli_runner import Done, Run
from ctranslate2_folders import (
    Change,
    Folder,
    in_both,
    in_config,
    in_variables,
    packed,
    packed_name,
    quantized,
    transformer,
    without,
)
from foreign import hugging_face_folder
from safetensors.torch import load_file, save_file

from vtrans.apps.interop.formats import read_model
from vtrans.system.errors import InputError

LONGEST_SENTENCE = 600  # characters, with the path
SECONDS = 30  # a hundred times what any of these takes on an idle core
MEGABYTES = 200


def in_file(**values: Any) -> Change:
    return lambda folder: vars(folder).update(values)


def in_vocabulary(change: Callable[[list[Any]], object]) -> Change:
    return lambda folder: change(folder.vocabularies["target_vocabulary"])


def as_int8(change: Change) -> Change:
    def apply(folder: Folder) -> None:
        folder.variables = quantized(folder.variables, "int8")
        change(folder)

    return apply


@contextmanager
def bounded() -> Iterator[None]:
    """Fails if the block takes long, such as by waiting for a pipe, or much memory."""

    def ring(number: int, frame: object) -> None:
        raise TimeoutError

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    previous = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEGABYTES * 1024


def imported(run_cli: Run, path: Path) -> Done:
    """Imports a model that must be refused, and checks how it is refused."""
    out = path.parent / "out" / "model.safetensors"
    with bounded():
        done = run_cli("import", path, "--out", out, "--quiet")
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert len(done.err) < LONGEST_SENTENCE
    assert not done.out
    assert not out.parent.exists()
    return done


def refusal(folder: Path) -> str | None:
    """Why a model is refused, or None if it is read."""
    try:
        read_model(folder)
    except InputError as error:
        return str(error)
    return None


FLOATS = np.float32
E, FFN = "encoder/embeddings_0/weight", "encoder/layer_0/ffn/linear_0"
# Contents of a CTranslate2 folder, and what the sentence names.
CONTENTS: dict[str, tuple[Change, str]] = {
    "version 0": (in_file(version=0), "binary version"),
    "another specification": (in_file(specification="WhisperSpec"), "WhisperSpec"),
    "a revision of the future": (in_file(revision=8), "revision"),
    "an alias of nothing": (in_file(aliases={"a": "b"}), "alias"),
    "an alias with the name of a variable": (in_file(aliases={E: "decoder/embeddings/weight"}), "weight occurs"),
    "a missing embedding": (without(E), "encoder/embeddings/weight"),
    "a missing final norm": (without("encoder/layer_norm/gamma", "encoder/layer_norm/beta"), "encoder/layer_norm"),
    "a final norm after post-norm": (in_both("pre_norm", np.int8(0)), "layer_norm"),
    "a missing projection": (without("decoder/projection/weight"), "projection"),
    "relative positions": (
        in_variables("encoder/layer_0/self_attention/relative_position_keys", np.ones((3, 4), FLOATS)), "relative"
    ),
    "a norm of the embeddings": (in_variables("encoder/layernorm_embedding/gamma", np.ones(8, FLOATS)), "embedding"),
    "a name with a path": (in_variables("../../../tmp/x", np.ones(3, FLOATS)), "tmp/x"),
    "five dimensions": (in_variables(E, np.ones((1, 1, 1, 1, 1), FLOATS)), "encoder/embeddings/weight"),
    "positions of another width": (
        in_variables("encoder/position_encodings/encodings", np.ones((9, 7), FLOATS)), "encodings"
    ),
    "no heads": (in_both("num_heads", np.int16(0)), "heads"),
    "heads that are no number": (in_both("num_heads", FLOATS(np.nan)), "num_heads"),
    "heads that differ": (in_variables("encoder/num_heads", np.int16(4)), "num_heads"),
    "an approximate activation": (in_both("activation", np.int8(1)), "activation"),
    "another scale": (in_both("scale_embeddings", FLOATS(3)), "scale_embeddings"),
    "rotary positions": (in_variables("encoder/layer_0/self_attention/rotary_dim", np.int32(0)), "rotary_dim"),
    "scaled outputs": (in_variables("decoder/scale_outputs", FLOATS(0.5)), "scale_outputs"),
    "int8 without a scale": (as_int8(without(f"{FFN}/weight_scale")), "scale"),
    "a scale of zero": (as_int8(in_variables(f"{FFN}/weight_scale", np.zeros(12, FLOATS))), "finite"),
    "sources with a start": (in_config(add_source_bos=True), "add_source_bos"),
    "a start that is no text": (in_config(decoder_start_token=5), "decoder_start_token"),
    "no unknown token": (lambda f: f.config.pop("unk_token"), "unk_token"),
    "a long end": (in_config(eos_token="e" * 10**6), "end token"),
    "a huge epsilon": (in_config(layer_norm_epsilon=10**300), "norm_eps"),
    "an epsilon that is a text": (in_config(layer_norm_epsilon="1e-5"), "layer_norm_epsilon"),
    "a token twice": (in_vocabulary(lambda tokens: tokens.__setitem__(2, "y")), "different"),
    "a missing token": (in_vocabulary(lambda tokens: tokens.pop()), "embeddings"),
    "no vocabulary": (in_file(vocabularies={}), "vocabulary"),
    "one vocabulary of two": (lambda f: f.vocabularies.pop("source_vocabulary"), "source_vocabulary"),
}  # fmt: skip


def changed_json(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        values = json.loads((folder / name).read_text())
        change(values)
        (folder / name).write_text(json.dumps(values))

    return apply


def changed_config(**changes: Any) -> Callable[[Path], None]:
    return changed_json("config.json", lambda config: config.update(changes))


def changed_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return apply


def cut(name: str, size: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def written(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


HUGGING_FACE: dict[str, tuple[Callable[[Path], object], str]] = {
    "configuration is not UTF-8": (written("config.json", b'{"a": "\xff"}'), "config.json"),
    "Pegasus without final norms": (
        changed_config(model_type="pegasus", activation_function="relu"), "model.encoder.layer_norm"
    ),
    "another activation": (changed_config(activation_function="tanh"), "activation_function"),
    "unequal stacks": (changed_config(decoder_ffn_dim=48), "decoder_ffn_dim"),
    "heads that do not divide": (changed_config(encoder_attention_heads=3, decoder_attention_heads=3), "heads"),
    "a huge size": (changed_config(d_model=1 << 40), "d_model"),
    "a start beyond the vocabulary": (changed_config(decoder_start_token_id=10**6), "decoder_start_token_id"),
    "another end": (changed_config(eos_token_id=1), "eos_token_id"),
    "another vocabulary size": (changed_config(vocab_size=7, decoder_vocab_size=7), "vocab.json"),
    "a wrong dropout": (changed_config(dropout=7), "dropout"),
    "a vocabulary with a gap": (changed_json("vocab.json", lambda ids: ids.update({"a": 10**6})), "vocab.json"),
    "no end of sentence": (changed_json("vocab.json", lambda ids: ids.update({"eos": ids.pop("</s>")})), "</s>"),
    "a piece that is no text": (changed_json("vocab.json", lambda ids: ids.update({"\ud800": ids.pop("</s>")})), "."),
    "cut weights": (cut("model.safetensors", 5000), "model.safetensors"),
    "a missing weight": (changed_weights(lambda t: t.pop("model.encoder.layers.1.fc1.bias")), "layers.1.fc1.bias"),
    "an unknown weight": (changed_weights(lambda t: t.update({"../x": torch.ones(1)})), "../x"),
    "a wrong shape": (changed_weights(lambda t: t.update({"final_logits_bias": torch.ones(9)})), "final_logits_bias"),
    "whole numbers as weights": (
        changed_weights(lambda t: t.update({"model.shared.weight": t["model.shared.weight"].int()})), "model.shared"
    ),
    "a weight that is not finite": (
        changed_weights(lambda t: t["model.shared.weight"].__setitem__((3, 2), torch.nan)), "src_embedding"
    ),
}  # fmt: skip


def ctranslate2_folder(path: Path, change: Change) -> Path:
    folder = Folder(transformer())
    change(folder)
    return folder.write(path)


def hugging_face(path: Path, damage: Callable[[Path], object]) -> Path:
    damage(hugging_face_folder(path))
    return path


@pytest.mark.parametrize(
    ("make", "damage", "named"),
    [
        *(pytest.param(ctranslate2_folder, *CONTENTS[name], id=name) for name in CONTENTS),
        *(pytest.param(hugging_face, *HUGGING_FACE[name], id=name) for name in HUGGING_FACE),
    ],
)
def test_a_folder_that_is_not_sound_is_refused_by_what_is_wrong(
    make: Callable[..., Path], damage: object, named: str, tmp_path: Path, run_cli: Run
) -> None:
    assert re.search(named, imported(run_cli, make(tmp_path / "folder", damage)).err)


BODY = Folder(transformer()).binary()
START = 4 + len(packed_name("TransformerSpec")) + 4  # where the number of variables is
ONE = packed("a", np.ones((2, 3), np.float32))
FACTS = len(packed_name("a"))  # where the number of dimensions is, within a variable
BINARIES: dict[str, bytes] = {
    "empty": b"",
    "a safetensors file": (2).to_bytes(8, "little") + b"{}",
    "bytes after the end": BODY + b"\0",
    "too many variables": BODY[:START] + b"\xff" * 4 + BODY[START + 4 :],
    "a variable twice": BODY[:START] + struct.pack("<I", 2) + ONE + ONE + bytes(4),
    "a name without a length": BODY[:START] + struct.pack("<IH", 1, 0),
    "a name without an end": BODY[:START] + struct.pack("<IH", 1, 3) + b"abc" + ONE[FACTS:],
    "255 dimensions": BODY[:START] + struct.pack("<I", 1) + ONE[:FACTS] + b"\xff" * 2000,
    "dimensions of 2 ** 32 - 1": BODY[:START] + struct.pack("<I", 1) + ONE[:FACTS] + b"\4" + b"\xff" * 16 + ONE[-29:],
    "an unknown type": BODY[:START] + struct.pack("<I", 1) + ONE[: FACTS + 9] + b"\x63" + ONE[FACTS + 10 :] + bytes(4),
    "another number of bytes": BODY[:START] + struct.pack("<I", 1) + ONE[: FACTS + 10] + b"\xff" * 4 + ONE[-24:],
}


@pytest.mark.parametrize("name", BINARIES)
def test_a_file_that_is_not_what_its_numbers_say_is_refused(name: str, tmp_path: Path, run_cli: Run) -> None:
    folder = Folder(transformer()).write(tmp_path / "folder")
    (folder / "model.bin").write_bytes(BINARIES[name])
    assert "model.bin" in imported(run_cli, folder).err


def as_huge_file(file: Path) -> None:
    with file.open("wb") as stream:
        stream.truncate(1 << 40)  # takes no space on the disk


HUGE_NUMBERS = dict.fromkeys(("d_model", "vocab_size", "encoder_layers"), 10**4000)
REPLACEMENTS: dict[str, Callable[[Path], Any]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "an endless device": lambda file: file.symlink_to("/dev/zero"),
    "a link to itself": lambda file: file.symlink_to(file),
    "a huge file": as_huge_file,
    "nothing": lambda file: None,
    "an empty file": Path.touch,
    "deep JSON": lambda file: file.write_bytes(b'{"a":' * 200_000),
    "huge numbers": lambda file: file.write_text(json.dumps(HUGE_NUMBERS)),
    "all bytes": lambda file: file.write_bytes(bytes(range(256)) * 40),
}


MODELS: dict[str, Callable[[Path], Path]] = {
    "ctranslate2": lambda path: Folder(transformer()).write(path),
    "hugging face": hugging_face_folder,
    "marian": lambda path: marian_models.folder(path, decoder={}),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_any_file_may_be_anything_else(replacement: str, kind: str, tmp_path: Path) -> None:
    """The file may be needless, but nothing waits, takes much memory or raises anything but one sentence."""
    whole = MODELS[kind](tmp_path / "whole")
    for name in sorted(file.name for file in whole.iterdir()):
        folder = Path(shutil.copytree(whole, tmp_path / name))
        (folder / name).unlink()
        REPLACEMENTS[replacement](folder / name)
        with bounded():
            sentence = refusal(folder)
        if sentence is None:
            assert name in ("tokenizer_config.json", "decoder.yml")
        else:
            assert str(folder) in sentence
            assert "\n" not in sentence
            assert len(sentence) < LONGEST_SENTENCE
