"""What a model's sqrt(D) and residuals do, measured on sentence pairs: questions 3 and 6 of README.md.

    python recipes/sharing/scale.py MODEL SRC TGT [--pairs 200]

Of the weights as they are, and as they were drawn before training: the variance of a scaled embedding's elements
and of the positions that are added to it, and of the logits. Of each decoder layer: how much of what leaves the
cross-attention sublayer comes through its residual and how much from the attention. With y = x + f they are
<x, y> / <y, y> and <f, y> / <y, y>, which sum to 1; beside them the lengths |x| and |f|, means over target positions.
"""

from __future__ import annotations

import argparse
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vtrans.checkpoint import LoadedModel, choose_model, load_model
from vtrans.logprob import Pair, forced_batches, hidden
from vtrans.model import Transformer, make_model
from vtrans.text import open_bytes, read_lines
from vtrans.vocab import EOS_ID


def pairs_of(loaded: LoadedModel, src: Path, tgt: Path, count: int) -> list[Pair]:
    sides = []
    for path, vocab in ((src, loaded.src_vocab), (tgt, loaded.tgt_vocab)):
        with open_bytes(path) as stream:
            sides.append(vocab.encode_batch(list(islice(read_lines(stream, str(path)), count))))
    return [(source, (*target, EOS_ID)) for source, target in zip(*sides, strict=True) if source and target]


def variances(model: Transformer, pairs: list[Pair]) -> dict[str, float]:
    """Element variances over the real target positions."""
    inputs, outputs = [], []
    for batch in forced_batches(pairs, 2048, model.device):
        inputs.append(model.tgt_embedding(batch.tgt_in_BT).flatten(0, 1)[batch.real_N])
        logits = model.logits(hidden(model, batch))
        outputs.append(logits[:, [i for i in range(logits.shape[1]) if i != model.pad_id]])
    longest = max(len(target) for _, target in pairs)
    return {
        "embedding": float(torch.cat(inputs).var()),
        "positions": float(model.tgt_positions(longest).var()),
        "logits": float(torch.cat(outputs).var()),
    }


def residual_shares(model: Transformer, pairs: list[Pair]) -> list[dict[str, float]]:
    """For each decoder layer the shares of the residual and of cross-attention, and their mean lengths."""
    layers: list[Any] = list(model.decoder.layers)
    seen: list[dict[str, Tensor]] = [{} for _ in layers]
    sums = [dict.fromkeys(("residual", "attention", "|x|", "|f|"), 0.0) for _ in layers]

    def keep(number: int, name: str, tensor: Tensor) -> None:
        seen[number][name] = tensor

    handles = []
    for number, layer in enumerate(layers):
        handles.append(
            layer.cross_attention_residual.register_forward_pre_hook(lambda _, args, n=number: keep(n, "x", args[0]))
        )
        handles.append(layer.cross_attention.register_forward_hook(lambda _, args, out, n=number: keep(n, "f", out)))
    positions = 0
    for batch in forced_batches(pairs, 2048, model.device):
        hidden(model, batch)
        positions += len(batch.real_N)
        for number, parts in enumerate(seen):
            x, f = (parts[name].flatten(0, 1)[batch.real_N].double() for name in ("x", "f"))
            y = x + f
            for key, values in (
                ("residual", (x * y).sum(1) / (y * y).sum(1)),
                ("attention", (f * y).sum(1) / (y * y).sum(1)),
                ("|x|", x.norm(dim=1)),
                ("|f|", f.norm(dim=1)),
            ):
                sums[number][key] += float(values.sum())
    for handle in handles:
        handle.remove()
    return [{key: value / positions for key, value in layer.items()} for layer in sums]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("src", type=Path)
    parser.add_argument("tgt", type=Path)
    parser.add_argument("--pairs", type=int, default=200)
    options = parser.parse_args()
    file, _ = choose_model(options.model)
    loaded = load_model(file)
    pairs = pairs_of(loaded, options.src, options.tgt, options.pairs)
    torch.manual_seed(1)
    sizes = len(loaded.src_vocab), len(loaded.tgt_vocab)
    fresh = make_model(loaded.model.config, *sizes, joint=loaded.joint, pad_id=loaded.model.pad_id).eval()
    loaded.model.eval()
    with torch.inference_mode():
        say(f"{'variance of':12} {'embedding':>10} {'positions':>10} {'logits':>10}")
        for name, model in (("at the start", fresh), ("trained", loaded.model)):
            say(f"{name:12} " + " ".join(f"{value:10.2f}" for value in variances(model, pairs).values()))
        if loaded.model.config.architecture == "decoder-only":
            return
        say(f"\n{'layer':12} {'residual':>10} {'attention':>10} {'|x|':>10} {'|f|':>10}")
        for name, model in (("start", fresh), ("trained", loaded.model)):
            for number, found in enumerate(residual_shares(model, pairs)):
                say(f"{name:8} {number:3} " + " ".join(f"{value:10.2f}" for value in found.values()))


if __name__ == "__main__":
    main()
