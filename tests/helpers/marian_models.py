"""Marian models for tests, and Marian's network in NumPy, both written from Marian's own definitions."""

import functools
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from drawn import seeded_arrays
from numpy.typing import NDArray

Array = NDArray[Any]
Sublayer = Callable[[Array], Array]
CONFIG = "special:model.yml"
D, F, HEADS = 8, 12, 2
POST = {"transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-top": ""}
PRE = {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"}
SETTINGS: dict[str, Any] = {
    "type": "transformer",
    "dim-emb": D,
    "transformer-dim-ffn": F,
    "transformer-heads": HEADS,
    "enc-depth": 2,
    "dec-depth": 1,
    "transformer-ffn-activation": "swish",
    "tied-embeddings-all": "true",
    "version": "v1.12.42 b7be0e964 2025-05-24 22:34:42 -0700",
    **POST,
}
TEXTS = {
    "source": ["a dog sees a cat", "the cat runs", "two dogs sleep"],
    "target": ["ein Hund sieht eine Katze", "die Katze rennt", "zwei Hunde schlafen"],
}


@functools.cache
def spm(side: str = "both", size: int = 40) -> bytes:
    """A SentencePiece model as Marian trains it, with bytes for unknown characters on the side "bytes"."""
    lines = TEXTS.get(side, [line for lines in TEXTS.values() for line in lines])
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 3), model_writer=stream, bos_id=-1, eos_id=0, unk_id=1,
        vocab_size=size + 256 * (side == "bytes"), byte_fallback=side == "bytes", hard_vocab_limit=False,
        minloglevel=2,
    )  # fmt: skip
    return stream.getvalue()


def size_of(model: bytes) -> int:
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    return int(processor.get_piece_size())


