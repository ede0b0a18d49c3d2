"""Native Marian models: what is read, compared with Marian's definition, what is refused, and their `.npz` files."""

import importlib.util
import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import marian_models as marian
import numpy as np
import pytest
import sentencepiece
import torch
from cli_runner import Run
from drawn import each_with

from vtrans.apps.interop.comparison import compare, outputs
from vtrans.apps.interop.marian import importer
from vtrans.apps.interop.marian.importer import (
    EXPECTED,
    EXPECTED_OF_EARLIER,
    EXPECTED_OF_RNN,
    open_npz,
    read,
    read_mapping,
)
from vtrans.model.checkpoint import LoadedModel
from vtrans.model.network import Transformer
from vtrans.system.errors import FileError
from vtrans.text.vocabulary import BOS_ID, EOS_ID, UNK_ID

UNTIED = {"tied-embeddings-all": "false"}
SSRU = {"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru"}
KINDS: dict[str, tuple[dict[str, Any], bool]] = {
    "post-norm": ({}, False),
    "pre-norm": ({**marian.PRE, "transformer-ffn-activation": "relu"}, False),
    "separate vocabularies": ({**UNTIED, "tied-embeddings": "true"}, True),
    "nothing tied": ({**UNTIED, "enc-depth": 1, "dec-depth": 2}, True),
    "tied embeddings": ({**UNTIED, "tied-embeddings-src": "true"}, False),
    "no bias": ({"output-omit-bias": "true"}, False),
    "SSRU": ({**SSRU, "dec-depth": 2}, False),
    "SSRU, pre-norm": ({**SSRU, **marian.PRE}, False),
}


def imported(path: Path) -> LoadedModel:
    return read(path).model


@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_are_those_of_marians_definition(tmp_path: Path, kind: str) -> None:
    changes, separate = KINDS[kind]
    loaded = imported(marian.folder(tmp_path, changes, separate=separate))
    src, tgt = loaded.src_vocab.table, loaded.tgt_vocab.table
    assert src is not None
    assert tgt is not None
    source = [*loaded.src_vocab.encode("two dogs see a cat"), EOS_ID]
    target = loaded.tgt_vocab.encode("eine Katze schläft")  # with an unknown letter
    theirs = marian.logprobs(
        tmp_path / "model.npz",
        [place for i in source if (place := src.order[i]) is not None],
        [place for i in target if (place := tgt.order[i]) is not None],
    )
    model: Transformer = loaded.model
    keep = torch.ones(1, len(source), dtype=torch.bool)
    with torch.inference_mode():
        logits = model(torch.tensor([source]), keep, torch.tensor([[BOS_ID, *target]]))
    ours = logits.log_softmax(-1)[0].numpy()
    for id, place in enumerate(tgt.order):
        if place is None:
            assert (ours[:, id] < -1000).all(), "Marian has no such subword"
        else:
            assert np.abs(ours[:, id] - theirs[:, place]).max() < 2e-5


def test_a_vocabulary_of_pieces_needs_sentencepiece_models_or_pieces(tmp_path: Path) -> None:
    model = sentencepiece.SentencePieceProcessor()
    model.LoadFromSerializedProto(marian.spm())
    pieces = [model.id_to_piece(i) for i in range(model.get_piece_size())]
    decoder = {"vocabs": "[v.yml, v.yml]"}
    path = marian.folder(tmp_path, decoder=decoder)
    (path / "v.yml").write_bytes("".join(f'"{piece}": {i}\n' for i, piece in enumerate(pieces)).encode())
    split = imported(path)
    assert split.src_vocab.encode("▁dog x") == [split.src_vocab.id_of("▁dog") or UNK_ID, UNK_ID]
    for side in ("source", "target"):
        (path / f"{side}.spm").write_bytes(marian.spm(side, 30))
    with_models = imported(path)
    assert with_models.joint
    assert with_models.src_vocab is not with_models.tgt_vocab
    assert with_models.src_vocab.decode(with_models.src_vocab.encode("a dog")) == "a dog"


