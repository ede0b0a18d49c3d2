"""Processor time, wall time and peak memory of `vtrans prepare-bpe`, compared with SentencePiece on the same text.

    python tests/bench/prepare_bpe.py --src train.en --tgt train.de [--rounds 3] [--threads 2]

SentencePiece learns a joint BPE vocabulary of the same size from the lines of both files, encodes them with as many
threads, and writes their ids. The two take turns, each in new processes. Prints a row per program with the median
processor time, wall time and peak memory of its processes (Linux's Pss), and their ratios to SentencePiece's.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import sentencepiece

from vtrans.data.options import DEFAULT_VOCAB_SIZE

BATCH = 4096  # lines that SentencePiece encodes at a time
PAUSE = 0.5  # seconds between two looks at the memory
UNITS = ("s processor", "s wall", "MB")


def with_sentencepiece(src: str, tgt: str, out: str, threads: int) -> None:
    sentencepiece.SentencePieceTrainer.train(
        input=[src, tgt], model_prefix=f"{out}/vocab", model_type="bpe", vocab_size=DEFAULT_VOCAB_SIZE,
        character_coverage=0.9999, byte_fallback=True, split_digits=True, max_sentence_length=1 << 30,
        num_threads=threads, minloglevel=2,
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(model_file=f"{out}/vocab.model")
    for side in (src, tgt):
        with Path(side).open(encoding="utf-8", newline="\n") as text, Path(out, "ids").open("ab") as file:
            while lines := list(islice(text, BATCH)):
                for ids in model.encode(lines, num_threads=threads):
                    file.write(np.array(ids, np.uint16).tobytes())


def memory(process: int) -> float:
    """Returns the memory of a process and its descendants in MB, each shared page counted once."""
    total = 0.0
    with suppress(OSError):  # the process has ended
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
        total = int(rollup.partition("\nPss:")[2].split()[0]) / 1000
        for thread in Path(f"/proc/{process}/task").iterdir():
            total += sum(memory(int(child)) for child in (thread / "children").read_text(encoding="ascii").split())
    return total


def measured(command: list[str]) -> tuple[float, float, float]:
    """Returns the processor time and wall time of a command in seconds, and its peak memory in MB."""
    began, peak = time.perf_counter(), 0.0
    process = subprocess.Popen(command)
    while True:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        peak = max(peak, memory(process.pid))
        time.sleep(PAUSE)
    if status:
        sys.exit(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - began, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--src", required=True)
    parser.add_argument("--tgt", required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentencepiece", metavar="FOLDER", help="run SentencePiece once, and write to this folder")
    options = parser.parse_args()
    text = ["--src", options.src, "--tgt", options.tgt, "--threads", str(options.threads)]
    if options.sentencepiece:
        with_sentencepiece(options.src, options.tgt, options.sentencepiece, options.threads)
        return
    commands = {
        "SentencePiece": [sys.executable, __file__, *text, "--sentencepiece"],
        "vtrans": [sys.executable, "-m", "vtrans", "prepare-bpe", *text, "--quiet", "--out"],
    }
    turns: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            with TemporaryDirectory() as folder:
                turns[name].append(measured([*command, folder]))
    medians = {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in turns.items()}
    for name, row in medians.items():
        ratios = (value / theirs for value, theirs in zip(row, medians["SentencePiece"], strict=True))
        cells = (f"{value:7.1f} {unit} ({ratio:.2f})" for value, unit, ratio in zip(row, UNITS, ratios, strict=True))
        print(f"{name:14}", *cells, sep=" | ")


if __name__ == "__main__":
    main()