def shapes(settings: dict[str, Any], src: int, tgt: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The tensors of a Marian Transformer."""
    pre = settings["transformer-preprocess"] == "n"
    end = "_pre" if pre else ""
    for stack, depth, attentions in (("encoder", "enc-depth", ["self"]), ("decoder", "dec-depth", ["self", "context"])):
        recurrent = stack == "decoder" and settings.get("transformer-decoder-autoreg") == "rnn"
        for layer in range(1, settings[depth] + 1):
            prefix = f"{stack}_l{layer}"
            if recurrent:
                yield from ((f"{prefix}_rnn_W", (D, D)), (f"{prefix}_rnn_Wf", (D, D)), (f"{prefix}_rnn_bf", (1, D)))
                for kind in ("scale", "bias"):
                    yield f"{prefix}_rnn{'' if pre else '_ffn'}_ln_{kind}{end}", (1, D)
            for name in attentions[recurrent:]:
                for letter in "qkvo":
                    yield f"{prefix}_{name}_W{letter}", (D, D)
                    yield f"{prefix}_{name}_b{letter}", (1, D)
                for kind in ("scale", "bias"):
                    yield f"{prefix}_{name}_Wo_ln_{kind}{end}", (1, D)
            for name, shape in (("W1", (D, F)), ("b1", (1, F)), ("W2", (F, D)), ("b2", (1, D))):
                yield f"{prefix}_ffn_{name}", shape
            for kind in ("scale", "bias"):
                yield f"{prefix}_ffn_ffn_ln_{kind}{end}", (1, D)
        if pre:
            for kind in ("scale", "bias"):
                yield f"{stack}_top_ln_{kind}", (1, D)
    tied = {key: settings.get(f"tied-embeddings{key}") == "true" for key in ("-all", "-src", "")}
    if tied["-all"] or tied["-src"]:
        yield "Wemb", (src, D)
    else:
        yield "encoder_Wemb", (src, D)
        yield "decoder_Wemb", (tgt, D)
    if not tied["-all"] and not tied[""]:
        yield "decoder_ff_logit_out_Wt", (tgt, D)
    if settings.get("output-omit-bias") != "true":
        yield "decoder_ff_logit_out_b", (1, tgt)


def yaml(values: dict[str, Any]) -> bytes:
    return "".join(f"{key}: {value}\n" if value != "" else f'{key}: ""\n' for key, value in values.items()).encode()


def folder(
    path: Path,
    changes: dict[str, Any] | None = None,
    *,
    claims: dict[str, Any] | None = None,
    separate: bool = False,
    decoder: dict[str, Any] | None = None,
    arrays: Callable[[dict[str, Array]], None] = lambda arrays: None,
) -> Path:
    """Writes a Marian model with random weights, after `arrays` has changed them. Returns the folder.

    `claims` are settings that the weights do not follow.
    """
    settings = SETTINGS | (changes or {})
    path.mkdir(parents=True, exist_ok=True)
    models = {"src.spm": spm("source", 30), "tgt.spm": spm("target", 35)} if separate else {"vocab.spm": spm()}
    for name, model in models.items():
        (path / name).write_bytes(model)
    sizes = [size_of(models[name]) for name in (list(models) * 2)[:2]]
    settings.setdefault("dim-vocabs", f"[{sizes[0]}, {sizes[1]}]")
    numbers = seeded_arrays(1)
    tensors: dict[str, Array] = {
        name: (numbers.normal(size=shape) * 0.4 + name.endswith(("scale", "scale_pre"))).astype(np.float32)
        for name, shape in shapes(settings, *sizes)
    }
    tensors[CONFIG] = np.frombuffer(yaml({**settings, **(claims or {})}) + b"\0", np.int8)
    arrays(tensors)
    np.savez(path / "model.npz", **tensors)  # type: ignore[arg-type]
    if separate or decoder is not None:
        names = (list(models) * 2)[:2]
        given = {"relative-paths": "true", "models": "[model.npz]", "vocabs": f"[{', '.join(names)}]"}
        (path / "decoder.yml").write_bytes(yaml({**given, **(decoder or {})}))
    return path


def logprobs(path: Path, source: Sequence[int], target: Sequence[int]) -> Array:
    """Marian's log-probabilities [T + 1, V] after each prefix of a target, in float64. Ids are Marian's; the source
    ends in its EOS, the target has none."""
    with np.load(path) as file:
        weights = {name: file[name].astype(np.float64) for name in file.files if name != CONFIG}
        lines = file[CONFIG].tobytes().decode().rstrip("\0\n").split("\n")
    settings = dict(line.split(": ", 1) for line in lines)
    network = _Network(weights, settings)
    hidden = network.decode(network.encode(np.array(source)), np.array(target, dtype=int))
    matrix = weights.get("decoder_ff_logit_out_Wt", network.tgt)
    logits = hidden @ matrix.T + weights.get("decoder_ff_logit_out_b", np.zeros(1))
    logits -= logits.max(-1, keepdims=True)
    found: Array = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return found


class _Network:
    """Marian's Transformer, for one sentence."""

    def __init__(self, weights: dict[str, Array], settings: dict[str, str]) -> None:
        self.w, self.settings = weights, settings
        self.pre = settings["transformer-preprocess"] == "n"
        self.D, self.heads = int(settings["dim-emb"]), int(settings["transformer-heads"])
        self.src = weights["Wemb" if "Wemb" in weights else "encoder_Wemb"]
        self.tgt = weights["Wemb" if "Wemb" in weights else "decoder_Wemb"]

    def embed(self, rows: Array) -> Array:
        p, i = np.arange(len(rows))[:, None], np.arange(self.D // 2)
        angles = p * np.exp(-i * np.log(10000) / (self.D // 2 - 1))
        embedded: Array = rows * np.sqrt(self.D) + np.concatenate([np.sin(angles), np.cos(angles)], 1)
        return embedded

    def encode(self, ids: Array) -> Array:
        x = self.embed(self.src[ids])
        for layer in range(1, int(self.settings["enc-depth"]) + 1):
            p = f"encoder_l{layer}"
            x = self.sublayer(f"{p}_self_Wo", x, self.attention(f"{p}_self"))
            x = self.sublayer(f"{p}_ffn_ffn", x, self.feed_forward(f"{p}_ffn"))
        return self.norm(x, "encoder_top_ln") if self.pre else x

    def decode(self, memory: Array, ids: Array) -> Array:
        x = self.embed(np.concatenate([np.zeros((1, self.D)), self.tgt[ids]]))
        past = np.tril(np.ones((len(x), len(x)), dtype=bool))
        for layer in range(1, int(self.settings["dec-depth"]) + 1):
            p = f"decoder_l{layer}"
            if self.settings.get("transformer-decoder-autoreg") == "rnn":
                x = self.sublayer(f"{p}_rnn" if self.pre else f"{p}_rnn_ffn", x, self.ssru(f"{p}_rnn"))
            else:
                x = self.sublayer(f"{p}_self_Wo", x, self.attention(f"{p}_self", keep=past))
            x = self.sublayer(f"{p}_context_Wo", x, self.attention(f"{p}_context", memory))
            x = self.sublayer(f"{p}_ffn_ffn", x, self.feed_forward(f"{p}_ffn"))
        return self.norm(x, "decoder_top_ln") if self.pre else x

    def norm(self, x: Array, name: str, end: str = "") -> Array:
        centred = x - x.mean(-1, keepdims=True)
        normed: Array = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
        return normed * self.w[f"{name}_scale{end}"] + self.w[f"{name}_bias{end}"]

    def sublayer(self, name: str, x: Array, f: Sublayer) -> Array:
        if self.pre:
            return x + f(self.norm(x, f"{name}_ln", "_pre"))
        return self.norm(x + f(x), f"{name}_ln")

    def attention(self, name: str, memory: Array | None = None, keep: Array | None = None) -> Sublayer:
        """Attention to the memory, or to the sequence itself."""

        def heads(x: Array, letter: str) -> Array:
            projected = x @ self.w[f"{name}_W{letter}"] + self.w[f"{name}_b{letter}"]
            return projected.reshape(len(x), self.heads, self.D // self.heads).swapaxes(0, 1)

        def f(x: Array) -> Array:
            keys = x if memory is None else memory
            scores = heads(x, "q") @ heads(keys, "k").swapaxes(1, 2) / np.sqrt(self.D // self.heads)
            if keep is not None:
                scores = np.where(keep, scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            mixed: Array = (weights @ heads(keys, "v")).swapaxes(0, 1).reshape(len(x), self.D)
            return mixed @ self.w[f"{name}_Wo"] + self.w[f"{name}_bo"]

        return f

    def ssru(self, name: str) -> Sublayer:
        def f(x: Array) -> Array:
            state, out = np.zeros(self.D), []
            for row in x:
                forget = 1 / (1 + np.exp(-(row @ self.w[f"{name}_Wf"] + self.w[f"{name}_bf"][0])))
                state = forget * state + (1 - forget) * (row @ self.w[f"{name}_W"])
                out.append(np.maximum(state, 0))
            return np.array(out)

        return f

    def feed_forward(self, name: str) -> Sublayer:
        def f(x: Array) -> Array:
            h = x @ self.w[f"{name}_W1"] + self.w[f"{name}_b1"]
            h = h / (1 + np.exp(-h)) if self.settings["transformer-ffn-activation"] == "swish" else np.maximum(h, 0)
            outer: Array = h @ self.w[f"{name}_W2"] + self.w[f"{name}_b2"]
            return outer

        return f
