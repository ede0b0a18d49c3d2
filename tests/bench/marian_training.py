"""Trains transformers' Marian model on a data folder of vtrans, for as long as a run of vtrans took.

The model has the shape of the recipe, one matrix for embeddings and projection, and the usual settings of its kind:
post-norm, sinusoidal positions, Adam (0.9, 0.98), inverse-sqrt with a warm-up, label smoothing 0.1, gradients clipped
to a norm of 1. The checkpoint with the lowest validation loss translates with a beam of 4.

    python tests/bench/marian_training.py data --minutes 12 --input test.en > test.hyp.fr
"""

import argparse
import copy
import dataclasses
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel

from vtrans.config import ModelConfig
from vtrans.data.store import DataFolder, TokenStore
from vtrans.text.lines import lines_in
from vtrans.text.vocabulary import BOS_ID, EOS_ID, PAD_ID
from vtrans.training.recipe import load_recipe

IGNORED = -100  # a label of transformers that has no loss
Pair = tuple[list[int], list[int]]


def marian(config: ModelConfig, vocabulary: int) -> Any:
    """Returns transformers' Marian model of this shape, with one matrix for embeddings and projection."""
    return MarianMTModel(
        MarianConfig(
            vocab_size=vocabulary, d_model=config.d_model, dropout=config.dropout, activation_function="relu",
            encoder_layers=config.encoder_layers, encoder_ffn_dim=config.d_ff, encoder_attention_heads=config.heads,
            decoder_layers=config.decoder_layers, decoder_ffn_dim=config.d_ff, decoder_attention_heads=config.heads,
            scale_embedding=True, max_position_embeddings=512, pad_token_id=PAD_ID, eos_token_id=EOS_ID,
            bos_token_id=BOS_ID, decoder_start_token_id=PAD_ID, forced_eos_token_id=None,
        )
    )  # fmt: skip


def pairs_of(store: TokenStore) -> list[Pair]:
    """Returns the ids of all pairs, each sentence with EOS."""
    return [([*store.src(n).tolist(), EOS_ID], [*store.tgt(n).tolist(), EOS_ID]) for n in range(len(store))]


def batches(pairs: list[Pair], tokens: int, numbers: random.Random) -> Iterator[dict[str, torch.Tensor]]:
    """Yields batches of about `tokens` target tokens of similar lengths, in random order."""
    numbers.shuffle(pairs)
    ordered = sorted(pairs, key=lambda pair: (len(pair[1]), len(pair[0])))
    made, batch = list[list[Pair]](), list[Pair]()
    for pair in ordered:
        if (len(batch) + 1) * len(pair[1]) > tokens:
            made.append(batch)
            batch = []
        batch.append(pair)
    made.append(batch)
    numbers.shuffle(made)
    for batch in made:
        src = padded([src for src, _ in batch], PAD_ID)
        labels = padded([tgt for _, tgt in batch], IGNORED)
        yield {"input_ids": src, "attention_mask": (src != PAD_ID).long(), "labels": labels}


def padded(rows: list[list[int]], value: int) -> torch.Tensor:
    """Returns the rows as a matrix, with `value` after the shorter ones."""
    width = max(map(len, rows))
    return torch.tensor([row + [value] * (width - len(row)) for row in rows])


def loss_of(model: Any, batch: dict[str, torch.Tensor], smoothing: float) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(**batch).logits
    return torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED, label_smoothing=smoothing
    )


def train(model: Any, data: Path, options: argparse.Namespace) -> None:
    """Trains for the time of one process, and leaves the weights of the best validation in the model."""
    numbers = random.Random(options.seed)
    folder = DataFolder.open(data)
    pairs, valid = pairs_of(folder.train), pairs_of(folder.valid)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.rate, betas=(0.9, 0.98), eps=1e-9)
    ends, steps, best, weights = time.process_time() + 60 * options.minutes, 0, float("inf"), model.state_dict()
    while time.process_time() < ends:
        model.train()
        for batch in batches(pairs, options.tokens, numbers):
            steps += 1
            scale = min(steps / options.warmup, (options.warmup / steps) ** 0.5)
            optimizer.param_groups[0]["lr"] = options.rate * scale
            optimizer.zero_grad()
            loss_of(model, batch, 0.1).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if time.process_time() > ends:
                break
        model.eval()
        with torch.no_grad():
            losses = [loss_of(model, batch, 0.0).item() for batch in batches(valid, options.tokens, numbers)]
        mean = sum(losses) / len(losses)
        if mean < best:
            best, weights = mean, copy.deepcopy(model.state_dict())
        print(f"update {steps}  validation loss {mean:.3f}", file=sys.stderr)
    model.load_state_dict(weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="data folder of vtrans with a joint vocabulary")
    parser.add_argument("--minutes", type=float, required=True, help="processor time of the training")
    parser.add_argument("--input", type=Path, required=True, help="text to translate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=1536, help="target tokens of a batch, with padding")
    parser.add_argument("--rate", type=float, default=0.002, help="peak of the learning rate")
    parser.add_argument("--warmup", type=int, default=400, help="updates until the peak")
    parser.add_argument("--dropout", type=float, default=0.15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    vocabulary = DataFolder.open(options.data).src_vocab
    recipe = load_recipe("narrow")
    model = marian(dataclasses.replace(recipe.model, dropout=options.dropout), len(vocabulary))
    train(model, options.data, options)
    model.eval()
    for line in lines_in(options.input):
        ids = torch.tensor([[*vocabulary.encode(vocabulary.as_source(line)), EOS_ID]])
        with torch.no_grad():
            made = model.generate(ids, num_beams=4, max_new_tokens=ids.shape[1] + 50, bad_words_ids=[[PAD_ID]])
        print(vocabulary.decode([token for token in made[0].tolist() if token not in (PAD_ID, EOS_ID)]))


if __name__ == "__main__":
    main()