def spoil(name: str, values: marian.Array | None) -> dict[str, Any]:
    """Replaces an array, or removes it."""
    return {"arrays": lambda arrays: arrays.update({name: values}) if values is not None else arrays.pop(name)}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "RMS norm": ({"claims": {"transformer-postprocess": "dar"}}, "postprocess"),
    "pre-norm without a final norm": ({"claims": {**marian.PRE, "transformer-postprocess-top": ""}}, "top"),
    "another width in the decoder": ({"claims": {"transformer-decoder-dim-ffn": 16}}, "decoder-dim-ffn"),
    "a huge size": ({"claims": {"enc-depth": 10**30}}, "enc-depth"),
    "a width that heads do not divide": ({"claims": {"transformer-heads": 3}}, "heads"),
    "an odd width": ({"claims": {"dim-emb": 7}}, "[7, 7]"),
    "not a number": ({"claims": {"transformer-heads": "many"}}, "heads"),
    "a vocabulary of another size": ({"claims": {"dim-vocabs": "[9, 9]"}}, "vocab.spm"),
    "three vocabularies": ({"claims": {"dim-vocabs": "[40, 40, 40]"}}, "dim-vocabs"),
    "no settings": (spoil(marian.CONFIG, None), marian.CONFIG),
    "settings that are no text": (spoil(marian.CONFIG, np.full(9, -1, np.int8)), "utf-8"),
    "settings with a list in itself": (spoil(marian.CONFIG, np.frombuffer(b"a: &x [*x]\n", np.int8)), "anchor"),
    "settings of another type": (spoil(marian.CONFIG, np.ones(9, np.float32)), marian.CONFIG),
    "a path out of the folder": ({"decoder": {"vocabs": "[../vocab.spm, vocab.spm]"}}, "../vocab.spm"),
    "an absolute path": ({"decoder": {"models": "[/etc/passwd]"}}, "/etc/passwd"),
    "a missing vocabulary": ({"decoder": {"vocabs": "[none.spm, vocab.spm]"}}, "none.spm"),
    "a vocabulary of an unknown kind": ({"decoder": {"vocabs": "[model.npz, model.npz]"}}, "model.npz"),
    "two models": ({"decoder": {"models": "[model.npz, model.npz]"}}, "2"),
    "a penalty that is no number": ({"decoder": {"normalize": "nan x"}}, "normalize"),
    "a penalty per word": ({"decoder": {"normalize": 0.6, "word-penalty": 0.2}}, "word-penalty"),
    "an infinite length": ({"decoder": {"max-length-factor": ".inf"}}, "max_ratio"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_vtrans_cannot_express_is_refused_by_name(tmp_path: Path, name: str) -> None:
    options, named = REFUSED[name]
    path = marian.folder(tmp_path, **options)
    with pytest.raises(FileError) as caught:
        imported(path)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


EVERY_SETTING = {**EXPECTED, **EXPECTED_OF_EARLIER, **EXPECTED_OF_RNN}


@pytest.mark.parametrize(("key", "value"), each_with(EVERY_SETTING, ["something-else", 7, "[1, 1]", "true"]))
def test_every_setting_that_changes_the_network_is_refused_by_name(tmp_path: Path, key: str, value: object) -> None:
    claims = {**(SSRU if key in EXPECTED_OF_RNN else {}), key: value}
    with pytest.raises(FileError, match=rf"special:model\.yml: {key} must be .*, got "):
        imported(marian.folder(tmp_path, claims=claims))


def test_a_folder_with_two_models_or_with_two_vocabularies_that_nothing_orders_is_refused(tmp_path: Path) -> None:
    path = marian.folder(tmp_path)
    for name, other in (("model.npz", "other.npz"), ("vocab.spm", "other.spm")):
        copy = Path(shutil.copy(path / name, path / other))
        with pytest.raises(FileError, match=str(path)):
            read(path)
        copy.unlink()


def test_the_settings_of_one_of_two_models_are_not_those_of_the_folder(tmp_path: Path) -> None:
    path = marian.folder(tmp_path, decoder={"beam-size": 3})
    shutil.copy(path / "model.npz", path / "a.npz")
    (path / "a.npz.decoder.yml").write_text("models: [a.npz]\nvocabs: [vocab.spm]\nbeam-size: 5\n")
    assert imported(path).search.beam == 3
    assert imported(path / "a.npz").search.beam == 5


@pytest.mark.skipif(
    importlib.util.find_spec("_pymarian") is None, reason="pymarian (604 MB) is not installed: pip install pymarian"
)
@pytest.mark.parametrize("kind", KINDS)
def test_marian_itself_gives_the_same(tmp_path: Path, kind: str) -> None:
    changes, separate = KINDS[kind]
    imported = read(marian.folder(tmp_path, changes, separate=separate))
    assert imported.original
    loaded, original = imported.model, imported.original()
    found = compare(outputs(loaded, marian.TEXTS["source"], original), original, loaded.tgt_vocab)
    assert found.problem() is None
    assert found.logprobs > 0
    assert (found.translations is None) == (kind == "pre-norm")


def test_the_command_says_what_it_found_or_ends_with_one_sentence(
    tmp_path: Path, run_cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "MODULE", "no_such_module")
    monkeypatch.setattr("vtrans.apps.interop.formats.outputs", None)  # nothing is translated to compare it with nothing
    path, out = marian.folder(tmp_path / "m"), tmp_path / "out.safetensors"
    done = run_cli("import", path, "--out", out)
    assert (done.code, out.is_file()) == (0, True)
    assert "v1.12.42" in done.err
    assert "pymarian" in done.err
    done = run_cli("translate", "--model", out, "--quiet", stdin=b"a dog\n\n")
    assert (done.code, done.out.count(b"\n")) == (0, 2)
    broken = marian.folder(tmp_path / "broken", claims={"type": "amun"})
    done = run_cli("import", broken / "model.npz", "--out", tmp_path / "none.safetensors")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert not (tmp_path / "none.safetensors").exists()


# YAML.

READ_YAML: dict[str, dict[str, Any]] = {
    "": {},
    "a: \"\"\nb: ''\nc:\nd: ~\ne: no\n": {"a": "", "b": "", "c": "", "d": "~", "e": "no"},
    "a:\n  - 1\n  - 'x, y'\nb: [1, 2]\nc:\n  []\nd:\n- m\n": {"a": ["1", "x, y"], "b": ["1", "2"], "c": [], "d": ["m"]},
    # A vocabulary, as Marian writes it.
    '":": 2\n"\\"q\\"": 3\n"::": 4\na:b: 5\n\\: 6\n"\'": 7\n\'it\'\'s\': 8\n▁the: 9\n"null": 10\n': {
        ":": "2", '"q"': "3", "::": "4", "a:b": "5", "\\": "6", "'": "7", "it's": "8", "▁the": "9", "null": "10",
    },
    '"\\x85": 0\n"\\u00ad": 1\n"\\U0001F600": 2\n"\\_\\N\\t": 3\n\u00a0x: 4\n"\\u2028": 5\n? long\n: 6\n': {
        "\x85": "0", "\u00ad": "1", "😀": "2", "\u00a0\x85\t": "3", "\u00a0x": "4", "\u2028": "5", "long": "6",
    },
}  # fmt: skip
REFUSED_YAML = (
    "a", "- a\n- b\n", "a: {b: 1}\n", "a:\n  b: 1\n", "a: [[1], 2]\n", 'a: "\\q"\n', 'a: "\\UFFFFFFFF"\n', 'a: "open\n',
    "<<: *x\n", "a: @x\n", "a: 1\n---\na: 1\n", "a:\n  - b: 1\n", "? a\nb: 1\n? [c]\n: 2\n", "a: " + "[" * 100_000,
    "a: &x 1\nb: *x\n", "a: !!str 1\n",
)  # fmt: skip


@pytest.mark.parametrize("text", READ_YAML)
def test_yaml_that_marian_writes_is_read(text: str) -> None:
    assert read_mapping(text.encode(), "x.yml", typed=False) == READ_YAML[text]


@pytest.mark.parametrize("text", REFUSED_YAML)
def test_other_yaml_is_refused(text: str) -> None:
    with pytest.raises(FileError, match=r"x\.yml"):
        read_mapping(text.encode(), "x.yml", typed=False)


def saved(values: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=True)
    return stream.getvalue()


WHOLE = saved(np.ones(2, np.float32))
ENTRIES = {
    "a pickle": (saved(np.array([{"a": 1}], dtype=object)), "damaged"),
    "a shape that is too large": (WHOLE.replace(b"(2,)", b"(9999999999999999, 9)"), "damaged"),
    "too few numbers": (WHOLE[:-1], "damaged"),
    "text": (saved(np.array(["a"])), "damaged"),
    "code in the header": (WHOLE.replace(b"{'descr'", b"[print()"), "damaged"),
    "nothing": (b"", "damaged"),
    "zeros that would fill the memory": (saved(np.zeros(1_000_000)), "20 times"),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_hostile_array_is_refused(tmp_path: Path, name: str) -> None:
    content, said = ENTRIES[name]
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", content)
    with pytest.raises(FileError, match=rf"x\.npz.*{said}"):
        open_npz(tmp_path / "x.npz")


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: data.replace(b"\0\0\x80?", b"\0\0\x81?")]
)
def test_damage_is_found(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, v=np.ones(5000, np.float32))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FileError, match=r"x\.npz is damaged"):
        open_npz(path)
