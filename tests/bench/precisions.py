"""Print the decoding speed of each precision, compiled and in torch, on one thread of a CPU, with random weights.

    python tests/bench/precisions.py [--shape tiny|base|big] [--sentences 200] [--rounds 3]
                                      [--batch-tokens 2048]

Beam 4; sources have 15 subwords and translations 14. --batch-tokens 1 translates single sentences. Each decoder has its
turn in every round; the program prints the medians in sentences per second, and the median ratio to compiled code in
float32 within a round.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from typing import Any

import torch
from speed import SHAPES

from vtrans.checkpoint import arrays_of
from vtrans.compiled.decoder import CompiledDecoder, compiled_decoder
from vtrans.compiled.weights import PRECISIONS
from vtrans.config import ModelConfig, SearchConfig
from vtrans.engines.incremental import IncrementalDecoder
from vtrans.model import Transformer
from vtrans.processes.memory import manage_memory
from vtrans.search.beam import beam_search
from vtrans.search.decoder import Decoder
from vtrans.search.loop import SearchTask
from vtrans.text.vocabulary import EOS_ID, PAD_ID

BIG = ModelConfig(d_model=512, d_ff=2048, heads=8, encoder_layers=6, decoder_layers=6, tie="src-tgt-softmax")
VOCAB = {"tiny": 8000, "base": 8000, "big": 32000}
LENGTH, BEAM = 14, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=sorted(VOCAB), default="base")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-tokens", type=int, default=SearchConfig.batch_tokens)
    options = parser.parse_args()
    manage_memory()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    V = VOCAB[options.shape]
    model = Transformer({**SHAPES, "big": BIG}[options.shape], V, V, joint=True, pad_id=PAD_ID)
    model.eval().requires_grad_(False)
    library = compiled_decoder(None)
    decoders: dict[str, Decoder[Any]] = {}
    for precision in PRECISIONS:
        decoders[f"compiled, {precision}"] = CompiledDecoder(arrays_of(model), library, precision)
        if precision != "int8":
            decoders[f"torch, {precision}"] = IncrementalDecoder(copy.deepcopy(model), precision)
    sources = [[*torch.randint(4, V, (LENGTH,)).tolist(), EOS_ID] for _ in range(options.sentences)]

    @torch.inference_mode()
    def speed(name: str) -> float:
        began = time.perf_counter()
        settings = SearchConfig(beam=BEAM, batch_tokens=options.batch_tokens)
        search = beam_search(decoders[name], SearchTask(sources, [LENGTH] * len(sources), settings, 1))
        return len(list(search)) / (time.perf_counter() - began)

    for name in decoders:
        speed(name)
    rounds = [{name: speed(name) for name in decoders} for _ in range(options.rounds)]
    for name in decoders:
        found = statistics.median(speeds[name] for speeds in rounds)
        ratio = statistics.median(speeds[name] / speeds["compiled, float32"] for speeds in rounds)
        print(f"{name:18} {found:8.1f} sentences/s  {ratio:.2f} of compiled code in float32")


if __name__ == "__main__":
    main()
