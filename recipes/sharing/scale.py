"""Measure the scale of embeddings, logits and residuals on sentence pairs, for two questions in docs/sharing.md.

    python recipes/sharing/scale.py MODEL SRC TGT [--pairs 200]

The first table shows the variance of the elements of the scaled embeddings, of the positions that are added to them,
and of the logits. The second table shows, for each decoder layer, how much of the output y = x + f of the
cross-attention sublayer comes from its residual x and how much from the attention f: <x, y> / <y, y> and
<f, y> / <y, y>, which sum to 1, and the lengths |x| and |f|. All are means over target positions. If the model has no
such residual, y = f. Both tables compare the trained model with freshly initialised weights.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vtrans.checkpoint import LoadedModel, load_model
from vtrans.console import Console
from vtrans.engines.forced import forced_batches
from vtrans.errors import InputError, VtransError
from vtrans.model import Transformer
from vtrans.search.decoder import SubwordPair
from vtrans.storage.run_folder import choose_model
from vtrans.text.lines import open_bytes, read_lines
from vtrans.text.vocabulary import EOS_ID


def pairs_of(loaded: LoadedModel, src: Path, tgt: Path, count: int) -> list[SubwordPair]:
    """Returns the pairs among the first `count` lines with words on both sides; InputError if there are none."""
    sides = []
    for path, vocab in ((src, loaded.src_vocab), (tgt, loaded.tgt_vocab)):
        with open_bytes(path) as stream:
            sides.append(vocab.encode_batch(list(islice(read_lines(stream, str(path)), count))))
    sources, targets = sides
    if len(sources) != len(targets):
        raise InputError(
            f"{src} and {tgt} must have equal numbers of lines, got {len(sources)} and {len(targets)} among the first "
            f"{count}; line n of one must be the translation of line n of the other."
        )
    both = zip(sources, targets, strict=True)
    pairs: list[SubwordPair] = [(source, (*target, EOS_ID)) for source, target in both if source and target]
    if not pairs:
        raise InputError(
            f"{src} and {tgt} must have words on both sides in some of the first {count} lines; they have none."
        )
    return pairs


def variances(model: Transformer, pairs: Sequence[SubwordPair]) -> dict[str, float]:
    """Returns the element variances over the target positions without padding."""
    inputs, outputs = [], []
    for _, batch in forced_batches(pairs, 2048, model.device):
        inputs.append(model.tgt_embedding(batch.tgt_in_BT).flatten(0, 1)[batch.real_N])
        logits = model.logits(model.hidden(*batch.inputs))
        outputs.append(logits[:, [i for i in range(logits.shape[1]) if i != model.pad_id]])
    longest = max(len(target) for _, target in pairs)
    return {
        "embedding": float(torch.cat(inputs).var()),
        "positions": float(model.tgt_positions(longest).var()),
        "logits": float(torch.cat(outputs).var()),
    }


def residual_shares(model: Transformer, pairs: Sequence[SubwordPair]) -> list[dict[str, float]]:
    """Returns, for each decoder layer, the shares of the residual and the cross-attention, and their mean lengths."""
    layers: list[Any] = list(model.decoder.layers)
    sums = [dict.fromkeys(("residual", "attention", "|x|", "|f|"), 0.0) for _ in layers]
    # The hooks append in the order of the layers. Layers that share a sublayer call its hook once each.
    xs: list[Tensor] = []
    fs: list[Tensor] = []
    handles = [
        around.register_forward_pre_hook(lambda _, args: xs.append(args[0]))
        for around in dict.fromkeys(layer.cross_attention_residual for layer in layers)
    ]
    handles += [
        attention.register_forward_hook(lambda _, args, out: fs.append(out))
        for attention in dict.fromkeys(layer.cross_attention for layer in layers)
    ]
    positions = 0
    for _, batch in forced_batches(pairs, 2048, model.device):
        model.hidden(*batch.inputs)
        positions += len(batch.real_N)
        for layer, *parts in zip(sums, xs, fs, strict=True):
            x, f = (part.flatten(0, 1)[batch.real_N].double() for part in parts)
            through = x if model.config.cross_attention_residual else torch.zeros_like(x)
            y = through + f
            for key, values in (
                ("residual", (through * y).sum(1) / (y * y).sum(1)),
                ("attention", (f * y).sum(1) / (y * y).sum(1)),
                ("|x|", x.norm(dim=1)),
                ("|f|", f.norm(dim=1)),
            ):
                layer[key] += float(values.sum())
        xs.clear()
        fs.clear()
    for handle in handles:
        handle.remove()
    return [{key: value / positions for key, value in layer.items()} for layer in sums]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("src", type=Path)
    parser.add_argument("tgt", type=Path)
    parser.add_argument("--pairs", type=int, default=200)
    options = parser.parse_args()
    try:
        measure(options.model, options.src, options.tgt, options.pairs)
    except VtransError as error:
        Console().error(str(error))
        return error.exit_code
    return 0


def measure(path: Path, src: Path, tgt: Path, count: int) -> None:
    """Prints both tables."""
    file, _ = choose_model(path)
    loaded = load_model(file)
    pairs = pairs_of(loaded, src, tgt, count)
    torch.manual_seed(1)
    sizes = len(loaded.src_vocab), len(loaded.tgt_vocab)
    fresh = Transformer(loaded.model.config, *sizes, joint=loaded.joint, pad_id=loaded.model.pad_id).eval()
    loaded.model.eval()
    with torch.inference_mode():
        say(f"{'variance of':12} {'embedding':>10} {'positions':>10} {'logits':>10}")
        for name, model in (("initial", fresh), ("trained", loaded.model)):
            say(f"{name:12} " + " ".join(f"{value:10.2f}" for value in variances(model, pairs).values()))
        if loaded.model.config.architecture == "decoder-only":
            return
        say(f"\n{'layer':12} {'residual':>10} {'attention':>10} {'|x|':>10} {'|f|':>10}")
        for name, model in (("initial", fresh), ("trained", loaded.model)):
            for number, found in enumerate(residual_shares(model, pairs)):
                say(f"{name:8} {number:3} " + " ".join(f"{value:10.2f}" for value in found.values()))


if __name__ == "__main__":
    sys.exit(main())
