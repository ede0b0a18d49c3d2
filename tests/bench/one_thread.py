"""Processor time on one thread beside CTranslate2: beams 1 and 4, float32 and int8, with a line's steps and without.

    vtrans export MODEL --to ctranslate2 --out exported
    python tests/bench/one_thread.py --model MODEL --exported exported --input TEXT [--rounds 3] [--lines 2000]

Prints a table with a row per search: the median seconds of processor time of each system over the rounds, in each of
which every system has its turn, and the ratio of CTranslate2's to it (wall time in parentheses). Loading is taken off.
The last row is the processor time of a process that translates one line. `--raw --no-check-numbers --no-retry` is the
search alone.
"""

import argparse
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from peers import SEARCH, Bench, Run, System, ctranslate2_run

from vtrans.config.threads import set_threads
from vtrans.text.lines import open_bytes, read_lines
from vtrans.translate.loading import load

START = "import ctranslate2, sys; ctranslate2.Translator(sys.argv[1]).translate_batch([sys.argv[2:]])"


def vtrans_run(model: str, raw: bool, **search: Any) -> Run:
    set_threads(1)
    translator = load(model, device="cpu", retry=not raw, **{**SEARCH, **search})
    return lambda lines: list(translator.translate(lines, raw=raw))


def systems(model: str, exported: str, beam: int, precision: str) -> list[System]:
    """CTranslate2, vtrans without the steps of a line, and vtrans as it is by default."""
    theirs = {"exported": exported, "model": model, "compute": precision, "intra": 1, "inter": 1, "size": 64}
    ours = {"model": model, "precision": precision, "beam": beam}
    return [
        System("CTranslate2", ctranslate2_run, {**theirs, "beam": beam}, 1),
        System("vtrans --raw", vtrans_run, {**ours, "raw": True}, 1),
        System("vtrans", vtrans_run, {**ours, "raw": False}, 1),
    ]


def started(command: list[str], line: str) -> float:
    """Returns the seconds of processor time of a process that reads a line."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, input=line.encode(), check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def row(name: str, measured: dict[str, list[tuple[float, float]]]) -> str:
    """Returns a row of the table: processor time and, in parentheses, wall time of each system."""
    medians = {
        system: [statistics.median(column) for column in zip(*turns, strict=True)] for system, turns in measured.items()
    }
    first = next(iter(medians.values()))[0]
    cells = [f"{busy:.2f} s ({wall:.2f}) {first / busy:.2f}" for busy, wall in medians.values()]
    return " | ".join([f"{name:18}", *(f"{cell:>22}" for cell in cells)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--exported", required=True, help="the model as exported by `vtrans export --to ctranslate2`")
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with open_bytes(options.input) as stream:
        lines = [line for line in read_lines(stream, str(options.input)) if line.strip()][: options.lines]
    print(" | ".join([f"{'':18}", *(f"{name:>22}" for name in ("CTranslate2", "vtrans --raw", "vtrans"))]))
    for beam in (1, 4):
        for precision in ("float32", "int8"):
            chosen = systems(options.model, options.exported, beam, precision)
            bench, measured = Bench(chosen, lines), {system.name: list[tuple[float, float]]() for system in chosen}
            for _ in range(options.rounds):
                for name, turns in measured.items():
                    wall, busy = bench.turn(name, "in batches")
                    turns.append((busy, wall))
            bench.close()
            print(row(f"beam {beam}, {precision}", measured), flush=True)
    vocab = load(options.model, device="cpu").src_vocab
    pieces = [vocab.piece(i) for i in vocab.encode_batch(lines[:1])[0]]
    vtrans = [sys.executable, "-m", "vtrans", "translate", "--quiet", "--model", options.model]
    commands = [[sys.executable, "-c", START, options.exported, *pieces], [*vtrans, "--raw"], vtrans]
    starts = [[started(command, f"{lines[0]}\n") for command in commands] for _ in range(options.rounds)]
    print(
        " | ".join(
            [f"{'start and one line':18}", *(f"{statistics.median(one):>20.2f} s" for one in zip(*starts, strict=True))]
        )
    )


if __name__ == "__main__":
    main()
