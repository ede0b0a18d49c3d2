"""What sets the export of a model of M2M100's shape apart from Marian's: the tokenizer, and no bias of the projection.

M2M100 starts a translation with the row of `</s>` and has one embedding for all uses, without a bias. An import has
both, but after training our start has another row, and each subword a bias. Then the export has separate matrices, of
which the projection contains the bias.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vtrans.checkpoint import LoadedModel
from vtrans.errors import InputError
from vtrans.interop.huggingface import names
from vtrans.interop.huggingface.multilingual import FAST, NLLB_CODE, SPM, Direction, languages_of, positions
from vtrans.interop.huggingface.original import check_installed
from vtrans.text import spm
from vtrans.text.piece_table import is_language
from vtrans.text.vocabulary import SPECIAL_PIECES, Vocabulary


def direction_of(loaded: LoadedModel) -> Direction:
    """Returns the languages of the model. Raises InputError unless it has the vocabulary and the positions of one that
    was imported from M2M100 or NLLB."""
    vocab, config, begin = loaded.tgt_vocab, loaded.model.config, loaded.search.begin
    tags = [*begin, *loaded.tags.values()]
    has_codes = loaded.src_vocab is vocab and len(tags) == 2 and set(tags) <= set(vocab.tags)
    if has_codes and "<pad>" in vocab.pieces and config.positions == "stored" and config.norm == "pre":
        table = positions(config.max_positions, config.d_model, vocab.pieces.index("<pad>"))
        stored = [loaded.model.get_buffer(f"{side}_positions.weight") for side in ("src", "tgt")]
        if all(torch.allclose(table, other, atol=1e-6) for other in stored):
            return languages_of(vocab, {"from": tags[1][2:-2], "to": tags[0][2:-2]})
    raise InputError(
        f"a model that stores search.begin = {list(begin)} can be exported to Hugging Face only if it was imported "
        "from M2M100 or NLLB; translate with the model itself."
    )


def embeddings(loaded: LoadedModel, rows: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Returns the matrices of the subwords, and the last bias of the decoder if they contain the projection's bias.

    `rows` puts a weight in the order of Hugging Face. The last layer of the decoder is a norm, n * g + c, and the mean
    of n is 0. With c = g * (1 - mean(c / g)) added, which changes the logits by a constant for each subword, the mean
    of (n * g + c) / g is 1. So b / (g * D), added to a subword's row, adds b to its logit.
    """
    ours = loaded.model.state_dict()
    bias_V = rows(ours["projection.bias"].float()) if "projection.bias" in ours else torch.zeros(1)
    if loaded.model.config.tie == "src-tgt-softmax" and not bias_V.any():
        return {names.SHARED: rows(ours["src_embedding.weight"].float())}
    tensors = {theirs: rows(ours[name].float()) for name, theirs in names.EMBEDDINGS.items()}
    if bias_V.any():
        gain_D, last_D = (ours[f"decoder.final_norm.{kind}"].float() for kind in ("weight", "bias"))
        added_D = gain_D * (1 - (last_D / gain_D).mean())
        projection_VD = tensors[names.EMBEDDINGS["projection.weight"]]
        bias_V = bias_V - projection_VD @ added_D
        projection_VD += bias_V[:, None] / (gain_D * len(gain_D))
        tensors["model.decoder.layer_norm.bias"] = last_D + added_D
    # Nothing uses it, but transformers expects it.
    return tensors | {names.SHARED: tensors[names.EMBEDDINGS["src_embedding.weight"]]}


def write_tokenizer(
    folder: Path, vocab: Vocabulary, pieces: Sequence[str], direction: Direction, longest: int
) -> dict[str, Any]:
    """Writes the files of the tokenizer but its settings, which it returns. `longest` is the length of a source, with
    its tag and end. Raises InputError for NLLB without transformers, whose package makes a file."""
    codes = [tag[2:-2] for tag in vocab.tags]
    settings = {
        "src_lang": direction.pair.src, "tgt_lang": direction.pair.tgt, "model_max_length": longest, "bos_token": "<s>",
        "eos_token": "</s>", "sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
    }  # fmt: skip
    (folder / SPM).write_bytes(vocab.spm)
    if NLLB_CODE.fullmatch(direction.pair.tgt):
        settings |= {"mask_token": None, "additional_special_tokens": codes}
        ids = {piece[2:-2] if is_language(piece) else piece: id for id, piece in enumerate(pieces)}
        _nllb_tokenizer(ids, spm.normalization_table(vocab.spm), settings).save(str(folder / FAST))
        return {"tokenizer_class": "NllbTokenizer", **settings}
    first = min(id for id, piece in enumerate(pieces) if is_language(piece))
    ids = {piece: id for id, piece in enumerate(pieces[:first])}
    (folder / names.VOCAB).write_text(json.dumps(ids, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    return {
        "tokenizer_class": "M2M100Tokenizer",
        "language_codes": "m2m100" if "af" in codes else "wmt21",
        "additional_special_tokens": [f"__{code}__" for code in codes],
        **settings,
    }


def _nllb_tokenizer(ids: Mapping[str, int], normalization: bytes, settings: Mapping[str, Any]) -> Any:
    """Returns a tokenizer of the package tokenizers. `normalization` is SentencePiece's."""
    check_installed()
    transformers = importlib.import_module("transformers")
    base = importlib.import_module("transformers.tokenization_utils_base")
    special = [*SPECIAL_PIECES, *settings["additional_special_tokens"]]
    merges = base.generate_merges(ids, skip_tokens=special)
    options = {"_spm_precompiled_charsmap": normalization} if normalization else {}
    return transformers.NllbTokenizer(vocab=ids, merges=merges, **settings, **options).backend_tokenizer
