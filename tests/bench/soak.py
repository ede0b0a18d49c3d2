"""Check that memory stays flat: a long input through `vtrans translate`, its resident size watched from outside.

    python tests/bench/soak.py [--lines 1000000] [--model RUN|FILE] [--input TEXT] [--processes 2]

The input repeats the lines of TEXT, or a few built-in captions, so that new text is no reason for growth. Without
--model a tiny network with random weights translates them into a few subwords per line: the test is of everything
around the network. Linux only (/proc). The exit code is 1 if the second half of the input added more than 4% and
8 MB, or if lines were lost.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SHORT = ("Two dogs run.", "A man in a blue shirt sings.", "", "Children play in the snow.", "A big old house.")
SHARE, MEGABYTES = 0.04, 8.0


def tiny_model(path: Path) -> None:
    """Write a model with random weights and the vocabulary of the built-in captions."""
    import torch

    from vtrans.checkpoint import LoadedModel, save_model
    from vtrans.config import ModelConfig, SearchConfig
    from vtrans.data.options import PrepareOptions
    from vtrans.data.preparation.learn_vocabulary import learn
    from vtrans.model import Transformer
    from vtrans.text.vocabulary import PAD_ID

    vocab = learn(SHORT, None, PrepareOptions(character_coverage=1.0, split_digits=False))
    config = ModelConfig(
        d_model=16, d_ff=16, heads=1, encoder_layers=1, decoder_layers=1, dropout=0.0, tie="src-tgt-softmax"
    )
    torch.manual_seed(1)
    model = Transformer(config, len(vocab), len(vocab), joint=True, pad_id=PAD_ID).eval()
    save_model(path, LoadedModel(model, vocab, vocab, SearchConfig(beam=2, max_length=4), {"step": 0}))


def descendants(pid: int) -> list[int]:
    """Return the processes that the main thread of a process has started, and those that they have started."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [process for child in children for process in (child, *descendants(child))]


def megabytes(pid: int) -> float:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().split("\n"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def soak(words: list[str], source: Path, lines: int, processes: int) -> bool:
    """Translate `source` and print the memory; return whether it stayed flat and no line was lost."""
    command = [sys.executable, "-m", "vtrans", "translate", *words, "--quiet", "--input", str(source)]
    process = subprocess.Popen([*command, "--processes", str(processes)], stdout=subprocess.PIPE)
    began, done, step = time.monotonic(), 0, max(1, lines // 10)
    sizes: dict[int, list[float]] = {}  # per tenth of the input
    out = process.stdout
    assert out is not None
    while block := os.read(out.fileno(), 1 << 16):
        done += block.count(b"\n")
        if done // step not in sizes and done < lines:
            sizes[done // step] = [megabytes(pid) for pid in (process.pid, *descendants(process.pid))]
            shown = "  ".join(f"{size:.1f}" for size in sizes[done // step])
            print(f"{done:>12,} lines  {time.monotonic() - began:6.0f} s  resident MB {shown}", flush=True)
    code = process.wait()
    tenths = sorted(sizes)
    middle, end = sizes[tenths[len(tenths) // 2]], sizes[tenths[-1]]
    print(f"{done:,} of {lines:,} lines in {time.monotonic() - began:.0f} s, exit code {code}")
    flat = True
    for number, (a, b) in enumerate(zip(middle, end, strict=True)):
        print(f"process {number}: {a:.1f} MB in the middle, {b:.1f} MB at the end ({b / a - 1:+.1%})")
        flat &= b - a <= max(SHARE * a, MEGABYTES)
    return flat and done == lines and not code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--model")
    parser.add_argument("--input", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = options.model
        if model is None:
            model = str(Path(folder) / "tiny.safetensors")
            tiny_model(Path(model))
        given = options.input.read_bytes().split(b"\n")[:-1] if options.input else [s.encode() for s in SHORT]
        source = Path(folder) / "source"
        with source.open("wb") as file:
            for start in range(0, options.lines, len(given)):
                file.write(b"\n".join(given[: options.lines - start]) + b"\n")
        words = ["--model", model] + ([] if options.model is None else ["--beam", "1"])
        sys.exit(0 if soak(words, source, options.lines, options.processes) else 1)


if __name__ == "__main__":
    main()
