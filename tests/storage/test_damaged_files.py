"""Model files and states that are damaged, foreign or false are refused."""

import dataclasses
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from drawn import seeded
from model_files import make
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from vtrans.data.store import DataFolder
from vtrans.model.checkpoint import load_model, load_weights, save_model
from vtrans.storage.run_folder import RunFolder, choose_model
from vtrans.storage.states import read_progress, read_state
from vtrans.storage.tensors import FORMAT, MOST_HEADER, write_tensors
from vtrans.system.errors import FileError
from vtrans.text.spm import fields
from vtrans.text.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, tiny_data: DataFolder) -> Path:
    """A model file. Never write to it."""
    file = tmp_path_factory.mktemp("good") / "good.safetensors"
    save_model(file, make(tiny_data, "src-tgt-softmax"))
    return file


def changed(
    source: Path, target: Path, tensors: Callable[[dict[str, Tensor]], None], header: Callable[[dict[str, Any]], None]
) -> Path:
    """Writes a copy of a model file with changed tensors or a changed header."""
    with safe_open(source, "pt") as file:
        head = json.loads(file.metadata()["vtrans"])
    parts = load_file(source)
    tensors(parts)
    header(head)
    write_tensors(target, parts, head)
    return target


def nothing(_: Any) -> None:
    """Changes nothing."""


EMBEDDING = "src_embedding.weight"
# Wrong tensors and wrong headers, with what the error names.
TENSORS: dict[str, tuple[Callable[[dict[str, Tensor]], Any], str]] = {
    "missing tensor": (lambda t: t.pop(EMBEDDING), EMBEDDING),
    "extra tensor": (lambda t: t.update({"zzz": torch.zeros(1)}), "zzz"),
    "a copy under an alias": (lambda t: t.update({"projection.weight": t[EMBEDDING].clone()}), "projection.weight"),
    "ill-shaped tensor": (lambda t: t.update({EMBEDDING: t[EMBEDDING][:-1].clone()}), EMBEDDING),
    "whole numbers": (lambda t: t.update({EMBEDDING: t[EMBEDDING].int()}), "I32"),
    "numbers that NumPy lacks": (lambda t: t.update({EMBEDDING: t[EMBEDDING].bfloat16()}), "BF16"),
    "no number": (lambda t: t[EMBEDDING].index_fill_(0, torch.tensor([3]), torch.nan), EMBEDDING),
    "a weight beyond float32": (lambda t: t.update({EMBEDDING: t[EMBEDDING].double() * 1e300}), EMBEDDING),
    "a vocabulary of numbers": (
        lambda t: t.update({"vocabulary.joint": t["vocabulary.joint"].to(torch.float8_e4m3fn)}),
        "vocabulary.joint",
    ),
    "no vocabulary": (lambda t: t.pop("vocabulary.joint"), "vocabulary"),
    "a broken vocabulary": (lambda t: t.update({"vocabulary.joint": t["vocabulary.joint"][:-9].clone()}), ""),
}
HEADERS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "an alias too few": (lambda h: h["aliases"].pop("projection.weight"), "aliases"),
    "another owner": (lambda h: h["aliases"].update({"projection.weight": "tgt_embedding.weight"}), "aliases"),
    "another tie": (lambda h: h["model"].update(tie="none"), "projection.weight"),
    "no configuration": (lambda h: h.pop("model"), "model"),
    "no search": (lambda h: h.pop("search"), "search"),
    "a width that no memory holds": (lambda h: h["model"].update(d_model=65536, d_ff=1 << 20), "[320, 65536]"),
    "more layers than there are": (lambda h: h["model"].update(decoder_layers=100), "decoder"),
    "a size beyond its limit": (lambda h: h["model"].update(encoder_layers=10**9), "encoder_layers"),
    "positions that no memory holds": (
        lambda h: h["model"].update(positions="learned", max_positions=1 << 20, d_model=65536),
        "src_positions.weight",
    ),
    "aliases in a list": (lambda h: h.update(aliases=[]), "aliases"),
    "a word for a step": (lambda h: h.update(training={"step": "7"}), "training.step"),
    "the next format": (lambda h: h.update(format=FORMAT + 1), f"format {FORMAT + 1}"),
    "another kind": (lambda h: h.update(kind="state"), "model"),
}


@pytest.mark.parametrize("what", [*TENSORS, *HEADERS])
def test_a_file_must_match_its_architecture_exactly(tmp_path: Path, good: Path, what: str) -> None:
    tensors, in_tensors = TENSORS.get(what, (nothing, ""))
    header, in_header = HEADERS.get(what, (nothing, ""))
    bad = changed(good, tmp_path / "bad.safetensors", tensors, header)
    with pytest.raises(FileError) as caught:
        load_model(bad)
    assert in_tensors + in_header in str(caught.value)
    assert str(bad) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("separate", [False, True])
