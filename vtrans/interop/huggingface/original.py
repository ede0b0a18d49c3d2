"""Runs a Hugging Face model with transformers, an optional package, to compare an import or an export with it."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from vtrans.config import SearchConfig
from vtrans.errors import InputError, VtransError, missing_extra
from vtrans.interop.huggingface.names import STOPS
from vtrans.interop.verification import ROUNDING
from vtrans.text.piece_table import split_language
from vtrans.text.vocabulary import EOS_ID, UNK_ID

BATCH, FORCED_BATCH = 16, 2  # sentences; the logits of a forced batch are in memory at once
Item = TypeVar("Item")
Ids = Sequence[int | None]
"""The id in Hugging Face of each of our ids, or None."""


def load(folder: Path, src_places: Ids, tgt_places: Ids, direction: tuple[str, int] | None = None) -> TransformersModel:
    """Returns the model of a folder. `direction` is the source language and the forced first token of a multilingual
    one. Raises InputError without transformers."""
    try:
        transformers = importlib.import_module("transformers")
    except ImportError:
        raise missing_extra("transformers is not installed", "huggingface") from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Only classes of the package run: no code of the folder, and no network.
        options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        try:
            model = transformers.AutoModelForSeq2SeqLM.from_pretrained(str(folder), dtype=torch.float32, **options)
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), **options)
        except Exception as error:  # of any kind, for a folder that it cannot read
            words = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
            raise InputError(f"transformers cannot load {folder}: {words}.") from None
    # With it, a translation that reaches its limit would count as finished.
    model.generation_config.forced_eos_token_id = None
    if direction:
        tokenizer.src_lang, model.generation_config.forced_bos_token_id = direction
    return TransformersModel(
        f"transformers {transformers.__version__}", model.eval(), tokenizer, src_places, tgt_places, bool(direction)
    )


class TransformersModel:
    """Implements `verification.Program`. `src_places` and `tgt_places` have its ids of our subwords. If it
    `adds_language`, its tokenizer puts the source language before each line; lines begin with our tag of it."""

    tolerance = ROUNDING

    def __init__(
        self, name: str, model: Any, tokenizer: Any, src_places: Ids, tgt_places: Ids, adds_language: bool = False
    ) -> None:
        self.adds_language = adds_language
        self.name, self.model, self.tokenizer = name, model, tokenizer
        self.src_places, self.tgt_places = src_places, tgt_places
        self.start: int = model.config.decoder_start_token_id
        self.pad: int = model.config.pad_token_id

    def limit(self, src_ids: Sequence[int], tgt_ids: Sequence[int]) -> None:
        """Makes all other subwords impossible. Ids then count these ones."""
        self.src_places, self.tgt_places = (
            [places[id] for id in ids] for places, ids in ((self.src_places, src_ids), (self.tgt_places, tgt_ids))
        )
        projection = self.model.get_output_embeddings()
        absent = torch.full((len(projection.weight),), -torch.inf)
        absent[[place for place in self.tgt_places if place is not None]] = 0.0
        projection.register_forward_hook(lambda module, inputs, logits: logits + absent)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        ids = {place: id for id, place in enumerate(self.src_places)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lines = [split_language(line)[1].lstrip() for line in lines] if self.adds_language else list(lines)
            rows = self.tokenizer(lines)["input_ids"]
        return [[ids.get(place, UNK_ID) for place in places] for places in rows]

    @torch.inference_mode()
    def logprobs(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
        logprobs = []
        for batch in _batches(pairs, FORCED_BATCH):
            targets = [[self.tgt_places[i] for i in target] for _, target in batch]
            inputs, keep = self._padded([source for source, _ in batch])
            begun = [[self.start, *target[:-1]] for target in targets]
            width = max(map(len, begun))
            decoder_input = torch.tensor([[*row, *[self.pad] * (width - len(row))] for row in begun])
            logits = self.model(input_ids=inputs, attention_mask=keep, decoder_input_ids=decoder_input).logits
            for row, target in zip(logits, targets, strict=True):
                row = row[: len(target)]
                logprobs.append((row[range(len(target)), target] - row.logsumexp(-1)).tolist())
        return logprobs

    def translate(self, sources: Sequence[Sequence[int]], search: SearchConfig) -> list[list[int]]:
        settings: dict[str, Any] = {"num_beams": search.beam, "min_length": search.min_length}
        settings |= {"repetition_penalty": search.repetition_penalty}
        settings |= {"num_beam_groups": search.beam_groups, "diversity_penalty": 0.0}
        if search.beam > 1:
            settings |= {"length_penalty": search.alpha, "early_stopping": STOPS[search.stop]}
        return self._generated(sources, search.max_length, **settings)

    def plain(self, sources: Sequence[Sequence[int]], max_length: int) -> list[list[int]]:
        """Returns the translations with the settings of the folder. Raises VtransError if transformers refuses them."""
        try:
            return self._generated(sources, max_length)
        except Exception as error:  # of any kind, such as for settings that need code from the network
            words = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
            raise VtransError(f"{self.name} cannot translate with the settings of the folder: {words}.") from None

    @torch.inference_mode()
    def _generated(self, sources: Sequence[Sequence[int]], longest: int, **settings: Any) -> list[list[int]]:
        """Returns translations of at most `longest` subwords, without sampling. `settings` go before the folder's."""
        ids = {place: id for id, place in enumerate(self.tgt_places)}
        settings |= {"do_sample": False, "max_new_tokens": longest, "max_length": None}
        translations = []
        for batch in _batches(sources, BATCH):
            inputs, keep = self._padded(batch)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rows = self.model.generate(input_ids=inputs, attention_mask=keep, **settings).tolist()
            tokens = [[ids[place] for place in row[1 : 1 + longest]] for row in rows]
            translations += [row[: row.index(EOS_ID)] if EOS_ID in row else row for row in tokens]
        return translations

    def _padded(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Returns the ids of a batch in Hugging Face [B, S], and a mask with 1 where they are not padding."""
        rows = [[self.src_places[i] for i in source] for source in sources]
        width = max(map(len, rows))
        inputs = torch.tensor([[*row, *[self.pad] * (width - len(row))] for row in rows])
        keep = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        return inputs, keep


def _batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[i : i + size] for i in range(0, len(items), size))
