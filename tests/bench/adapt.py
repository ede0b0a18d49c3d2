"""Time and memory of adapting a model of OPUS-MT's shape: `python tests/bench/adapt.py FOLDER TEXT.en TEXT.de`.

The model has 75 million random weights: Marian's base network with a vocabulary of 58,101 pieces, of which 16,000 are
learned from the two files. Its first `--pairs` pairs are adapted to in one process of `--threads` threads, with as many
old ones. Random weights learn little, so that all epochs are made, which is the longest case.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from nllb import filled, measured

from vtrans.checkpoint import LoadedModel, save_model, weights_of
from vtrans.config import ModelConfig, SearchConfig
from vtrans.data.preparation.learn_vocabulary import learn
from vtrans.model import Transformer, count_parameters
from vtrans.text.languages import Languages
from vtrans.text.vocabulary import EOS_ID, PAD_ID, Vocabulary

PIECES, LEARNED = 58_101, 16_000
SHAPE = ModelConfig(
    d_model=512, d_ff=2048, heads=8, encoder_layers=6, decoder_layers=6, norm="post", activation="swish",
    positions="sinusoidal", tie="src-tgt-softmax", projection_bias=True,
)  # fmt: skip


def write(file: Path, lines: list[str]) -> None:
    """Writes the model. The last norm keeps it from repeating its last subword, and the end of a sentence is likely
    enough that translations end."""
    learned = learn(lines, size=LEARNED, kind="bpe", coverage=0.9999, normalization="nmt_nfkc")
    vocab = Vocabulary(filled(learned.proto, PIECES))
    torch.manual_seed(1)
    model = Transformer(SHAPE, len(vocab), len(vocab), joint=True, pad_id=PAD_ID)
    with torch.no_grad():
        weights_of(model)["projection.bias"][EOS_ID] = 3.5
        gain_D = weights_of(model)["decoder.layers.5.feed_forward_residual.norm.weight"]
        gain_D *= 1 - 2 * torch.randint(2, gain_D.shape)
    search = SearchConfig(max_source=512)
    save_model(file, LoadedModel(model.eval(), vocab, vocab, search, {"step": 0}, None, [Languages("en", "de")]))
    print(f"{count_parameters(model):,} weights, {file.stat().st_size / 1e6:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", type=Path, nargs=2)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--updates", type=int, help="at most; five epochs by default")
    args = parser.parse_args()
    texts = [text.read_text(encoding="utf-8").split("\n")[:-1] for text in args.texts]
    file = args.folder / "model.safetensors"
    if not file.exists():
        args.folder.mkdir(parents=True, exist_ok=True)
        write(file, [line for lines in texts for line in lines[:50_000]])
    options: list[str | Path] = []
    for name, first in (("", 0), ("old-", args.pairs)):
        for side, language, lines in zip(("src", "tgt"), ("en", "de"), texts, strict=True):
            text = args.folder / f"{name}text.{language}"
            text.write_text("".join(f"{line}\n" for line in lines[first : first + args.pairs]), encoding="utf-8")
            options += [f"--{name}{side}", text]
    threads = ("--processes", 1, "--threads", args.threads)
    updates = ("--set", f"train.max_steps={args.updates}") if args.updates else ()
    measured("adapt", file, *options, "--out", args.folder / f"adapted-{args.pairs}", *threads, *updates)


if __name__ == "__main__":
    main()
