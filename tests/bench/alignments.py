"""Print the alignment error rate of cross-attention, compared with gold alignments.

    python tests/bench/alignments.py --model run --data gold/test [--lines 1000] [--details]

Feeds each given translation through the model and compares the attention with PREFIX.align (Pharaoh format, over the
words between spaces). `gold_links.py` writes such text, and text to train the model on. First come the rates of the
links of `vtrans translate --alignments`, with ENOUGH and with other values. The table has one row per decoder layer,
one for the upper half of the layers and one for all, both for the position that predicts a subword and for the position
whose input it is. Its columns are: each target word with its best source word; each source word with its best target
word; the union of both, with ENOUGH; and their intersection. `--details` adds a row per head. AER is that of Och and
Ney (2003), with the sure links equal to the possible ones: 1 - 2 |A & G| / (|A| + |G|), in per cent.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from vtrans.checkpoint import load_model
from vtrans.engines import alignments
from vtrans.engines.alignments import links
from vtrans.engines.attention import attention, cross_attention
from vtrans.engines.forced import forced_batches
from vtrans.search.decoder import SubwordPair
from vtrans.storage.run_folder import choose_model
from vtrans.text.vocabulary import EOS_ID
from vtrans.text.words import words_of_line

Words = tuple[list[int], list[int]]
Found = set[tuple[int, int]]
OTHERS = (0.0, 0.05, 0.15, 0.2, 0.3, 0.5, 1.0)  # values of ENOUGH


def error_rate(found: list[Found], gold: list[Found]) -> float:
    common = sum(len(a & g) for a, g in zip(found, gold, strict=True))
    return 100 - 200 * common / (sum(map(len, found)) + sum(map(len, gold)))


def directions(attention_TS: NDArray[np.float64], words: Words) -> tuple[Found, Found]:
    """Return the best source word of each target word, and the best target word of each source word."""
    sources, src_starts = np.unique(words[0], return_index=True)
    targets, tgt_starts, sizes = np.unique(words[1], return_index=True, return_counts=True)
    real_TS = attention_TS[: len(words[1]), : len(words[0])]
    shared_JI = np.add.reduceat(np.add.reduceat(real_TS, src_starts, 1), tgt_starts, 0) / sizes[:, None]
    forward = {(int(sources[i]), int(targets[j])) for j, i in enumerate(shared_JI.argmax(1))}
    return forward, {(int(sources[i]), int(targets[j])) for i, j in enumerate(shared_JI.argmax(0))}


def row(name: str, attention: list[NDArray[np.float64]], words: list[Words], gold: list[Found]) -> None:
    both = [directions(a, w) for a, w in zip(attention, words, strict=True)]
    joined = [set(links(a, *w)) for a, w in zip(attention, words, strict=True)]
    results = ([f for f, _ in both], [b for _, b in both], joined, [f & b for f, b in both])
    print(f"{name:<28}" + "".join(f"{error_rate(found, gold):10.1f}" for found in results), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", required=True, help="prefix of .en, .de and .align")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--details", action="store_true", help="add a row per head")
    options = parser.parse_args()
    file, reason = choose_model(options.model)
    loaded = load_model(file)
    model, vocab = loaded.model, loaded.tgt_vocab
    texts = [Path(f"{options.data}.{end}").read_text(encoding="utf-8").split("\n") for end in ("en", "de", "align")]
    sources, targets, aligned = (text[: options.lines] for text in texts)
    if not aligned[-1]:
        sources, targets, aligned = sources[:-1], targets[:-1], aligned[:-1]
    gold = [{(int(i), int(j)) for i, j in (link.split("-") for link in line.split())} for line in aligned]
    # A second EOS, so that there is also a position whose input is the last subword.
    pairs: list[SubwordPair] = []
    words: list[Words] = []
    for source, target in zip(sources, targets, strict=True):
        src_ids, tgt_ids = loaded.src_vocab.encode(source), vocab.encode(target)
        pairs.append((src_ids, [*tgt_ids, EOS_ID, EOS_ID]))
        words.append((words_of_line(source, src_ids, loaded.src_vocab), words_of_line(target, tgt_ids, vocab)))
    layers, heads = model.config.decoder_layers, model.config.heads
    seen: list[NDArray[np.float64]] = [np.empty(0)] * len(pairs)  # [layers, H, T, S] per pair
    with torch.inference_mode():
        for rows, batch in forced_batches(pairs, 4000, model.device):
            every = torch.stack(cross_attention(model, batch))
            for b, number in enumerate(rows):
                seen[number] = every[:, b, :, :, : len(pairs[number][0])].double().numpy()
        found = sorted(attention([model], [1.0], pairs, 4000))
    print(f"{file} ({reason}): {layers} decoder layers of {heads} heads; {len(pairs)} pairs; AER in per cent")
    usual = alignments.ENOUGH
    for enough in sorted({usual, *OTHERS}):
        alignments.ENOUGH = enough
        rate = error_rate([set(links(attention_TS, *words[i])) for i, attention_TS in found], gold)
        print(f"with ENOUGH {enough:<4}{rate:6.1f}{', as in translate --alignments' if enough == usual else ''}")
    alignments.ENOUGH = usual
    print()
    print(f"{'':<28}{'target':>10}{'source':>10}{'union':>10}{'common':>10}")
    for shift, which in enumerate(("predicting", "as input")):
        choices = {f"layer {n}": [n - 1] for n in range(1, layers + 1)}
        choices["upper half"] = list(range(layers - max(1, layers // 2), layers))
        choices["all layers"] = list(range(layers))
        for name, chosen in choices.items():
            row(f"{which}: {name}", [a[chosen].mean((0, 1))[shift:] for a in seen], words, gold)
        for layer in range(layers if options.details else 0):
            for head in range(heads):
                name = f"{which}: layer {layer + 1} head {head + 1}"
                row(name, [a[layer, head, shift:] for a in seen], words, gold)


if __name__ == "__main__":
    main()
