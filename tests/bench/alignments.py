"""Print the alignment error rate of the links of `vtrans translate --alignments`, compared with gold alignments.

    python tests/bench/alignments.py --model run --data gold/test [--lines 1000]

Feeds each given translation through the model and compares the links with PREFIX.align (Pharaoh format, over the words
between spaces), with ENOUGH and with other values. `gold_links.py` writes such text, and text to train the model on.
AER is that of Och and Ney (2003), with the sure links equal to the possible ones: 1 - 2 |A & G| / (|A| + |G|), in per
cent.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from vtrans.engines import alignments
from vtrans.engines.alignments import links
from vtrans.engines.cross_attention import attention
from vtrans.model.checkpoint import load_model
from vtrans.search.decoder import SubwordPair
from vtrans.storage.run_folder import choose_model
from vtrans.text.vocabulary import EOS_ID
from vtrans.text.words import words_of_line

Found = set[tuple[int, int]]
OTHERS = (0.0, 0.05, 0.15, 0.2, 0.3, 0.5, 1.0)  # values of ENOUGH


def error_rate(found: list[Found], gold: list[Found]) -> float:
    common = sum(len(a & g) for a, g in zip(found, gold, strict=True))
    return 100 - 200 * common / (sum(map(len, found)) + sum(map(len, gold)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", required=True, help="prefix of .en, .de and .align")
    parser.add_argument("--lines", type=int, default=1000)
    options = parser.parse_args()
    file, reason = choose_model(options.model)
    loaded = load_model(file)
    texts = (Path(f"{options.data}.{end}").read_text(encoding="utf-8") for end in ("en", "de", "align"))
    sources, targets, aligned = (text.split("\n")[:-1][: options.lines] for text in texts)
    gold = [{(int(i), int(j)) for i, j in (link.split("-") for link in line.split())} for line in aligned]
    pairs: list[SubwordPair] = []
    words: list[tuple[list[int], list[int]]] = []
    for source, target in zip(sources, targets, strict=True):
        src_ids, tgt_ids = loaded.src_vocab.encode(source), loaded.tgt_vocab.encode(target)
        pairs.append((src_ids, [*tgt_ids, EOS_ID]))
        src_words = words_of_line(source, src_ids, loaded.src_vocab)
        words.append((src_words, words_of_line(target, tgt_ids, loaded.tgt_vocab)))
    with torch.inference_mode():
        seen = dict(attention([loaded.model], [1.0], pairs, 4000))
    print(f"{file} ({reason}): {len(pairs)} pairs; AER in per cent")
    usual = alignments.ENOUGH
    for enough in sorted({usual, *OTHERS}):
        alignments.ENOUGH = enough
        rate = error_rate([set(links(seen[i], *both)) for i, both in enumerate(words)], gold)
        print(f"with ENOUGH {enough:<4}{rate:6.1f}{', as in translate --alignments' if enough == usual else ''}")


if __name__ == "__main__":
    main()
