"""Time and memory of adapting a model of OPUS-MT's shape: `python tests/bench/adapt.py FOLDER TEXT.en TEXT.de`.

The model has 75 million random weights: Marian's base network with a vocabulary of 58,101 pieces, of which 16,000 are
learned from the two files. Its first `--pairs` pairs are adapted to in one process of `--threads` threads, with as many
old ones. Random weights learn little, so that all epochs are made, which is the longest case.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import sentencepiece
import torch

from vtrans.checkpoint import LoadedModel, save_model, weights_of
from vtrans.config import ModelConfig, SearchConfig
from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.learn_vocabulary import learn
from vtrans.model import Transformer, count_parameters
from vtrans.text.languages import Languages
from vtrans.text.vocabulary import EOS_ID, PAD_ID, Vocabulary

PIECES, LEARNED = 58_101, 16_000
LETTERS = "абвгдежзиклмнопрстуфхцчшщыэюя"  # of the pieces that no text here needs
SHAPE = ModelConfig(
    d_model=512, d_ff=2048, heads=8, encoder_layers=6, decoder_layers=6, norm="post", activation="swish",
    positions="sinusoidal", tie="src-tgt-softmax", projection_bias=True,
)  # fmt: skip


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
        message = bytes([0x0A, len(piece.encode())]) + piece.encode() + b"\x15" + struct.pack("<f", -rank)
        parts.append(bytes([0x0A, len(message)]) + message)  # in protobuf's wire format: both lengths are below 128
    return b"".join(parts)


def write(file: Path, lines: list[str]) -> None:
    """Writes the model. The last norm keeps it from repeating its last subword, and the end of a sentence is likely
    enough that translations end."""
    learned = learn(lines, LEARNED, PrepareOptions(split_digits=False))
    vocab = Vocabulary(filled(learned.proto, PIECES))
    torch.manual_seed(1)
    model = Transformer(SHAPE, len(vocab), len(vocab), joint=True, pad_id=PAD_ID)
    with torch.no_grad():
        weights_of(model)["projection.bias"][EOS_ID] = 3.5
        gain_D = weights_of(model)["decoder.layers.5.feed_forward_residual.norm.weight"]
        gain_D *= 1 - 2 * torch.randint(2, gain_D.shape)
    search = SearchConfig(max_source=512)
    save_model(file, LoadedModel(model.eval(), vocab, vocab, search, {"step": 0}, None, [Languages("en", "de")]))
    print(f"{count_parameters(model):,} weights, {file.stat().st_size / 1e6:.0f} MB")


def measured(*words: object) -> None:
    """Runs vtrans, and prints the time and the peak memory."""
    command = [sys.executable, "-m", "vtrans", *map(str, words)]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
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
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--updates", type=int, help="at most; five epochs by default")
    args = parser.parse_args()
    texts = [text.read_text(encoding="utf-8").split("\n")[:-1] for text in args.texts]
    file = args.folder / "model.safetensors"
    if not file.exists():
        args.folder.mkdir(parents=True, exist_ok=True)
        write(file, [line for lines in texts for line in lines[:50_000]])
    options: list[str | Path] = []
    for name, first in (("", 0), ("old-", args.pairs)):
        for side, language, lines in zip(("src", "tgt"), ("en", "de"), texts, strict=True):
            text = args.folder / f"{name}text.{language}"
            text.write_text("".join(f"{line}\n" for line in lines[first : first + args.pairs]), encoding="utf-8")
            options += [f"--{name}{side}", text]
    threads = ("--processes", 1, "--threads", args.threads)
    updates = ("--set", f"train.max_steps={args.updates}") if args.updates else ()
    measured("adapt", file, *options, "--out", args.folder / f"adapted-{args.pairs}", *threads, *updates)


if __name__ == "__main__":
    main()
