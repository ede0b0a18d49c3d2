"""Reads native Marian models: an `.npz` file of weights and settings, vocabulary files and an optional `decoder.yml`.
Runs Marian to compare an import with it.

Settings and some vocabularies are YAML: one mapping to scalars or lists of scalars.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from torch import Tensor

from vtrans.apps.interop.comparison import IdPair, Imported, Outputs, Program
from vtrans.apps.interop.foreign_files import ForeignTensors, Settings, file_in, ordered, read_bytes, wrong
from vtrans.apps.interop.weights import MARIAN, TIES, read_network
from vtrans.config import ModelConfig, SearchConfig
from vtrans.storage.model_file import Model
from vtrans.system.errors import FileError, InputError, need_packages
from vtrans.system.files import check_path
from vtrans.text.languages import tags_among
from vtrans.text.piece_table import is_byte, pack
from vtrans.text.vocabulary import EOS_ID, SPECIAL_PIECES, UNK_ID, Vocabulary, have_one_table

CONFIG, DECODER = "special:model.yml", "decoder.yml"
EPSILON = 1e-6  # of layer norms; `layerNorm` in layers/generic.h
SIDES = ("source", "target")
LONGEST_CONFIG, LONGEST_LIST = 1 << 20, 1 << 23  # bytes of settings and of a vocabulary in YAML
MODULE = "_pymarian"  # the compiled part of pymarian; the rest needs packages for downloads
_PROGRAM = f"import sys, {MODULE}; sys.exit({MODULE}.main(sys.argv[1:]))"
# One sentence per batch, because Marian limits a translation to a multiple of the longest source in its batch.
_SETTINGS = ("--cpu-threads", "1", "--workspace", "512", "--quiet", "--max-length", "10000", "--mini-batch", "1")
_NOT_MODELS = (".optimizer.npz", ".orig.npz")  # other files that Marian writes next to a model
# The settings of version 1.12 that change the network, each with the values that vtrans supports. An older model that
# lacks a setting behaves as with the first value.
EXPECTED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-ffn-activation": ("relu", "swish"),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-attention-mask": ("default",),
    "transformer-tied-layers": ([],),
    "input-types": ([], ["sequence", "sequence"]),
    "lemma-dim-emb": (0,),
    **dict.fromkeys(("transformer-no-projection", "transformer-no-bias", "transformer-no-affine", "ulr"), (False,)),
    **dict.fromkeys(("transformer-pool", "transformer-disable-position-embeddings", "right-left"), (False,)),
    "transformer-train-position-embeddings": (False,),
}
EXPECTED_OF_EARLIER: dict[str, tuple[Any, ...]] = {"transformer-train-positions": (False,)}
# Further settings that change the network if transformer-decoder-autoreg is rnn.
EXPECTED_OF_RNN: dict[str, tuple[Any, ...]] = {
    "dec-cell": ("ssru",),
    "transformer-rnn-projection": (False,),
    "layer-normalization": (False,),
}
# Marian's names of our sizes.
SIZES = {
    "d_model": "dim-emb", "d_ff": "transformer-dim-ffn", "heads": "transformer-heads", "encoder_layers": "enc-depth",
    "decoder_layers": "dec-depth",
}  # fmt: skip
# The operations of a sublayer by `model.norm`: n normalises, and a adds the residual. Dropout, d, is ignored.
OPERATIONS = tuple(f"transformer-{key}" for key in ("preprocess", "postprocess", "postprocess-top"))
NORMS = {"post": ("", "an", ""), "pre": ("n", "a", "n")}
# Limit for the compression ratio. Trained weights hardly compress, and zeros compress a thousandfold.
MOST_GROWTH = 20
_SCALARS = (str, int, float, bool, type(None))


def read(path: Path) -> Imported:
    """Returns the model of an `.npz` file, or of a folder with one.

    Raises FileError if something is missing or damaged, or if vtrans does not support the network.
    """
    model_file, decoder = _find(path)
    tensors = open_npz(model_file)
    settings = _model_settings(tensors)
    src, tgt, text = _vocabularies(model_file.parent, settings, decoder)
    config = _model_config(settings, have_one_table(src, tgt))
    if not settings.flag("output-omit-bias"):
        tensors.check(MARIAN.tables["projection.bias"], 1, len(tgt.pieces))
    # Marian starts a translation with an embedding of zeros. Its table has no row for it, so our BOS row is zero.
    network = read_network(tensors, MARIAN, config, (src, tgt), ignored=[CONFIG])
    notes = [f"Marian {settings.text('version', 'of an unknown version')}", text]
    # With pre-norm self-attention, Marian's decoder normalises the keys and values of the first step only
    # (`DecoderLayerSelfAttention` and `LayerAttention` in src/models/transformer.h).
    translates = config.norm == "post" or config.autoregression == "ssru"
    if not translates:
        notes.append(
            "Marian's decoder leaves out a norm of pre-norm models after the first word, so its translations differ, "
            "and its scores agree"
        )
    if decoder.name == DECODER and not decoder.values:
        notes.append(f"there is no {DECODER}, so the search settings are Marian's defaults")
    original = partial(MarianModel, model_file, src, tgt, translates=translates)
    search, tags = _search_config(decoder, tgt), tags_among(src.tags)
    model = Model(network, src, tgt, search, {"imported": "Marian"}, tags=tags)
    return Imported("a Marian model", tuple(notes), model, original)


def recognises(path: Path) -> bool:
    """Returns whether a path looks like an `.npz` model of Marian, or a folder with one."""
    return path.suffix == ".npz" or (path.is_dir() and any(_models_in(path)))


def _models_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.npz") if not file.name.endswith(_NOT_MODELS))


def _find(path: Path) -> tuple[Path, Settings]:
    """Returns the model file and the decoder settings, which are empty without a `decoder.yml`."""
    folder, models = (path, _models_in(path)) if path.is_dir() else (path.parent, [path])
    names = [*(f"{model.name}.{DECODER}" for model in models if len(models) == 1), DECODER]
    file = next((folder / name for name in names if (folder / name).is_file()), None)
    given = read_mapping(read_bytes(file, LONGEST_CONFIG), str(file), typed=True) if file else {}
    decoder = Settings(given, str(file or DECODER))
    if path.is_dir():
        models = [_named_file(folder, decoder, name) for name in map(str, decoder.listed("models"))] or models
    if len(models) != 1:
        advice = f"give the path of the .npz file, or name it in {DECODER}"
        raise wrong(folder, "the number of .npz models", "1", len(models), advice)
    return models[0], decoder


def _named_file(folder: Path, decoder: Settings, name: str) -> Path:
    """Returns a file that a `decoder.yml` names. It must be in the folder of the model.

    Without `relative-paths`, names are absolute, or relative to the folder where Marian was started. Models are moved,
    so only the last part of such a name counts.
    """
    return file_in(folder, name if decoder.flag("relative-paths") else name.replace("\\", "/").rpartition("/")[2])


def _model_settings(tensors: ForeignTensors) -> Settings:
    """Returns the settings in the model file. Raises FileError if vtrans does not support the network."""
    model_file, shape = tensors.path, tensors.shapes.get(CONFIG, ())
    if len(shape) != 1 or shape[0] > LONGEST_CONFIG:
        raise FileError(
            f"{model_file} must have Marian's settings, {CONFIG}, in at most {LONGEST_CONFIG:,} bytes; it is not a "
            "model of Marian 1.0 or later."
        )
    data = tensors.read(CONFIG).numpy().tobytes().rstrip(b"\0")
    name = f"{model_file}: {CONFIG}"
    settings = Settings(read_mapping(data, name, typed=True), name)
    is_rnn = settings.get("transformer-decoder-autoreg") == "rnn"
    settings.check(EXPECTED | EXPECTED_OF_EARLIER | (EXPECTED_OF_RNN if is_rnn else {}))
    return settings


def _model_config(settings: Settings, joint: bool) -> ModelConfig:
    ops = tuple(settings.text(key).replace("d", "") for key in OPERATIONS)
    if ops not in NORMS.values():
        raise wrong(settings.name, ", ".join(OPERATIONS), " or ".join(map(str, NORMS.values())), ops)
    sizes = {ours: settings.size(theirs) for ours, theirs in SIZES.items()}
    settings.check({"transformer-decoder-dim-ffn": (0, sizes["d_ff"])})
    every, both, softmax = (settings.flag(f"tied-embeddings{end}") for end in ("-all", "-src", ""))
    tie = TIES[every or both, every or softmax]
    if tie.startswith("src-tgt") and not joint:
        advice = f"name the right vocabularies in {DECODER}"
        raise wrong(settings.name, "the vocabularies", "one, as it ties source and target embeddings", "two", advice)
    values: dict[str, Any] = {
        **sizes,
        "activation": settings.text("transformer-ffn-activation"),
        "norm": next(norm for norm, known in NORMS.items() if known == ops),
        "norm_eps": EPSILON,
        "tie": tie,
        "positions": "marian",
        "projection_bias": True,
        "autoregression": "ssru" if settings.get("transformer-decoder-autoreg") == "rnn" else "self-attention",
    }
    return settings.section(ModelConfig, values)


def _search_config(decoder: Settings, tgt: Vocabulary) -> SearchConfig:
    """Returns the search settings of a `decoder.yml`. Marian divides scores by length ** normalize. It suppresses
    `<unk>` and control characters, which are byte pieces, unless they are allowed."""
    suppressed = [] if decoder.flag("allow-unk") else [SPECIAL_PIECES[UNK_ID]]
    if not decoder.flag("allow-special"):
        suppressed += [piece for code in range(32) if tgt.id_of(piece := f"<0x{code:02X}>") is not None]
    if decoder.number("word-penalty", 0) != 0 and decoder.number("normalize", 0) != 1:
        raise decoder.wrong("word-penalty", "0", "vtrans has none")
    values = {
        "beam": decoder.size("beam-size", 12),
        "alpha": decoder.number("normalize", 0),
        "length_penalty": "length",
        "stop": "shrink",
        "max_ratio": decoder.number("max-length-factor", 3),
        "suppress": tuple(suppressed),
    }
    return decoder.section(SearchConfig, values)


# Vocabularies.


def _vocabularies(folder: Path, settings: Settings, decoder: Settings) -> tuple[Vocabulary, Vocabulary, str]:
    """Returns both vocabularies, the same object twice if they are equal, and a note on how text is split."""
    sizes = settings.listed("dim-vocabs")
    named = [_named_file(folder, decoder, name) for name in map(str, decoder.listed("vocabs"))]
    files = named or sorted(folder.glob("*.spm"))
    if len(files) == 1:
        files *= 2
    if len(files) != 2 or len(sizes) != 2 or (not named and files[0] != files[1]):
        raise FileError(
            f"{folder} must have one .spm vocabulary, or a {Path(decoder.name).name} that names the vocabularies of "
            f"source and target, got {len(named or files)} for a model with {len(sizes)} dim-vocabs."
        )
    src, tgt = (_vocabulary(file, size, side) for file, size, side in zip(files, sizes, SIDES, strict=True))
    text = "SentencePiece splits the text"
    if not (src.spm and tgt.spm):
        text = "there is no SentencePiece model: the text must consist of pieces of the vocabulary with spaces between"
    return (src, src if src.digest == tgt.digest else tgt, text)


def _vocabulary(file: Path, size: Any, side: str) -> Vocabulary:
    """Returns the vocabulary in a file. To split text, a `.yml` vocabulary needs source.spm or target.spm in the same
    folder. Raises FileError unless it has `size` pieces."""
    if file.suffix == ".spm":
        spm, model = read_bytes(file), sentencepiece.SentencePieceProcessor()
        try:
            model.LoadFromSerializedProto(spm)
        except RuntimeError:
            raise FileError(f"{file} is not a SentencePiece model.") from None
        pieces, unk, eos = list(map(model.id_to_piece, range(model.get_piece_size()))), model.unk_id(), model.eos_id()
        if min(unk, eos) < 0:
            raise FileError(f"{file} must have an unknown and an end piece, which Marian needs.")
    elif file.suffix in (".yml", ".yaml"):
        pieces = ordered(read_mapping(read_bytes(file, LONGEST_LIST), str(file), typed=False), size, file)
        unk, eos = (pieces.index(SPECIAL_PIECES[id]) for id in (UNK_ID, EOS_ID))
        beside = file.parent / f"{side}.spm"
        spm = read_bytes(beside) if beside.is_file() else b""
    else:
        raise FileError(f"{file} must be a .spm or .yml vocabulary; vtrans reads no factored or other ones.")
    if size != len(pieces):
        raise FileError(f"{file} must have the {str(size)[:80]} pieces of the model's dim-vocabs, got {len(pieces):,}.")
    return Vocabulary(pack(pieces, {"unk": unk, "eos": eos}, spm), str(file))


# Files.


def open_npz(path: Path) -> ForeignTensors:
    """Returns the arrays of an `.npz` file by name. Each can be read once, and is then freed.

    Raises FileError if the file is missing or damaged, would fill the memory, or holds anything but arrays of numbers.
    """
    check_path(path)
    arrays: dict[str, Tensor] = {}
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file, warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy warns of headers that it did not write
            size, grown = path.stat().st_size, sum(entry.file_size for entry in file.zip.infolist())
            if grown <= MOST_GROWTH * size:
                arrays = {name: torch.from_numpy(file[name]) for name in file.files}
    except Exception:  # zipfile and NumPy raise many kinds for damaged files
        raise FileError(f"{path} is damaged or not an .npz file of numbers; copy the file again.") from None
    if grown > MOST_GROWTH * size:
        raise FileError(
            f"{path} has {size:,} bytes, but claims to hold {grown:,}; at most {MOST_GROWTH} times its size is allowed."
        )
    return ForeignTensors(path, {name: array.shape for name, array in arrays.items()}, arrays.pop)


def read_mapping(data: bytes, name: str, *, typed: bool) -> dict[str, Any]:
    """Returns the entries of a YAML mapping in order. Errors call it `name`.

    Unless `typed`, scalars stay strings, because YAML would read the piece `no` as false. Raises FileError for anything
    but scalars and lists of scalars in UTF-8, and InputError without PyYAML.
    """
    try:
        import yaml
    except ImportError:
        raise InputError("PyYAML, which reads Marian's files, is not installed; run `pip install pyyaml`.") from None
    loader = getattr(yaml, f"{'C' if yaml.__with_libyaml__ else ''}{'Safe' if typed else 'Base'}Loader")
    start, end = yaml.CollectionStartEvent, yaml.CollectionEndEvent
    try:
        text = data.decode("utf-8-sig")
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, start) - isinstance(event, end)
            if depth > 2:  # deep nesting would crash the C parser
                raise ValueError("it is nested too deeply")
            if getattr(event, "anchor", None) or getattr(event, "tag", None):
                raise ValueError("it has a tag or an anchor")
        entries: dict[str, Any] = yaml.load(text, Loader=loader) or {}
        values = [item for value in entries.values() for item in (value if isinstance(value, list) else [value])]
        if not all(isinstance(value, _SCALARS) for value in values):
            raise ValueError("a value is something else")
    except (yaml.YAMLError, ValueError, OverflowError, AttributeError) as error:
        problem = " ".join(str(error).split()).replace('in "<unicode string>", ', "")
        raise FileError(
            f"{name} must be a mapping of texts, numbers and lists of them, as Marian writes it; {problem[:200]}."
        ) from None
    return entries


class MarianModel(Program):
    """Marian running an `.npz` model. If not `translates`, it only scores. Raises InputError without pymarian.

    Marian exits on an error, so it runs in a separate process. Its vocabularies here are text files with one word per
    id, so that it neither splits nor joins text.
    """

    name = "Marian"

    def __init__(self, model: Path, src: Vocabulary, tgt: Vocabulary, *, translates: bool) -> None:
        need_packages("pymarian is not installed", "marian", MODULE)
        self.path, self.translates = model.absolute(), translates
        self._words = {"src": _words(src), "tgt": _words(tgt)}

    def logprobs(self, pairs: Sequence[IdPair]) -> list[list[float]]:
        texts = {"src": [source for source, _ in pairs], "tgt": [target for _, target in pairs]}
        lines = self._run(["score", "--model", str(self.path), "--word-scores", "--train-sets", "src", "tgt"], texts)
        return [[float(score) for score in line.rpartition("WordScores=")[2].split()] for line in lines]

    def translate(self, ours: Outputs) -> list[list[int]] | None:
        search = ours.search
        if not self.translates:
            return None
        command = ["decode", "--models", str(self.path), "--quiet-translation", "--input", "src"]
        command += ["--beam-size", str(search.beam), "--normalize", str(search.alpha)]
        command += ["--max-length-factor", str(search.max_ratio)]
        if SPECIAL_PIECES[UNK_ID] not in search.suppress:
            command += ["--allow-unk", "--allow-special"]
        ids = {word: id for id, word in self._words["tgt"].items()}
        return [[ids[word] for word in line.split()] for line in self._run(command, {"src": ours.sources})]

    def _run(self, command: Sequence[str], texts: Mapping[str, Sequence[Sequence[int]]]) -> list[str]:
        """Runs a command on files with the sentences `texts`, which end in EOS, and returns its output lines."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for side, words in self._words.items():
                _write(folder / f"{side}.txt", words.values())
                _write(folder / side, (" ".join(words[id] for id in ids[:-1]) for ids in texts.get(side, ())))
            options = ["--vocabs", "src.txt", "tgt.txt", "--output", "out", *_SETTINGS]
            program = [sys.executable, "-c", _PROGRAM, *command, *options]
            return self.run(program, len(texts["src"]), folder, out=folder / "out")


def _words(vocab: Vocabulary) -> dict[int, str]:
    """Returns a word for each of our ids that Marian's vocabulary contains, in the order of Marian's ids."""
    special = {UNK_ID: SPECIAL_PIECES[UNK_ID], EOS_ID: SPECIAL_PIECES[EOS_ID]}
    words = {}
    for place, id in sorted((place, id) for id, place in enumerate(vocab.order) if place is not None):
        piece = vocab.piece(id)
        words[id] = special.get(id, piece if is_byte(piece) else f"w{place}")
    return words


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
