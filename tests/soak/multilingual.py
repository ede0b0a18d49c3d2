"""Imports random models of M2M100 and NLLB, exports them, and compares both with transformers:
`python tests/soak/multilingual.py`.

Each model has other sizes, settings and random weights. Half of the imports have a trimmed vocabulary. Both programs
translate random lines without any option, as `import` compares them: the model file's search and transformers' plain
call. Translations may differ by ties, and where the length limit cut one off. Half of the exports are of models whose
biases have been changed, as by training. It ends at the first other difference.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import foreign
import torch

from vtrans.checkpoint import load_model, weights_of
from vtrans.console import Console
from vtrans.interop.exports import export_model
from vtrans.interop.formats import import_model
from vtrans.interop.trimming import Keep

CHOICES: dict[str, tuple[Any, ...]] = {
    "encoder_layers": (1, 2, 3), "decoder_layers": (1, 2), "scale_embedding": (True, False),
    "activation_function": ("relu", "gelu", "swish"), "tie_word_embeddings": (True, True, False),
    "shards": (True, False), "num_beams": (1, 2, 4, 5), "length_penalty": (1.0, 0.6, 2.0),
    "early_stopping": (True, False), "no_repeat_ngram_size": (0, 0, 2), "max_length": (20, 40, 60),
}  # fmt: skip
WORDS = " ".join([*foreign.TEXT, *foreign.TARGET_TEXT, "\u6771 X 9 Hut? sea!"]).split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=50)
    parser.add_argument("--lines", type=int, default=20, help="translated by each model")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    args = parser.parse_args()
    found = dict.fromkeys(("sentences", "equal", "ties", "cut"), 0)
    for seed in range(args.first, args.first + args.models):
        numbers = random.Random(seed)
        changes = {name: numbers.choice(values) for name, values in CHOICES.items()}
        m2m100 = numbers.random() < 0.5
        direction = {"from": "en", "to": "de"} if m2m100 else {"from": "eng_Latn", "to": "deu_Latn"}
        lines = [" ".join(numbers.choices(WORDS, k=numbers.randint(1, 12))) for _ in range(args.lines)]
        keep = Keep(lines, numbers.choice((0, 20))) if numbers.random() < 0.5 else None
        with tempfile.TemporaryDirectory() as folder:
            hf = foreign.multilingual_folder(Path(folder) / "hf", m2m100=m2m100, seed=seed, **changes)
            try:
                verified = import_model(
                    hf, Path(folder) / "model.safetensors", Console(quiet=True), lines, direction=direction, keep=keep
                )
                loaded = load_model(Path(folder) / "model.safetensors")
                if numbers.random() < 0.5:
                    weights_of(loaded.model)["projection.bias"].data += torch.randn(len(loaded.tgt_vocab)) * 0.1
                export_model(loaded, "huggingface", Path(folder) / "exported", Console(quiet=True), lines)
            except Exception as error:
                sys.exit(f"seed {seed}, {changes}, {'M2M100' if m2m100 else 'NLLB'}, trimmed {bool(keep)}: {error}")
        assert verified is not None, "transformers is not installed"
        assert verified.plain is not None
        for name in found:
            found[name] += getattr(verified.plain, name)
        print(f"{seed - args.first + 1} models:", *(f"{count:,} {name}" for name, count in found.items()), flush=True)


if __name__ == "__main__":
    main()
