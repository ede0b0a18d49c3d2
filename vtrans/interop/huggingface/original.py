"""Runs a Hugging Face model with transformers, an optional package, to compare an import or an export with it."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vtrans.config import SearchConfig
from vtrans.errors import InputError, VtransError, need_packages
from vtrans.interop.comparison import ROUNDING, at_a_time
from vtrans.interop.huggingface.names import STOPS
from vtrans.processes.memory import release_memory
from vtrans.text.piece_table import split_language
from vtrans.text.vocabulary import EOS_ID, UNK_ID

BATCH = 16  # sentences
Ids = Sequence[int | None]
"""The id in Hugging Face of each of our ids, or None."""


def check_installed() -> None:
    """Raises InputError without transformers."""
    need_packages("transformers is not installed", "huggingface", "transformers")


def load(folder: Path, src_places: Ids, tgt_places: Ids, direction: tuple[str, int] | None = None) -> TransformersModel:
    """Returns the model of a folder. `direction` is the source language and the forced first token of a multilingual
    one. Raises InputError without transformers, and for a folder that it cannot read."""
    check_installed()
    transformers = importlib.import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = _loaded(transformers.AutoModelForSeq2SeqLM, folder, dtype=torch.float32)
    # With it, a translation that reaches its limit would count as finished.
    model.generation_config.forced_eos_token_id = None
    if direction:
        model.generation_config.forced_bos_token_id = direction[1]
    name, language = f"transformers {transformers.__version__}", direction[0] if direction else None
    tokenizer = partial(_loaded, transformers.AutoTokenizer, folder)
    return TransformersModel(name, model.eval(), tokenizer, src_places, tgt_places, language)


def _loaded(kind: Any, folder: Path, **options: Any) -> Any:
    """Returns what a class of transformers reads from a folder. Raises InputError if it cannot read that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Only classes of the package run: no code of the folder, and no network.
            return kind.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False, **options)
        except Exception as error:  # of any kind
            raise InputError(f"transformers cannot load {folder}: {_words(error)}.") from None


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__


class TransformersModel:
    """Implements `comparison.Program`. `src_places` and `tgt_places` have its ids of our subwords. The tokenizer of
    a model of several languages puts `language` before each line, and our lines begin with our tag of it. It is loaded
    for each `encode`, because that of NLLB takes some hundred megabytes."""

    tolerance = ROUNDING

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Callable[[], Any],
        src_places: Ids,
        tgt_places: Ids,
        language: str | None = None,
    ) -> None:
        self.name, self.model, self.tokenizer, self.language = name, model, tokenizer, language
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
        projection.register_forward_hook(lambda module, inputs, logits: logits.add_(absent))

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        ids, tokenizer = {place: id for id, place in enumerate(self.src_places)}, self.tokenizer()
        if self.language:
            tokenizer.src_lang = self.language
            lines = [split_language(line)[1].lstrip() for line in lines]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = tokenizer(list(lines))["input_ids"]
        del tokenizer
        release_memory()
        return [[ids.get(place, UNK_ID) for place in places] for places in rows]

    @torch.inference_mode()
    def logprobs(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
        logprobs = []
        for source, target in pairs:  # one at a time, whose logits are in memory at once
            places = [self.tgt_places[i] for i in target]
            inputs, _ = self._padded([source])
            begun = torch.tensor([[self.start, *places[:-1]]])
            (logits,) = self.model(input_ids=inputs, decoder_input_ids=begun).logits
            rows = zip(logits, places, strict=True)
            logprobs.append([float(row[place] - row.logsumexp(-1)) for row, place in rows])
        return logprobs

    @torch.inference_mode()
    def translate(self, sources: Sequence[Sequence[int]], longest: int, search: SearchConfig | None) -> list[list[int]]:
        """Without a search, raises VtransError if transformers refuses the settings of the folder."""
        # `max_length` of the folder would be ignored with a warning.
        settings: dict[str, Any] = {"do_sample": False, "max_new_tokens": longest, "max_length": None}
        if search:
            settings |= {"num_beams": search.beam, "num_beam_groups": search.beam_groups, "diversity_penalty": 0.0}
            settings |= {"min_length": search.min_length, "repetition_penalty": search.repetition_penalty}
        if search and search.beam > 1:
            settings |= {"length_penalty": search.alpha, "early_stopping": STOPS[search.stop]}
        ids = {place: id for id, place in enumerate(self.tgt_places)}
        beams = settings.get("num_beams") or self.model.generation_config.num_beams or 1
        size = min(BATCH, at_a_time(len(self.model.get_output_embeddings().weight), beams))
        translations = []
        for start in range(0, len(sources), size):
            inputs, keep = self._padded(sources[start : start + size])
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    rows = self.model.generate(input_ids=inputs, attention_mask=keep, **settings).tolist()
            except Exception as error:  # of any kind, such as for settings that need code from the network
                raise VtransError(
                    f"{self.name} cannot translate with the folder's settings: {_words(error)}."
                ) from None
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
