"""Print the speed of `vtrans translate` and of CTranslate2 as whole commands, in turns.

    vtrans export RUN --to ctranslate2 --out exported
    python tests/bench/whole_commands.py --model RUN --exported exported --input TEXT [--turns 5]

Each command starts, loads the model, translates the text with two processes or two threads of its own, writes the
translations and ends. A turn runs all commands of one beam and precision once, after a warm-up. Prints the medians of
the wall time and of the processor time of all processes, and the ratio of CTranslate2's median to that of vtrans: above
1, vtrans is faster. CTranslate2 runs with each of the given batch sizes, and the fastest one counts.

Both use the same subwords and divide by |Y| ** 1. vtrans does all that its command does by default, such as searching
lines again whose numbers differ; `--option` adds options to it, for example `--option=--no-retry`. The share of equal
translations shows whether the searches agree. Linux only.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

# This program as CTranslate2's command: arguments as in `theirs`, the text on the standard input.
PEER = "--as-ctranslate2"


class Cost(NamedTuple):
    wall: float
    processor: float


def as_ctranslate2(exported: str, compute: str, beam: int, size: int, parallel: int) -> None:
    import ctranslate2
    import sentencepiece

    # CTranslate2 adds EOS, as the configuration of the exported folder says.
    (model,) = Path(exported).glob("*.model")
    vocab = sentencepiece.SentencePieceProcessor(model_file=str(model))
    engine = ctranslate2.Translator(
        exported, device="cpu", compute_type=compute, inter_threads=parallel, intra_threads=1
    )
    tokens = vocab.encode(sys.stdin.read().split("\n")[:-1], out_type=str)
    order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]), reverse=True)
    results = engine.translate_batch(
        [tokens[i] for i in order],
        max_batch_size=size,
        beam_size=beam,
        length_penalty=1.0,
        max_decoding_length=max(map(len, tokens)) + 50,
        min_decoding_length=0,
        max_input_length=0,
    )
    found = dict(zip(order, (result.hypotheses[0] for result in results), strict=True))
    for line in vocab.decode([found[i] for i in range(len(tokens))]):
        sys.stdout.write(line + "\n")


def ours(options: argparse.Namespace, precision: str, beam: int) -> list[str]:
    command = [sys.executable, "-m", "vtrans", "translate", "--quiet", "--model", options.model, "--device", "cpu"]
    command += ["--beam", str(beam), "--precision", precision, "--processes", str(options.parallel)]
    return [*command, "--alpha", "1", "--length-penalty", "length", *options.option]


def theirs(options: argparse.Namespace, precision: str, beam: int, size: int) -> list[str]:
    arguments = [options.exported, precision, str(beam), str(size), str(options.parallel)]
    return [sys.executable, __file__, PEER, *arguments]


def run(command: Sequence[str], given: bytes) -> tuple[Cost, list[bytes]]:
    """Returns what a command costs, and the lines that it writes."""
    with tempfile.TemporaryFile() as text, tempfile.TemporaryFile() as out:
        text.write(given)
        text.seek(0)
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, stdin=text, stdout=out, stderr=subprocess.DEVNULL, check=True)
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        out.seek(0)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Cost(wall, processor), out.read().split(b"\n")[:-1]


def compare(options: argparse.Namespace, given: bytes, precision: str, beam: int) -> None:
    commands = {"vtrans": ours(options, precision, beam)}
    for size in options.sizes:
        commands[f"CTranslate2, batches of {size}"] = theirs(options, precision, beam, size)
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    lines: dict[str, list[bytes]] = {}
    for turn in range(options.turns + 1):  # the first turn is a warm-up
        for name, command in commands.items():
            cost, lines[name] = run(command, given)
            if turn:
                costs[name].append(cost)
    medians = {name: Cost(*map(median, zip(*each, strict=True))) for name, each in costs.items()}
    peers = {name: cost for name, cost in medians.items() if name != "vtrans"}
    print(f"beam {beam}, {precision}")
    for name, cost in medians.items():
        walls = [each.wall for each in costs[name]]
        spread = f"({min(walls):.2f} to {max(walls):.2f})"
        print(f"  {name:28} {cost.wall:6.2f} s {spread:16} {cost.processor:6.2f} s of processor time")
    fastest = min(peers, key=lambda name: peers[name].wall)
    wall, processor = (min(values) for values in zip(*peers.values(), strict=True))
    equal = sum(a == b for a, b in zip(lines["vtrans"], lines[fastest], strict=True))
    ratios = wall / medians["vtrans"].wall, processor / medians["vtrans"].processor
    print("  ratio: {:.2f}, by processor time {:.2f}".format(*ratios))
    print(f"  {equal} of {len(lines['vtrans'])} translations are equal", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--exported", required=True, help="the model as exported by `vtrans export`")
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--precisions", nargs="+", default=["float32", "int8"])
    parser.add_argument("--parallel", type=int, default=2, help="processes of vtrans, and threads of CTranslate2")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128], help="CTranslate2's lines per batch")
    parser.add_argument("--option", action="append", default=[], help="an option of `vtrans translate`")
    options = parser.parse_args()
    given = options.input.read_bytes()
    count = given.count(b"\n")
    print(f"{count} lines, {options.parallel} in parallel, {os.cpu_count()} processors")
    for beam in options.beams:
        for precision in options.precisions:
            compare(options, given, precision, beam)


if __name__ == "__main__":
    if sys.argv[1:2] == [PEER]:
        exported, compute, *numbers = sys.argv[2:]
        as_ctranslate2(exported, compute, *map(int, numbers))
    else:
        main()
