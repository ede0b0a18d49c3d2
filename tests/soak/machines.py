"""Compiles the decoder for other processors and systems, runs it under an emulator, and compares the results with those
of this processor: `python tests/soak/machines.py [TARGET ...]`.

    apt-get install g++-aarch64-linux-gnu qemu-user wine
    python -m venv /tmp/zig && /tmp/zig/bin/pip install ziglang
    ZIG='/tmp/zig/bin/python -m ziglang' python tests/soak/machines.py

Without TARGETs, all of them are tried. A program that is not installed is named, and what needs it is left out; what
nothing can run here, such as code for macOS, is only compiled and linked. Products of numbers whose sums are exact must
have equal bytes in all precisions. In float32, scores of random models may differ by 3e-5, and in bfloat16 and int8 by
as much as one operand that is rounded the other way changes them. The exit code is 1 if something differs.

Legend: N rows, I inputs and O outputs of a product.
"""

import argparse
import dataclasses
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[1] / "helpers"))

from networks import BOS, EOS, SEQUENCES, SMALL, VARIANTS, V, arrays_of, make

from vtrans.config import ModelConfig
from vtrans.engines.compiled.compiler import INSTRUCTIONS, MACOS, OPTIONS
from vtrans.engines.compiled.weights import PRECISIONS, in_order, sizes_of
from vtrans.model.rotary import COMPUTED, computed

Array = NDArray[Any]
TOP = Path(__file__).parents[2]

WIDE = dataclasses.replace(SMALL, d_model=96, d_ff=88, heads=2)
LARGE = dataclasses.replace(SMALL, d_model=128, d_ff=256, heads=4)
CONFIGS = [*VARIANTS, *SEQUENCES, WIDE, LARGE, dataclasses.replace(SMALL, alignment_layer=2)]
SHAPES = ((1, 16, 40), (3, 37, 41), (9, 96, 100), (33, 256, 130))
PAIRS, POSITIONS = 8, 64
# The largest root mean square of the differences, as a part of the standard deviation of the scores.
CLOSE = {"float32": 1e-5, "bfloat16": 0.01, "int8": 0.05}


class Target(NamedTuple):
    """The compiler for a machine, the emulator that runs its programs here (None without one), and the options for its
    instruction set."""

    compiler: tuple[str, ...]
    runner: tuple[str, ...] | None
    options: tuple[str, ...] = ()