def test_a_flipped_bit_is_detected_anywhere_in_the_file(
    tmp_path: Path, tiny_data: DataFolder, tiny_data_separate: DataFolder, separate: bool
) -> None:
    data, tie = (tiny_data_separate, "none") if separate else (tiny_data, "src-tgt-softmax")
    save_model(tmp_path / "good", make(data, tie))
    whole = (tmp_path / "good").read_bytes()
    bad, numbers = tmp_path / "bad", seeded(3)
    header = int.from_bytes(whole[:8], "little") + 8
    places = [*range(8), *(numbers.randrange(8, header) for _ in range(60))] + [
        numbers.randrange(header, len(whole)) for _ in range(30)
    ]
    unnoticed, allowed_value = 0, whole.index(b'beam\\": ') + len('beam\\": ')
    for place in [*places, allowed_value, header, len(whole) - 1]:
        raw = bytearray(whole)
        raw[place] ^= 1 if place == allowed_value else 1 << numbers.randrange(8)
        bad.write_bytes(raw)
        with suppress(FileError):
            loaded = load_model(bad)
            # A change that leaves the meaning of the header alone, such as other white space, is allowed.
            assert place < header
            save_model(bad, loaded)
            assert bad.read_bytes() == whole
            unnoticed += 1
    assert unnoticed < 5


def test_a_damaged_state_is_refused(run_copy: RunFolder) -> None:
    state = run_copy.state_file(30)
    raw = bytearray(state.read_bytes())
    length = int.from_bytes(raw[:8], "little")
    begin, _ = json.loads(raw[8 : 8 + length])["src_embedding.weight:exp_avg"]["data_offsets"]
    raw[8 + length + begin] ^= 1
    state.write_bytes(raw)
    model = load_model(run_copy.last).model
    with pytest.raises(FileError, match=r"src_embedding\.weight:exp_avg"):
        read_state(state, model)


HEADER_TEXTS = (
    "not JSON",
    "[1]",
    "[" * 100_000,
    '{"kind": "model", "format": 2, "model": ' + "[" * 100_000,
    "1" * 5000,
    '{"kind": "model", "format": 2, "\\ud800": 1}',
)


def test_foreign_and_missing_files_are_refused(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3)}, tmp_path / "foreign.safetensors")
    save_file({"a": torch.zeros(3)}, tmp_path / "pt.safetensors", metadata={"format": "pt"})
    for number, text in enumerate(HEADER_TEXTS):
        save_file({"a": torch.zeros(3)}, tmp_path / f"header-{number}.safetensors", metadata={"vtrans": text})
    (tmp_path / "empty.safetensors").write_bytes(b"")
    (tmp_path / "text.safetensors").write_text("A dog runs.\n" * 20)
    (tmp_path / "pickle.safetensors").write_bytes(b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x01a\x94.")
    (tmp_path / "folder.safetensors").mkdir()
    for path in [*tmp_path.iterdir(), tmp_path / "missing.safetensors"]:
        with pytest.raises(FileError, match=path.name):
            load_model(path)
    with pytest.raises(FileError, match="there is no model"):
        choose_model(tmp_path / "missing")


def lied(source: Path, target: Path, lie: Callable[[dict[str, Any]], None]) -> Path:
    """Writes a copy of a model file with a changed safetensors header, which says where the tensors are."""
    raw = source.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    lie(header)
    text = json.dumps(header).encode()
    target.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    return target


NORM = "decoder.layers.0.feed_forward_residual.norm.weight"


LIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "beyond the file": lambda h: h[EMBEDDING].update(data_offsets=[0, 1 << 40]),
    "overlapping": lambda h: h[NORM].update(data_offsets=h[NORM.replace("weight", "bias")]["data_offsets"]),
    "a shape beyond the bytes": lambda h: h[EMBEDDING].update(shape=[320, 1 << 40]),
    "another shape of the same size": lambda h: h[EMBEDDING].update(shape=[16, 320]),
    "two tensors changed over": lambda h: (
        h.update({NORM: (one := h[NORM.replace("weight", "bias")])}) or h.update({NORM.replace("weight", "bias"): one})
    ),
    "a link for a tensor": lambda h: h.update({EMBEDDING: "/etc/passwd"}),
}


