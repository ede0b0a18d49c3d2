"""Decoding speed compared with CTranslate2: one model, one text, one beam, in turns.

    vtrans export RUN --to ctranslate2 --out exported
    python tests/bench/peers.py --model RUN --exported exported --input TEXT [--rounds 3] [--beam 4]

Prints sentences per second, without loading the model: the median over the rounds, in each of which every system has
its turn, and the ratio to CTranslate2 in float32 (with its faster arrangement of threads). For systems that are one
process, it prints the processor time, and the median of its ratios to CTranslate2 in float32 on one thread.

All systems use the same subwords, stop by count, and divide by |Y| ** 1, whatever the model stores.
"""

import argparse
import dataclasses
import io
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vtrans.config import SearchConfig
from vtrans.system.process import manage_memory
from vtrans.text.lines import open_bytes, read_lines
from vtrans.translate.loading import load
from vtrans.translate.steps.line import lines_of
from vtrans.translate.stream import Division, translate_stream, workers_for
from vtrans.translate.translation import TranslateOptions

BEAM, EXTRA = 4, 50
SEARCH: dict[str, Any] = dataclasses.asdict(SearchConfig(beam=BEAM, alpha=1.0, length_penalty="length"))
Run = Callable[[Sequence[str]], object]


def vtrans_run(model: str, **search: Any) -> Run:
    translator = load(model, device="cpu", retry=False, **{**SEARCH, **search})
    return lambda lines: list(translator.translate(lines))


def vtrans_processes_run(model: str, processes: int, **search: Any) -> Run:
    """As `vtrans translate --processes` does it."""
    torch.set_num_threads(1)
    translator = load(model, device="cpu", retry=False, **{**SEARCH, **search})
    options = TranslateOptions()
    workers = ExitStack().enter_context(workers_for(translator, options, Division(processes, 1)))
    return lambda lines: translate_stream(translator, lines_of(lines), io.BytesIO(), options, workers=workers)


def ctranslate2_run(
    exported: str, model: str, compute: str, intra: int, inter: int, size: int, beam: int = BEAM
) -> Run:
    import ctranslate2

    engine = ctranslate2.Translator(
        exported, device="cpu", compute_type=compute, intra_threads=intra, inter_threads=inter
    )
    vocab = load(model, device="cpu").src_vocab

    def run(lines: Sequence[str]) -> object:
        # CTranslate2 adds EOS, as the configuration of the exported folder says.
        tokens = [[vocab.piece(i) for i in ids] for ids in vocab.encode_batch(lines)]
        tokens.sort(key=len, reverse=True)
        return engine.translate_batch(
            tokens,
            max_batch_size=size,
            beam_size=beam,
            length_penalty=1.0,
            max_decoding_length=max(map(len, tokens)) + EXTRA,
            min_decoding_length=0,
            max_input_length=0,
        )

    return run


@dataclass(frozen=True)
class System:
    """One system, in a process of its own: idle threads of one library would slow down another."""

    name: str
    build: Callable[..., Run]
    arguments: dict[str, Any]
    threads: int = 0  # of torch; 0: its default


def worker(system: System, lines: list[str], jobs: Any, done: Any) -> None:
    manage_memory()
    if system.threads:
        torch.set_num_threads(system.threads)
    run = system.build(**system.arguments)
    run(lines)  # the first pass prepares kernels for each shape
    done.put("ready")
    while one_by_one := jobs.get():
        began = time.process_time()
        for part in [[line] for line in lines] if one_by_one == "one at a time" else [lines]:
            run(part)
        done.put(time.process_time() - began)
    os._exit(0)  # which ends the copies of this process, too