def targets() -> dict[str, Target]:
    zig = (*shlex.split(os.environ.get("ZIG", "zig")), "c++", "-Wno-pass-failed", "-target")
    found = {
        "arm64-linux": Target(("aarch64-linux-gnu-g++",), ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")),
        "arm64-linux-zig": Target((*zig, "aarch64-linux-musl", "-static"), ("qemu-aarch64",)),
        "arm64-macos": Target((*zig, f"aarch64-macos.{MACOS}"), None),
    }
    for name, options in reversed(INSTRUCTIONS.items()):
        found[f"{name}-linux"] = Target(("g++",), (), options)
        found[f"{name}-windows"] = Target((*zig, "x86_64-windows"), ("wine",), options)
        found[f"{name}-macos"] = Target((*zig, f"x86_64-macos.{MACOS}"), None, options)
    return found


class Case(NamedTuple):
    """The input of machines.cpp. Of the arrays that it writes, the first `floats` are float32, the others float64."""

    name: str
    precision: str
    arrays: list[Array | bytes | None]
    floats: int


def products() -> Iterator[Case]:
    """Products of random numbers, and of whole numbers up to 127, with which every sum is exact in each precision."""
    numbers = np.random.default_rng(1)
    for N, I, O in SHAPES:  # noqa: E741  # the legend's
        for exact in (True, False):
            x, weight, bias = (numbers.standard_normal(shape, np.float32) for shape in ((N, I), (O, I), (O,)))
            if exact:
                x, weight, bias = (np.clip(np.rint(array * 50), -127, 127) for array in (x, weight, bias))
                x[:, 0] = weight[:, 0] = 127
            for precision in PRECISIONS:
                shape = np.array([N, I, O, PRECISIONS.index(precision)], dtype=np.int32)
                yield Case("exact" if exact else "product", precision, [_int(0), shape, x, weight, bias], 1)


def models() -> Iterator[Case]:
    """Random models, each with pairs whose scores and attention are computed, and whose sources are searched."""
    for number, config in enumerate(CONFIGS):
        weights = arrays_of(make(config, src=V, tgt=V).float())
        tensors: list[Array | bytes | None] = list(in_order(weights))
        positions = [_positions(config, weights.get(f"{side}_positions.weight")) for side in ("src", "tgt")]
        for precision in PRECISIONS:
            sizes = bytes(sizes_of(weights, precision))
            arrays = [_int(1), sizes, _int(len(tensors)), *tensors, *positions, *_pairs(config)]
            yield Case(f"model {number}", precision, arrays, 2)


def _positions(config: ModelConfig, table: Array | None) -> Array:
    if config.positions in COMPUTED:
        table = computed(config.positions, POSITIONS, config.d_model, config.heads).astype(np.float32)
    assert table is not None
    return table


def _pairs(config: ModelConfig) -> list[Array]:
    """Sources, their lengths, targets, what the decoder is fed, the targets' lengths, the layers and heads that align,
    and the limits of a search."""
    numbers = random.Random(2)
    drawn = [[numbers.randrange(4, V) for _ in range(numbers.randrange(1, 20))] for _ in range(2 * PAIRS)]
    sources, targets = [[*source, EOS] for source in drawn[:PAIRS]], drawn[PAIRS:]
    fed = [[BOS, *target[:-1]] for target in targets]
    layers = (config.alignment_layer - 1, config.alignment_layer, 1)
    if not config.alignment_layer:
        layers = (config.decoder_layers // 2, config.decoder_layers, config.heads)
    joined = [np.array([token for row in rows for token in row], dtype=np.int64) for rows in (sources, targets, fed)]
    lengths = [np.array([len(row) for row in rows], dtype=np.int64) for rows in (sources, targets)]
    limits = np.minimum(lengths[0] + 5, 20)
    return [joined[0], lengths[0], joined[1], joined[2], lengths[1], np.array(layers, dtype=np.int32), limits]


def _int(number: int) -> Array:
    return np.array([number], dtype=np.int32)


def write(path: Path, cases: Sequence[Case]) -> None:
    with path.open("wb") as file:
        for array in (_int(len(cases)), *(array for case in cases for array in case.arrays)):
            data = b"" if array is None else array if isinstance(array, bytes) else array.tobytes()
            file.write(len(data).to_bytes(8, "little") + data)


def read(path: Path, cases: Sequence[Case]) -> list[list[Array]]:
    """Returns the results of each case."""
    data, at, results = path.read_bytes(), 0, []
    for case in cases:
        found: list[Array] = []
        count = 1 if case.name in ("exact", "product") else 2 + 2 * PAIRS
        for number in range(count):
            size = int.from_bytes(data[at : at + 8], "little")
            dtype = np.float32 if number < case.floats else np.float64
            found.append(np.frombuffer(data[at + 8 : at + 8 + size], dtype))
            at += 8 + size
        results.append(found)
    assert at == len(data)
    return results


def differences(cases: Sequence[Case], ours: list[list[Array]], theirs: list[list[Array]]) -> bool:
    """Prints how far the results of two machines are apart, and returns whether they are too far."""
    wrong = False
    for precision in PRECISIONS:
        unequal = products = far = searched = changed = 0
        worst = spread = 0.0
        for case, here, there in zip(cases, ours, theirs, strict=True):
            if case.precision != precision:
                continue
            if case.name == "exact":
                unequal += here[0].tobytes() != there[0].tobytes()
            elif case.name == "product":
                products += here[0].size
                far += int((np.abs(here[0] - there[0]) > 1e-5 * np.abs(here[0]).max()).sum())
            else:
                for one, other in zip(here[:2], there[:2], strict=True):
                    worst = max(worst, float(np.abs(one - other).max()))
                    spread = max(spread, float(np.sqrt(np.square(one - other).mean()) / one.std()))
                searched += PAIRS
                changed += sum(not np.array_equal(a, b) for a, b in _tokens(here, there))
        wrong |= bool(unequal or far or spread > CLOSE[precision])
        wrong |= precision == "float32" and bool(worst > 3e-5 or changed)
        print(
            f"  {precision}: {unequal} exact products have other bytes; {far} of {products} outputs of random products "
            f"differ; scores differ by {worst:.2g}, relative {spread:.2g}; {changed} of {searched} searches have "
            "another best result"
        )
    return wrong


def _tokens(ours: list[Array], theirs: list[Array]) -> Iterator[tuple[Array, Array]]:
    """Yields the best results of each search on both machines, without their log-probabilities."""
    for pair in range(PAIRS):
        both = []
        for results in (ours, theirs):
            length = int(results[2 + 2 * pair][1])
            both.append(results[3 + 2 * pair][:length])
        yield both[0], both[1]


def compiled(target: Target, folder: Path, name: str) -> Path | None:
    """Returns the program for a target, or None if something is not installed. It is linked as wheels.py does, but not
    with the options for the instruction set, for each of which zig would compile its C++ library."""
    for command in (target.compiler, target.runner):
        if command and not shutil.which(command[0]):
            print(f"{name}: {command[0]} is not installed")
            return None
    program = folder / f"{name}.exe"
    options = [option for option in OPTIONS if option not in ("-shared", "-fPIC")]
    source = Path(__file__).with_suffix(".cpp")
    made = folder / f"{name}.o"
    run([*target.compiler, *options, *target.options, "-I", TOP / "vtrans/engines/compiled", "-c", "-o", made, source])
    run([*target.compiler, *options, "-s", "-o", program, made])
    return program


def run(command: Sequence[object]) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-4000:]}")


def main() -> None:
    known = targets()
    parser = argparse.ArgumentParser(description="Compares the decoder on other machines with this one.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(known)}")
    names = parser.parse_args().targets or list(known)
    if unknown := set(names) - set(known):
        parser.error(f"TARGET must be one of {', '.join(known)}, got {', '.join(sorted(unknown))}")
    cases, wrong = [*products(), *models()], False
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write(folder / "cases", cases)
        expected: list[list[Array]] | None = None
        for name in ("baseline-linux", *names):
            if expected is not None and name == "baseline-linux":
                continue
            program = compiled(known[name], folder, name)
            runner = known[name].runner
            if program is None or runner is None:
                print(f"{name}: compiled and linked" if program else f"{name}: left out", flush=True)
                continue
            began = time.monotonic()
            run([*runner, program, folder / "cases", folder / name])
            found = read(folder / name, cases)
            print(f"{name}: {len(cases)} cases in {time.monotonic() - began:.1f} s", flush=True)
            expected = expected or found
            wrong |= differences(cases, expected, found)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