@pytest.mark.parametrize("what", LIES)
def test_a_header_that_lies_is_refused(tmp_path: Path, good: Path, what: str) -> None:
    with pytest.raises(FileError, match="bad"):
        load_model(lied(good, tmp_path / "bad", LIES[what]))


def test_a_long_header_is_refused_before_it_is_read(tmp_path: Path) -> None:
    for length in (MOST_HEADER + 1, 100_000_000):
        with (tmp_path / "bad").open("wb") as file:
            file.write(length.to_bytes(8, "little") + b"{")
            file.truncate(length + 100)  # a sparse file
        with pytest.raises(FileError, match=rf"bad .*{MOST_HEADER:,} .*{length:,}"):
            load_model(tmp_path / "bad")


def test_reading_a_file_opens_no_other_and_runs_nothing(tmp_path: Path, tiny_data: DataFolder) -> None:
    file = tmp_path / "m.safetensors"
    hostile = "/etc/passwd"
    loaded = dataclasses.replace(make(tiny_data, "none"), training={"step": 1, "data": hostile, "file": hostile})
    save_model(file, loaded)
    load_model(file)  # whatever is imported at first use
    seen: list[tuple[str, Any]] = []
    watching = True

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if watching and event.split(".")[0] in ("open", "exec", "compile", "import", "os", "subprocess", "socket"):
            seen.append((event, args[0] if args else None))

    sys.addaudithook(hook)
    load_model(file)
    watching = False
    assert {(event, str(what)) for event, what in seen} == {("open", str(file))}


def charsmap(proto: bytes) -> tuple[int, int]:
    """Where the units of the trie of a SentencePiece model's normalization rules begin, and their bytes."""
    rules = next(value for number, value in fields(proto) if number == 3)
    assert isinstance(rules, bytes)
    packed = next(value for number, value in fields(rules) if number == 2)
    assert isinstance(packed, bytes)
    return proto.index(packed) + 4, int.from_bytes(packed[:4], "little")


def test_a_sentencepiece_model_is_read_within_its_bounds(tmp_path: Path, tiny_data: DataFolder) -> None:
    """Versions of SentencePiece before 0.2.2 follow offsets out of the trie, and crash."""
    proto = tiny_data.src_vocab.proto
    begin, size = charsmap(proto)
    far = bytearray(proto)
    far[begin : begin + size] = b"\xff\xff\xff\x7f" * (size // 4)
    longer = bytearray(proto)
    longer[begin - 4 : begin] = (1 << 31).to_bytes(4, "little")
    text = b"A dog runs. \xff" * 20
    for bad in (bytes(far), bytes(longer), proto[: len(proto) // 2], text, b"\x0a\xff\xff\xff\xff\x0f" + proto, b""):
        with pytest.raises(FileError, match="bad"):
            Vocabulary(bad, "bad")


def test_a_file_that_is_truncated_anywhere_is_refused(tmp_path: Path, good: Path) -> None:
    whole = good.read_bytes()
    header = int.from_bytes(whole[:8], "little") + 8
    lengths = {*range(12), *range(header - 3, header + 4), *range(0, len(whole), len(whole) // 60), len(whole) - 1}
    bad = tmp_path / "bad"
    for length in sorted(lengths):
        bad.write_bytes(whole[:length])
        with pytest.raises(FileError, match="truncated" if length else "empty"):
            load_model(bad)
    bad.write_bytes(whole + b"\0")
    with pytest.raises(FileError, match="truncated"):
        load_model(bad)


def test_a_state_of_other_parameters_is_refused(tmp_path: Path, tiny_data: DataFolder, tiny_run: RunFolder) -> None:
    state = tiny_run.state_file(30)
    assert read_progress(state)["step"] == 30
    with pytest.raises(FileError, match="not a state"):
        read_progress(tiny_run.last)
    with pytest.raises(FileError, match="model"):
        load_model(state)
    other = make(tiny_data, "none").model
    with pytest.raises(FileError, match="another architecture"):
        read_state(state, other)
    with pytest.raises(FileError, match="another architecture"):
        load_weights(tiny_run.last, other)
    own = load_model(tiny_run.last).model
    parts = load_file(state)
    name = "src_embedding.weight"
    header = {"format": FORMAT, "kind": "state", "progress": {}}
    write_tensors(tmp_path / "s", {k: v for k, v in parts.items() if k != f"{name}:exp_avg"}, header)
    with pytest.raises(FileError, match=name):
        read_state(tmp_path / "s", own)
    write_tensors(tmp_path / "s", parts | {f"{name}:exp_avg": torch.zeros(3, 2)}, header)
    with pytest.raises(FileError, match=rf"{name} .*\[3, 2\]"):
        read_state(tmp_path / "s", own)
