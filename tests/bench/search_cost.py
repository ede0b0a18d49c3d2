"""Print how the cost of decoding grows with the beam, the batch, the sentence length and the vocabulary.

    python tests/bench/search_cost.py --model RUN --input TEXT [--lines 300] [--references TEXT | --ssru]

Prints milliseconds per sentence and the ratio to the first row of each group: the median of three passes, taken in
turns. With references, only lines with words of their references as constraints are translated, and BLEU is printed,
too. The last group uses models of the same shape with random weights and stops each translation after 15 subwords.

With --ssru, models of the same shape and of its width with 12+1 layers, both with random weights, translate one
sentence at a time: with self-attention in the decoder and with an SSRU, with torch and compiled, for 15 and 60
subwords. "layers" leaves out the encoder, the projection to the vocabulary and the search.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import sacrebleu
import torch

from vtrans.checkpoint import arrays_of
from vtrans.compiled.decoder import CompiledDecoder, compiled_decoder
from vtrans.config import SearchConfig
from vtrans.engines.incremental import IncrementalDecoder
from vtrans.model import Transformer
from vtrans.numerics import kernels
from vtrans.numerics.automatic import automatic_kernels
from vtrans.processes.memory import manage_memory
from vtrans.search.beam import beam_search
from vtrans.search.decoder import Decoder
from vtrans.search.loop import SearchTask
from vtrans.text.lines import open_bytes, read_lines
from vtrans.text.vocabulary import EOS_ID, PAD_ID
from vtrans.translate.loading import load
from vtrans.translate.translator import Translator
from vtrans.wording.phrases import wording_of


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
        print(f"{group:24} {name:>24} {1000 * median:8.2f} ms per sentence {median / first:6.2f} x")


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
                list(beam_search(decoder, SearchTask(sources, limits, search, 1)))
            if turn:
                seconds.setdefault(f"{size:,} subwords", []).append((time.perf_counter() - began) / lines)
    show("vocabulary", seconds)


def against_ssru(model: Transformer, lines: int) -> None:
    V, own, library = len(model.projection.weight), model.config, compiled_decoder(None)
    sources = [[*torch.randint(4, V, (14,)).tolist(), EOS_ID] for _ in range(lines)]
    for config in (own, dataclasses.replace(own, encoder_layers=12, decoder_layers=1)):
        models = {}
        for kind in ("self-attention", "ssru"):
            torch.manual_seed(1)
            changed = dataclasses.replace(config, autoregression=kind)
            models[kind] = Transformer(changed, V, V, joint=True, pad_id=PAD_ID).eval().requires_grad_(False)
        kernels.use(automatic_kernels())
        ways: dict[str, dict[str, IncrementalDecoder | CompiledDecoder]] = {
            "torch": {kind: IncrementalDecoder(one) for kind, one in models.items()},
            "compiled": {kind: CompiledDecoder(arrays_of(one), library) for kind, one in models.items()},
        }
        for way, decoders in ways.items():
            for length in (15, 60):
                whole: dict[str, list[float]] = {kind: [] for kind in models}
                layers: dict[str, list[float]] = {kind: [] for kind in models}
                for turn in range(4):
                    for kind, decoder in decoders.items():
                        hyps = one_at_a_time(decoder, sources, length)
                        if turn:
                            whole[kind].append(hyps[0] / lines)
                            layers[kind].append(hyps[1] / lines)
                name = f"{config.encoder_layers}+{config.decoder_layers} {way} {length}"
                show(name, whole)
                show(f"{name} layers", layers)


@torch.inference_mode()
def one_at_a_time(
    decoder: IncrementalDecoder | CompiledDecoder, sources: Sequence[list[int]], length: int
) -> tuple[float, float]:
    """Returns the seconds of all translations of `length` subwords, and those of the same steps' layers alone."""
    search, live_r = SearchConfig(beam=4), np.arange(4)
    began = time.perf_counter()
    for source in sources:
        list(beam_search(cast(Decoder[Any], decoder), SearchTask([source], [length], search, 1)))
    whole, layers = time.perf_counter() - began, 0.0
    tokens_BK, parents_BK = np.array([[5, 6, 7, 8]]), np.array([[0, 0, 1, 2]])
    for source in sources:
        state: Any = decoder.start([source], 4)
        began = time.perf_counter()
        for _ in range(length):
            decoder.hidden(state, tokens_BK, live_r)
            decoder.reorder(state, parents_BK)
        layers += time.perf_counter() - began
    return whole, layers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--references", type=Path)
    parser.add_argument("--ssru", action="store_true", help="compare self-attention in the decoder with an SSRU")
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
    if options.ssru:
        against_ssru(load(options.model, engine="torch").engine.models[0].model, len(lines))
        return
    turns("beam", [(str(k), made(beam=k), lines) for k in (1, 2, 4, 8, 16)])
    turns("batch", [(f"{n} tokens", made(batch_tokens=n), lines) for n in (1, 128, 512, 2048, 8192)])
    length = [(f"{k} captions per line", made(), joined(lines, k)) for k in (1, 2, 4, 8)]
    turns("length", length)
    vocabularies(load(options.model, engine="torch").engine.models[0].model, len(lines))


def joined(lines: Sequence[str], k: int) -> list[str]:
    return [" ".join(lines[i : i + k]) for i in range(0, len(lines) - k + 1, k)]


if __name__ == "__main__":
    main()