class Bench:
    """The processes of all systems, which wait for their turns."""

    def __init__(self, systems: Sequence[System], lines: Sequence[str]) -> None:
        context = multiprocessing.get_context("spawn")
        self.queues: dict[str, tuple[Any, Any]] = {}
        for system in systems:
            jobs, done = context.Queue(), context.Queue()
            process = context.Process(target=worker, args=(system, list(lines), jobs, done))
            process.start()
            self.queues[system.name] = jobs, done
            while process.is_alive() and done.empty():
                time.sleep(0.05)
            if not process.is_alive():
                self.close()
                raise SystemExit(f"{system.name} has failed.")
            done.get()

    def turn(self, name: str, how: str) -> tuple[float, float]:
        """Returns the seconds that a system takes for the text, and the processor time of its main process."""
        time.sleep(0.5)  # until the threads of the previous system stop spinning
        jobs, done = self.queues[name]
        began = time.perf_counter()
        jobs.put(how)
        busy = done.get()
        return time.perf_counter() - began, busy

    def close(self) -> None:
        """Ends the processes."""
        for jobs, _ in self.queues.values():
            jobs.put("")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--exported", help="the model as exported by `vtrans export`")
    parser.add_argument("--shortlist", help="the model with a shortlist of `vtrans shortlist`")
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beam", type=int, default=BEAM, help="1 is greedy search")
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument(
        "--without", action="append", default=[], help="systems to leave out, by the start of their name"
    )
    options = parser.parse_args()
    with open_bytes(options.input) as stream:
        lines = [line for line in read_lines(stream, str(options.input)) if line.strip()]
    threads = torch.get_num_threads()
    print(f"{threads} threads, torch {torch.__version__}")
    for title, text in (("in batches", lines), ("one at a time", lines[:: max(1, len(lines) // 100)])):
        systems = [s for s in every_system(options, title, threads) if not s.name.startswith(tuple(options.without))]
        bench = Bench(systems, text)
        speeds: dict[str, list[float]] = {system.name: [] for system in systems}
        busy: dict[str, list[float]] = {system.name: [] for system in systems}
        for _ in range(options.rounds):
            for name, values in speeds.items():
                seconds, processor = bench.turn(name, title)
                values.append(len(text) / seconds)
                busy[name].append(processor)
        bench.close()
        medians = {name: statistics.median(values) for name, values in speeds.items()}
        anchor = max((v for k, v in medians.items() if k.startswith("CTranslate2 float32")), default=math.nan)
        for name, speed in medians.items():
            spread = f"{min(speeds[name]):.0f} to {max(speeds[name]):.0f}"
            print(
                f"{title:14} {name:38} {speed:7.1f} sentences/s ({spread}) {speed / anchor:6.2f} x CTranslate2 float32"
            )
        # Processor time depends less on other programs. Copies of a process have their own.
        alone = {name: values for name, values in busy.items() if "--processes" not in name}
        reference = "CTranslate2 float32, 1 x 1 threads"
        for name, values in alone.items() if reference in alone else ():
            ratio = statistics.median(theirs / ours for ours, theirs in zip(values, alone[reference], strict=True))
            print(f"{title:14} {name:38} {statistics.median(values):7.2f} s of processor time {ratio:6.2f}")


def every_system(options: argparse.Namespace, title: str, threads: int) -> Iterator[System]:
    alone = title == "one at a time"
    beam = {"beam": options.beam}
    ours = {"model": options.model, "batch_tokens": 1 if alone else options.batch_tokens, **beam}
    in_torch = {**ours, "engine": "torch"}
    yield System(f"vtrans --engine torch, 1 x {threads} threads", vtrans_run, in_torch)
    yield System("vtrans, 1 thread", vtrans_run, ours, 1)
    yield System("vtrans --engine torch, 1 thread", vtrans_run, in_torch, 1)
    for precision in ("bfloat16", "int8"):
        yield System(f"vtrans --precision {precision}, 1 thread", vtrans_run, {**ours, "precision": precision}, 1)
    if not alone:
        divided = {**ours, "processes": threads}
        yield System(f"vtrans --processes {threads}", vtrans_processes_run, divided)
        yield System(f"vtrans --processes {threads} --engine torch", vtrans_processes_run, {**divided, **in_torch})
        yield System(f"vtrans --threads {threads}", vtrans_run, ours, threads)
        rounded = {**divided, "precision": "int8"}
        yield System(f"vtrans --processes {threads} --precision int8", vtrans_processes_run, rounded)
        halved = {**divided, "precision": "bfloat16"}
        yield System(f"vtrans --processes {threads} --precision bfloat16", vtrans_processes_run, halved)
        if options.shortlist:
            for name, chosen in (("--shortlist", divided), ("--precision int8 --shortlist", rounded)):
                listed = {**chosen, "model": options.shortlist, "shortlist": True}
                yield System(f"vtrans --processes {threads} {name}", vtrans_processes_run, listed)
    if options.exported:
        for compute in ("float32", "int8"):
            for inter, intra in sorted({(1, threads), (1, 1), (1 if alone else threads, 1)}):
                arguments = {"exported": options.exported, "model": options.model, "compute": compute}
                arguments |= {"intra": intra, "inter": inter, "size": 1 if alone else 64, **beam}
                yield System(f"CTranslate2 {compute}, {inter} x {intra} threads", ctranslate2_run, arguments)


if __name__ == "__main__":
    main()
