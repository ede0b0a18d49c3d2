"""Time and memory of a model of NLLB's shape with random weights: `python tests/bench/nllb.py FOLDER TEXT.en TEXT.de`.

It writes such a model to FOLDER/hf unless it is there: 600 million weights in float32 in three shards, and a tokenizer
of 256,000 pieces, of which 16,000 are learned from the two files. Then it imports the model whole and with
`--keep-text` for the first `--lines` lines of the files, and translates the first ten with both, in int8 and in
float32. It prints the time, that of all cores, and the peak memory of each command. Random weights do not end a
translation, so that each one runs to its limit. It needs transformers, 8 GB of memory and 10 GB of disk.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from safetensors.torch import save_file

from vtrans.config import ModelConfig
from vtrans.interop.huggingface.names import weights_of_layers

PIECES, LEARNED, ROWS = 256_000, 16_000, 256_206
LETTERS = "абвгдежзиклмнопрстуфхцчшщыэюя"  # of the pieces that no text here needs
D, F, LAYERS, HEADS, SHARDS = 1024, 4096, 12, 16, 3


def varint(number: int) -> bytes:
    """The wire format of protobuf."""
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def tokenizer(texts: list[Path]) -> bytes:
    """A SentencePiece model of NLLB's size, which the texts need little of."""
    lines = [line for text in texts for line in text.read_text(encoding="utf-8").splitlines()[:50_000]]
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=stream, model_type="bpe", vocab_size=LEARNED, minloglevel=2,
        normalization_rule_name="nmt_nfkc", hard_vocab_limit=False,
    )  # fmt: skip
    return filled(stream.getvalue(), PIECES)


def filled(proto: bytes, size: int) -> bytes:
    """The SentencePiece model with other pieces at its end, so that it has this size."""
    model = sentencepiece.SentencePieceProcessor(model_proto=proto)
    known = {model.id_to_piece(id) for id in range(model.get_piece_size())}
    numbers, others = random.Random(1), dict[str, None]()
    while len(known) + len(others) < size:
        piece = "".join(numbers.choices(LETTERS, k=6))
        if piece not in known:
            others[piece] = None
    parts = [proto]
    for rank, piece in enumerate(others, len(known)):
        text = piece.encode()
        message = b"\x0a" + varint(len(text)) + text + b"\x15" + struct.pack("<f", -rank)
        parts.append(b"\x0a" + varint(len(message)) + message)
    return b"".join(parts)


def weights() -> Iterator[tuple[str, tuple[int, ...]]]:
    shape = ModelConfig(d_model=D, d_ff=F, heads=HEADS, encoder_layers=LAYERS, decoder_layers=LAYERS, norm="pre")
    yield "model.shared.weight", (ROWS, D)
    for _, parts, size in weights_of_layers(shape):
        for name in parts:
            yield name, size


def write(folder: Path, texts: list[Path]) -> None:
    """Writes the folder."""
    transformers: Any = importlib.import_module("transformers")
    from transformers.tokenization_utils_base import generate_merges

    folder.mkdir(parents=True)
    spm = tokenizer(texts)
    (folder / "sentencepiece.bpe.model").write_bytes(spm)
    model = sentencepiece.SentencePieceProcessor(model_proto=spm)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *(model.id_to_piece(id) for id in range(3, model.get_piece_size()))]
    ids = {piece: id for id, piece in enumerate(pieces)}
    codes = ["eng_Latn", "deu_Latn", *(f"x{chr(97 + n // 26)}{chr(97 + n % 26)}_Latn" for n in range(200))]
    transformers.NllbTokenizer(
        vocab=ids, merges=generate_merges(ids), extra_special_tokens=codes, src_lang="eng_Latn"
    ).save_pretrained(folder)
    config = transformers.M2M100Config(
        vocab_size=ROWS, d_model=D, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_ffn_dim=F, decoder_ffn_dim=F,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, max_length=200,
    )  # fmt: skip
    config.save_pretrained(folder)
    names, numbers = list(weights()), torch.Generator().manual_seed(1)
    share = -(-len(names) // SHARDS)
    places = {}
    for shard in range(SHARDS):
        file = f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors"
        tensors = {}
        for name, size in names[shard * share : (shard + 1) * share]:
            tensors[name] = torch.randn(*size, generator=numbers) * 0.02 + (len(size) == 1 and "norm.weight" in name)
            places[name] = file
        save_file(tensors, folder / file, {"format": "pt"})
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def measured(*words: object, lines: bytes = b"", **variables: str) -> None:
    """Runs vtrans, and prints the time and the peak memory."""
    command = [sys.executable, "-m", "vtrans", *map(str, words)]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=os.environ | variables)
    assert process.stdin is not None
    process.stdin.write(lines)
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command} ended with {process.returncode}")
    wall, cores = time.perf_counter() - begun, usage.ru_utime + usage.ru_stime
    print(f"{wall:6.1f} s {cores:6.1f} s {usage.ru_maxrss / 1e6:5.2f} GB  vtrans {' '.join(command[3:])}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", type=Path, nargs=2)
    parser.add_argument("--lines", type=int, default=10_000)
    args = parser.parse_args()
    hf, whole, small = args.folder / "hf", args.folder / "whole.safetensors", args.folder / "small.safetensors"
    if not hf.exists():
        write(hf, args.texts)
    heads = [args.folder / f"head.{n}" for n in range(2)]
    for head, text in zip(heads, args.texts, strict=True):
        with text.open("rb") as stream:
            head.write_bytes(b"".join(line for line, _ in zip(stream, range(args.lines), strict=False)))
    direction = ("--from", "eng_Latn", "--to", "deu_Latn")
    measured("import", hf, *direction, "--out", whole)
    measured("import", hf, *direction, "--out", small, "--keep-text", heads[0], "--keep-text", heads[1])
    sizes = [sum(file.stat().st_size for file in hf.glob("*.safetensors")), *(f.stat().st_size for f in (whole, small))]
    print("GB of the folder's weights, the import and the trimmed import:", *(f"{size / 1e9:.2f}" for size in sizes))
    lines = b"".join(heads[0].read_bytes().splitlines(keepends=True)[:10])
    for model in (whole, small):
        for precision in ("int8", "float32"):
            measured("translate", "--model", model, "--precision", precision, "--no-retry", lines=lines)


if __name__ == "__main__":
    main()
