"""Folders of other programs with small random models, shared by the tests of imports and exports."""

import io
import json
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from safetensors.torch import save_file

from vtrans.apps.interop.huggingface.exporter import normalization_table
from vtrans.apps.interop.weights import HUGGING_FACE, layer_weights
from vtrans.config import ModelConfig

TEXT = ["a dog sees a cat", "the cat runs in the park", "two dogs sleep", "the old man hears me"] * 5
TARGET_TEXT = ["ein Hund sieht eine Katze", "die Katze rennt im Park", "zwei Hunde schlafen", "der alte Mann"] * 5
SCALE, EOS_BIAS = 0.1, 1.5  # with these and seed 2, translations end at various lengths
CONFIG: dict[str, Any] = {
    "architectures": ["MarianMTModel"],
    "model_type": "marian",
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "max_position_embeddings": 64,
    "activation_function": "swish",
    "scale_embedding": True,
    "static_position_embeddings": True,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
    "num_beams": 4,
    "max_length": 64,
    "is_encoder_decoder": True,
}


def sentencepiece_model(text: list[str], size: int = 50) -> bytes:
    """A SentencePiece model with its own special ids, as other programs train them."""
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=stream, model_type="unigram", vocab_size=size,
        hard_vocab_limit=False, minloglevel=2, normalization_rule_name="identity",
    )  # fmt: skip
    return stream.getvalue()


def pieces_of(spm: bytes) -> list[str]:
    model = sentencepiece.SentencePieceProcessor()
    model.LoadFromSerializedProto(spm)
    return [model.id_to_piece(i) for i in range(3, model.get_piece_size())]


def hugging_face_folder(folder: Path, *, seed: int = 2, separate: bool = False, **changes: Any) -> Path:
    """A Marian folder with random weights, of which EOS is likely enough that translations end. `changes` are those of
    config.json; None removes a key."""
    folder.mkdir(parents=True)
    spms = {"source.spm": sentencepiece_model(TEXT), "target.spm": sentencepiece_model(TARGET_TEXT)}
    for name, data in spms.items():
        (folder / name).write_bytes(data)
    src, tgt = (pieces_of(data) for data in spms.values())
    tables = (
        {"vocab.json": src[:-2], "target_vocab.json": tgt} if separate else {"vocab.json": [*src[:-2], ">>de<<", *tgt]}
    )
    sizes = []
    for name, pieces in tables.items():
        # Transformers has one padding id for both sides.
        ordinary = dict.fromkeys(pieces)
        whole = ["</s>", "<unk>", "<pad>", *ordinary] if separate else ["</s>", "<unk>", *ordinary, "<pad>"]
        (folder / name).write_text(json.dumps({piece: i for i, piece in enumerate(whole)}))
        sizes.append(len(whole))
    pad = 2 if separate else sizes[-1] - 1
    config = CONFIG | {
        "vocab_size": sizes[0],
        "decoder_vocab_size": sizes[-1],
        "share_encoder_decoder_embeddings": not separate,
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "bad_words_ids": [[pad]],
    }
    config = {key: value for key, value in (config | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = {
        "source_lang": "en",
        "target_lang": "de",
        "separate_vocabs": separate,
        "tokenizer_class": "MarianTokenizer",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    save_file(_weights(config, sizes, seed, separate), folder / "model.safetensors", {"format": "pt"})
    return folder


def _weights(config: dict[str, Any], sizes: list[int], seed: int, separate: bool) -> dict[str, torch.Tensor]:
    numbers = torch.Generator().manual_seed(seed)
    D = config["d_model"]
    shape = ModelConfig(
        d_model=D, d_ff=config["encoder_ffn_dim"], heads=config["encoder_attention_heads"],
        encoder_layers=config["encoder_layers"], decoder_layers=config["decoder_layers"],
    )  # fmt: skip

    def normal(*shape: int, scale: float) -> torch.Tensor:
        return torch.randn(*shape, generator=numbers) * scale

    weights = {}
    for _, parts, size in layer_weights(shape, HUGGING_FACE):
        for name in parts:
            scale = 0.3 if len(size) == 1 else 2.0 * D**-0.5
            weights[name] = normal(*size, scale=scale) + ("norm.weight" in name)
            if "decoder" in name and "final_layer_norm" in name:
                weights[name] += normal(*size, scale=1.0)  # else a model with one matrix repeats its last subword
    if not separate:
        weights["model.shared.weight"] = normal(sizes[0], D, scale=SCALE)
        weights["model.shared.weight"][config["pad_token_id"]] = 0
    else:
        src, tgt, _ = HUGGING_FACE.of_tables("none").values()
        weights[src], weights[tgt] = (normal(size, D, scale=SCALE) for size in sizes)
        weights[tgt][config["pad_token_id"]] = 0
    weights["final_logits_bias"] = normal(1, sizes[-1], scale=0.5)
    weights["final_logits_bias"][0, 0] += EOS_BIAS + separate * 1.1
    return weights


M2M100_CODES = ("en", "ha", "is", "ja", "cs", "ru", "zh", "de")  # those that transformers calls wmt21
MULTILINGUAL: dict[str, Any] = {key: value for key, value in CONFIG.items() if key in {
    "d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim", "encoder_attention_heads",
    "decoder_attention_heads", "max_position_embeddings",
}}  # fmt: skip


def multilingual_folder(
    folder: Path, *, m2m100: bool = False, seed: int = 3, shards: bool = False, **changes: Any
) -> Path:
    """A folder of NLLB or M2M100 with random weights and a tokenizer of a few languages. `changes` are those of
    config.json."""
    import transformers
    from transformers.tokenization_utils_base import generate_merges

    folder.mkdir(parents=True)
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*TEXT, *TARGET_TEXT]), model_writer=stream, model_type="bpe", vocab_size=90,
        hard_vocab_limit=False, minloglevel=2, normalization_rule_name="nmt_nfkc",
    )  # fmt: skip
    spm = stream.getvalue()
    (folder / "sentencepiece.bpe.model").write_bytes(spm)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *pieces_of(spm)]
    ids = {piece: i for i, piece in enumerate(pieces)}
    codes = [f"__{code}__" for code in M2M100_CODES] if m2m100 else ["eng_Latn", "deu_Latn", "fra_Latn"]
    if m2m100:
        (folder / "vocab.json").write_text(json.dumps(ids))
        settings: dict[str, Any] = {"tokenizer_class": "M2M100Tokenizer", "additional_special_tokens": codes}
        settings |= {"language_codes": "wmt21"}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    else:
        special: dict[str, Any] = {"extra_special_tokens": codes, "src_lang": "eng_Latn"}
        special["_spm_precompiled_charsmap"] = normalization_table(spm)
        merges = generate_merges(ids)
        transformers.NllbTokenizer(vocab=ids, merges=merges, **special).save_pretrained(folder)
    config = transformers.M2M100Config(**MULTILINGUAL | {"vocab_size": len(pieces) + len(codes) + 8} | changes)
    torch.manual_seed(seed)
    model = transformers.M2M100ForConditionalGeneration(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            scale = 0.3 if weight.ndim == 1 else 0.25 if "shared" in name or "embed" in name else 0.4
            weight.copy_(torch.randn_like(weight) * scale + ("norm.weight" in name))
        towards = model.model.decoder.layer_norm.bias  # EOS is likely enough that translations end
        model.lm_head.weight[2] += 2 * towards / towards.dot(towards)
        model.lm_head.weight[1] = 0  # a <pad> in a translation would have no position in transformers
    model.save_pretrained(folder, max_shard_size="20KB" if shards else "1GB")
    return folder
