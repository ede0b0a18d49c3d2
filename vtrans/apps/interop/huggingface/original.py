"""Runs a Hugging Face model with transformers, an optional package, to compare an import or an export with it."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch

from vtrans.apps.interop.comparison import IdPair, Outputs, Program
from vtrans.system.errors import InputError, VtransError, need_packages
from vtrans.system.process import release_memory
from vtrans.text.piece_table import split_language
from vtrans.text.vocabulary import EOS_ID, UNK_ID

Ids = Sequence[int | None]
"""Hugging Face's id for each of our ids, or None."""


class Direction(NamedTuple):
    """The translation direction of a model of M2M100 or NLLB, with the language codes of transformers."""

    src: str
    tgt: str
    forced: int
    """The id in transformers of the first token of translations, the target language's code."""


def transformers() -> Any:
    """Returns the optional package. Raises InputError without it."""
    need_packages("transformers is not installed", "huggingface", "transformers")
    package = importlib.import_module("transformers")
    package.utils.logging.set_verbosity_error()
    package.utils.logging.disable_progress_bar()
    return package


@contextmanager
def _explained(what: str, kind: type[VtransError] = VtransError) -> Iterator[None]:
    """Hides transformers' warnings, and converts its errors to `kind`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except Exception as error:  # of any type, for example for settings that need code from the network
            words = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
            raise kind(f"transformers cannot {what}: {words}.") from None


class TransformersModel(Program):
    """A model run by transformers. `src` and `tgt` map our ids to its ids. With a `direction`, our lines begin with our
    tag of the source language."""

    def __init__(self, folder: Path, src: Ids, tgt: Ids, direction: Direction | None = None) -> None:
        self._package = transformers()
        self.name = f"transformers {self._package.__version__}"
        self._folder, self._src, self._tgt = folder, src, tgt
        self._direction = direction

    def _loaded(self, kind: str, **options: Any) -> Any:
        """Returns the object that a transformers class loads from the folder. Raises InputError if that fails."""
        # Run only the package's own classes: no code from the folder, and no network access.
        options |= {"local_files_only": True, "trust_remote_code": False}
        with _explained(f"load {self._folder}", InputError):
            return getattr(self._package, kind).from_pretrained(str(self._folder), **options)

    @cached_property
    def model(self) -> Any:
        model = self._loaded("AutoModelForSeq2SeqLM", dtype=torch.float32).eval()
        # With a forced EOS, a translation that reaches its limit would count as finished.
        model.generation_config.forced_eos_token_id = None
        if self._direction:
            model.generation_config.forced_bos_token_id = self._direction.forced
        return model

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        ids, tokenizer = {place: id for id, place in enumerate(self._src)}, self._loaded("AutoTokenizer")
        if self._direction:
            tokenizer.src_lang = self._direction.src
            lines = [split_language(line)[1].lstrip() for line in lines]
        with _explained("split the sentences"):
            rows = tokenizer(list(lines))["input_ids"]
        del tokenizer  # NLLB's takes some hundred megabytes
        release_memory()
        return [[ids.get(place, UNK_ID) for place in places] for places in rows]

    @torch.inference_mode()
    def logprobs(self, pairs: Sequence[IdPair]) -> list[list[float]]:
        logprobs, start = [], self.model.config.decoder_start_token_id
        for source, target in pairs:  # one at a time, because all logits of a target are in memory
            places = [self._tgt[i] for i in target]
            begun = torch.tensor([[start, *places[:-1]]])
            (logits,) = self.model(input_ids=self._input(source), decoder_input_ids=begun).logits
            logprobs.append(logits.log_softmax(-1)[range(len(places)), places].tolist())
        return logprobs

    @torch.inference_mode()
    def translate(self, ours: Outputs) -> list[list[int]]:
        ids, translations = {place: id for id, place in enumerate(self._tgt)}, []
        for source, longest in zip(ours.sources, ours.limits, strict=True):
            inputs = self._input(source)
            # The folder's `max_length` would be ignored with a warning.
            options = {"do_sample": False, "max_new_tokens": longest, "max_length": None}
            with _explained("translate with the folder's settings"):
                (row,) = self.model.generate(inputs, attention_mask=torch.ones_like(inputs), **options).tolist()
            tokens = [ids[place] for place in row[1 : 1 + longest]]
            translations.append(tokens[: tokens.index(EOS_ID)] if EOS_ID in tokens else tokens)
        return translations

    def _input(self, source: Sequence[int]) -> torch.Tensor:
        return torch.tensor([[self._src[i] for i in source]])
