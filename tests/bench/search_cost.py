"""Print how the cost of decoding grows with the beam, the batch, the sentence length and the vocabulary.

    python tests/bench/search_cost.py --model RUN --input TEXT [--lines 300] [--references TEXT]

Prints milliseconds per sentence and the ratio to the first row of each group: the median of three passes, taken in
turns. With references, only lines with words of their references as constraints are translated, and BLEU is printed,
too. The last group uses models of the same shape with random weights and stops each translation after 15 subwords.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import sacrebleu
import torch

from vtrans.config import SearchConfig
from vtrans.data.vocabulary import BOS_ID, EOS_ID, PAD_ID
from vtrans.decoding.beam import beam_search
from vtrans.decoding.incremental import IncrementalDecoder
from vtrans.decoding.loading import load
from vtrans.decoding.phrases import wording_of
from vtrans.decoding.torch_engine import models_of
from vtrans.decoding.translator import Translator
from vtrans.model import Transformer
from vtrans.runtime.memory import manage_memory
from vtrans.text import open_bytes, read_lines


def turns(group: str, cases: Sequence[tuple[str, Translator, list[str]]]) -> None:
    seconds: dict[str, list[float]] = {name: [] for name, _, _ in cases}
    for turn in range(4):  # the first turn is a warm-up
        for name, translator, lines in cases:
            began = time.perf_counter()
            list(translator.translate(lines))
            if turn:
                seconds[name].append((time.perf_counter() - began) / len(lines))
    show(group, seconds)


def with_words(translator: Translator, lines: list[str], references: list[str]) -> None:
    """Compares lines without constraints with those that have one or two words of at least 5 letters, drawn from their
    references."""
    numbers = random.Random(1)
    words = [re.findall(r"(?<!\S)\w{5,}(?=[\s.,])", reference) for reference in references]
    for own in words:
        numbers.shuffle(own)
    cases = {f"{n} words": [{"constraints": own[:n]} for own in words] for n in range(3)}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    found: dict[str, list[str]] = {}
    for turn in range(4):
        for name, constraints in cases.items():
            began = time.perf_counter()
            found[name] = list(translator.translate(lines, constraints=constraints))
            if turn:
                seconds[name].append((time.perf_counter() - began) / len(lines))
    show("constraints", seconds)
    for name, texts in found.items():
        met = sum(len(wording_of(c, "", 1).unmet(t)) == 0 for c, t in zip(cases[name], texts, strict=True))
        print(f"{name}: BLEU {sacrebleu.corpus_bleu(texts, [references]).score:.2f}, {met} of {len(lines)} lines obey")


def show(group: str, seconds: dict[str, list[float]]) -> None:
    first = statistics.median(next(iter(seconds.values())))
    for name, values in seconds.items():
        median = statistics.median(values)
        print(f"{group:12} {name:>24} {1000 * median:8.2f} ms per sentence {median / first:6.2f} x")


def vocabularies(model: Transformer, lines: int) -> None:
    seconds: dict[str, list[float]] = {}
    models = {}
    for size in (4000, 8000, 16000, 32000):
        torch.manual_seed(1)
        models[size] = Transformer(model.config, size, size, joint=True, pad_id=PAD_ID).eval()
    sources = [[*torch.randint(4, 4000, (14,)).tolist(), EOS_ID] for _ in range(lines)]
    search = SearchConfig(beam=4)
    for turn in range(4):
        for size, one in models.items():
            began = time.perf_counter()
            with torch.inference_mode():
                limits = [15] * lines
                decoder = IncrementalDecoder(one)
                list(beam_search(decoder, sources, limits, config=search, nbest=1, bos_id=BOS_ID, eos_id=EOS_ID))
            if turn:
                seconds.setdefault(f"{size:,} subwords", []).append((time.perf_counter() - began) / lines)
    show("vocabulary", seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--references", type=Path)
    options = parser.parse_args()
    manage_memory()
    with open_bytes(options.input) as stream:
        lines = [line for line in read_lines(stream, str(options.input)) if line.strip()][: options.lines]

    def made(beam: int = 4, batch_tokens: int = SearchConfig.batch_tokens) -> Translator:
        return load(options.model, device="cpu", beam=beam, batch_tokens=batch_tokens, retry=False)

    if options.references:
        with open_bytes(options.references) as stream:
            references = list(read_lines(stream, str(options.references)))[: options.lines]
        with_words(made(), lines, references)
        return
    print(f"{len(lines)} lines, {torch.get_num_threads()} threads, torch {torch.__version__}")
    turns("beam", [(str(k), made(beam=k), lines) for k in (1, 2, 4, 8, 16)])
    turns("batch", [(f"{n} tokens", made(batch_tokens=n), lines) for n in (1, 128, 512, 2048, 8192)])
    length = [(f"{k} captions per line", made(), joined(lines, k)) for k in (1, 2, 4, 8)]
    turns("length", length)
    vocabularies(models_of(made().engine)[0].model, len(lines))


def joined(lines: Sequence[str], k: int) -> list[str]:
    return [" ".join(lines[i : i + k]) for i in range(0, len(lines) - k + 1, k)]


if __name__ == "__main__":
    main()
