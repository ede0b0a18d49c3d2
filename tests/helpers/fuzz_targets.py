"""The readers that fuzzing gives arbitrary bytes: what each may raise, laws that hold for what it reads, and seeds.

`soak/fuzz.py` runs them with atheris; `test_fuzz.py` runs them with the inputs in `fuzz/`, which fuzzing found. An
input consists of parts with CUT between them, one for each file that a reader reads; the last seed has all parts, and
stands in for those that an input lacks.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gzip
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bergamot_models
import ctranslate2_folders
import foreign
import marian_models
import numpy as np
import torch
from safetensors.torch import load
from starlette.requests import Request

from vtrans.checkpoint import LoadedModel, load_model, save_model
from vtrans.config import ModelConfig, SearchConfig
from vtrans.console import Console
from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.parallel_text import Inputs
from vtrans.data.store import DataFolder, TokenStore
from vtrans.documents.document import READERS, Translated
from vtrans.documents.files import open_file
from vtrans.documents.html import read_html
from vtrans.documents.office import docx_document, odt_document
from vtrans.documents.subtitles import SubtitleDocument
from vtrans.engines.torch_engine import TorchEngine
from vtrans.errors import DocumentError, VtransError
from vtrans.interop.formats import read_model
from vtrans.interop.imported import install
from vtrans.interop.marian.npz import open_npz
from vtrans.interop.marian.yaml import read_mapping
from vtrans.model import Transformer
from vtrans.server.limits import Limits
from vtrans.server.parameters import Upload, file_request, parameters, translate_request
from vtrans.server.refusals import Refusal
from vtrans.storage.tensors import CHECKSUMS, TYPES, checksum, header_checksum, header_text
from vtrans.text.lines import LineReport, open_bytes, read_lines
from vtrans.text.piece_table import pack
from vtrans.text.vocabulary import PAD_ID, Vocabulary
from vtrans.training.recipe import load_recipe, recipe_toml
from vtrans.translate.translator import Translator
from vtrans.wording.glossary import read_glossary
from vtrans.wording.phrases import Wording, encoded, read_constraints, wording_of

CUT = b"\n%%\n"
LINES = ["a b c", "", "b"]
W, R = "http://schemas.openxmlformats.org/wordprocessingml/2006/main", "urn:oasis:names:tc:opendocument:xmlns:text:1.0"

TARGETS: dict[str, Target] = {}


@dataclass(frozen=True)
class Target:
    """A reader: `read` is given the parts of an input and an empty folder, `seeds` has inputs that it accepts."""

    read: Callable[[Sequence[bytes], Path], None]
    seeds: Callable[[], list[bytes]]
    expected: tuple[type[Exception], ...]

    def check(self, data: bytes, folder: Path) -> bool:
        """Returns whether the reader accepts an input. It raises what the reader should not have raised."""
        given, complete = data.split(CUT), self.complete
        folder.mkdir()
        try:
            self.read([*given, *complete[len(given) :]], folder)
        except self.expected as error:
            if not str(error):
                raise AssertionError("an error without a sentence") from error
            return False
        finally:
            shutil.rmtree(folder)
        return True

    @functools.cached_property
    def complete(self) -> list[bytes]:
        return self.seeds()[-1].split(CUT)


def target(
    seeds: Callable[[], list[bytes]], *expected: type[Exception]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds a reader under its name. It may raise `expected`, or else VtransError."""

    def add(read: Callable[..., None]) -> Callable[..., None]:
        TARGETS[read.__name__.strip("_")] = Target(read, functools.cache(seeds), expected or (VtransError,))
        return read

    return add


def in_files(*names: str, made: Callable[[Path], object]) -> Callable[[], list[bytes]]:
    """The seed whose parts are these files of a folder that `made` makes."""

    def seeds() -> list[bytes]:
        with scratch() as folder:
            made(folder / "made")
            return [CUT.join((folder / "made" / name).read_bytes() for name in names)]

    return seeds


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory, where the system has one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


# Text.


def _texts() -> list[bytes]:
    plain = "A dog.\r\n\u2028B\x00\n\n\ufeffC\rD".encode() + b"\xff\xc3\n\xed\xa0\x80"
    packed = b"\3" + gzip.compress(plain, mtime=0)
    return [b"\1" + plain, packed + b"rest", packed, b"\2" + plain]


@target(_texts)
def text(parts: Sequence[bytes], folder: Path) -> None:
    """The first byte chooses strictness, and whether the name says that the file is compressed."""
    data = CUT.join(parts)
    kind, data = data[:1], data[1:]
    path = folder / {b"\3": "text.gz", b"\4": "text.xz", b"\5": "text.bz2"}.get(kind, "text")
    path.write_bytes(data)
    report = LineReport()
    with open_bytes(path) as stream:
        found = list(read_lines(stream, "text", on_bad_utf8="error" if kind == b"\1" else "replace", report=report))
    for line in found:
        assert len(line.splitlines()) <= 1
        line.encode()
    if path.suffix == "":
        while data.startswith(b"\xef\xbb\xbf"):
            data = data[3:]
        assert len(found) == data.count(b"\n") + (data != b"" and not data.endswith(b"\n"))


@target(lambda: [b"A dog.\n\nB\rC" + CUT + "Ein Hund.\n\n\u0085\n".encode(), b"a\nb\n" + CUT + b"c\nd\n"])
def parallel_text(parts: Sequence[bytes], folder: Path) -> None:
    src, tgt = folder / "train.en", folder / "train.de"
    src.write_bytes(parts[0])
    tgt.write_bytes(parts[1])
    inputs = Inputs(PrepareOptions(src=(src,), tgt=(tgt,), on_bad_utf8="replace"))
    inputs.hash(Console(quiet=True))
    split = inputs.split(Console(quiet=True))
    pairs = sum(1 for corpus in split.training_pairs() for _ in corpus) + sum(
        1 for corpus in split.validation_pairs() for _ in corpus
    )
    assert pairs == split.survey.pairs


# Model files, recipes and data folders.


@functools.cache
def _tiny_model() -> LoadedModel:
    vocabulary = Vocabulary(pack(["</s>", "<unk>", "a", "b", "c"], {"eos": 0, "unk": 1}, b""))
    config = ModelConfig(d_model=2, d_ff=1, heads=1, encoder_layers=1, decoder_layers=1, tie="src-tgt-softmax")
    torch.manual_seed(1)
    model = Transformer(config, len(vocabulary), len(vocabulary), joint=True, pad_id=PAD_ID)
    return LoadedModel(model, vocabulary, vocabulary, SearchConfig(beam=2), {"step": 1})


def _taken_apart(path: Path) -> bytes:
    """The tensors of a safetensors file as JSON, our header without checksums, and the data."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    tensors = json.loads(raw[8 : 8 + length])
    header = json.loads(tensors.pop("__metadata__")["vtrans"])
    header.pop("crc32", None)
    return CUT.join((json.dumps(tensors).encode(), json.dumps(header).encode(), raw[8 + length :]))


def _put_together(path: Path, tensors: bytes, header: bytes, *data: bytes) -> None:
    """Writes such parts as a file, with the checksums of what can be read. What is no JSON object becomes the whole
    header."""
    content = CUT.join(data)
    try:
        described = json.loads(tensors)
        described["__metadata__"] = {"vtrans": _with_checksums(header.decode(), described, content)}
        tensors = json.dumps(described).encode()
    except (ValueError, TypeError, RecursionError):
        pass
    path.write_bytes(len(tensors).to_bytes(8, "little") + tensors + content)


def _with_checksums(header: str, described: dict[str, Any], content: bytes) -> str:
    """Returns the header with the checksums of itself and of the tensors, or as it is if there are none."""
    try:
        values, sums = json.loads(header), {}
        for name, facts in described.items():
            begin, end = facts["data_offsets"]
            array = np.frombuffer(content[begin:end], np.uint8)
            sums[name] = checksum(TYPES[facts["dtype"]], facts["shape"], array)
        return header_text(values | {CHECKSUMS: {"header": header_checksum(values), "tensors": sums}})
    except (ValueError, TypeError, KeyError, RecursionError):
        return header


def _models() -> list[bytes]:
    with scratch() as folder:
        save_model(folder / "model.safetensors", _tiny_model())
        return [_taken_apart(folder / "model.safetensors")]


@target(_models)
def model(parts: Sequence[bytes], folder: Path) -> None:
    path = folder / "model.safetensors"
    _put_together(path, *parts)
    loaded = load_model(path)
    found = list(Translator(TorchEngine([loaded]), loaded.search).translate(LINES))
    assert len(found) == len(LINES)


def _raw_models() -> list[bytes]:
    with scratch() as folder:
        save_model(folder / "model.safetensors", _tiny_model())
        return [(folder / "model.safetensors").read_bytes()]


@target(_raw_models)
def model_bytes(parts: Sequence[bytes], folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(CUT.join(parts))
    load_model(path)


@target(lambda: [foreign.sentencepiece_model(foreign.TEXT[:1], 20), pack(["</s>", "<unk>", "a"], {"eos": 0}, b"")])
def vocabulary(parts: Sequence[bytes], folder: Path) -> None:
    """A SentencePiece model with its own ids is read as that of a piece table, which accepts any."""
    data = CUT.join(parts)
    if not data.startswith(b"vtrans"):
        data = pack(["</s>", "<unk>", "a", "\u2581a"], {"eos": 0, "unk": 1}, data)
    found = Vocabulary(data)
    for line in ("", "a dog  sees \u2581a 日本", "\0\ufeff"):
        ids = found.encode(line)
        assert all(0 <= i < len(found) for i in ids)
        found.decode(ids)


@target(lambda: [recipe_toml(load_recipe()).encode() + CUT + b"model.d_model=64\ntrain.corpus_weights=[1, 2]"])
def recipe(parts: Sequence[bytes], folder: Path) -> None:
    path = folder / "recipe.toml"
    path.write_bytes(parts[0])
    overrides = parts[1].decode(errors="replace").split("\n")
    loaded = load_recipe(str(path), [line for line in overrides if line])
    path.write_text(recipe_toml(loaded), encoding="utf-8")
    assert load_recipe(str(path)) == loaded


@functools.cache
def _data_folder() -> dict[str, bytes]:
    """The files of a small data folder."""
    from conftest import TRAIN_PAIRS, make_data

    with scratch() as folder:
        path = make_data(folder, vocab_size=None, train=TRAIN_PAIRS[:20]).path
        return {file.name: file.read_bytes() for file in path.iterdir()}


@target(lambda: [_data_folder()["data.json"]])
def data(parts: Sequence[bytes], folder: Path) -> None:
    for name, content in _data_folder().items():
        (folder / name).write_bytes(content)
    (folder / "data.json").write_bytes(CUT.join(parts))
    found = DataFolder.open(folder)
    assert sum(found.corpora) == len(found.train)


def _stores() -> list[bytes]:
    with scratch() as folder:
        path = folder / "valid.safetensors"
        path.write_bytes(_data_folder()["valid.safetensors"])
        return [_taken_apart(path)]


@target(_stores)
def store(parts: Sequence[bytes], folder: Path) -> None:
    path = folder / "train.safetensors"
    _put_together(path, *parts)
    found = TokenStore.open(path)
    for i in range(min(len(found), 100)):
        assert len(found.src(i)) == found.src_lengths[i]
        assert len(found.tgt(i)) == found.tgt_lengths[i]


@target(lambda: [b'{"constraints": ["a", ["b", "c b"]], "avoid": ["a a"], "text": "a"}\n\n{}'])
def constraints(parts: Sequence[bytes], folder: Path) -> None:
    """A file of constraints, and their subwords."""
    vocabulary = _tiny_model().tgt_vocab
    lines = CUT.join(parts).decode(errors="replace").split("\n")
    for number, given in enumerate(read_constraints(lines, "constraints"), 1):
        wording = wording_of(given, "a", number)
        encoded(wording, vocabulary, (), number)
        assert bool(wording.unmet("")) == bool(wording.phrases)
        assert wording.avoided("") == []


@target(lambda: [b"# Terms\n\nDNA\tDNS\ndog\tHund|Hunds\nbig dog\tDogge\n" + CUT + b"Dogs? A big dog. Dog (dog): DNA"])
def glossary(parts: Sequence[bytes], folder: Path) -> None:
    """A glossary, and the terms in a line."""
    path = folder / "glossary.tsv"
    path.write_bytes(parts[0])
    found = read_glossary(path)
    for term, forms in found.pairs:
        assert next(found.terms_in(term)).forms == forms
    (line,) = read_lines(io.BytesIO(CUT.join(parts[1:]).replace(b"\n", b" ") + b"\n"), "text", on_bad_utf8="replace")
    terms = tuple(term.forms for term in found.terms_in(line))
    assert set(terms) <= {forms for _, forms in found.pairs}
    encoded(Wording(terms=terms), _tiny_model().tgt_vocab, (), 1)
    assert dict(found.with_terms(found).pairs) == dict(found.pairs)


# Models of other programs.


def _import(path: Path) -> None:
    loaded = install(read_model(path))
    found = list(Translator(TorchEngine([loaded]), dataclasses.replace(loaded.search, beam=2)).translate(LINES))
    assert len(found) == len(LINES)


@target(lambda: [marian_models.yaml(marian_models.SETTINGS) + b'a:\n  - b\n  - \'c\'\n"\\x41": [1, "2"]\n'])
def marian_yaml(parts: Sequence[bytes], folder: Path) -> None:
    for key, value in read_mapping(CUT.join(parts), "settings").items():
        assert isinstance(key, str)
        assert value is None or isinstance(value, str) or all(isinstance(item, str) for item in value)


def _archives() -> list[bytes]:
    made = []
    for save in (np.savez, np.savez_compressed):
        out = io.BytesIO()
        save(out, a=np.ones((2, 3), np.float32), b=np.zeros(0, np.int8))
        made.append(out.getvalue())
    return made


@target(_archives)
def npz(parts: Sequence[bytes], folder: Path) -> None:
    path = folder / "model.npz"
    path.write_bytes(CUT.join(parts))
    tensors = open_npz(path)
    for name, facts in tensors.facts.items():
        assert tensors.raw(name).shape == facts.shape


@functools.cache
def _marian_arrays() -> dict[str, Any]:
    with scratch() as folder, np.load(marian_models.folder(folder / "made") / "model.npz") as file:
        return dict(file)


@target(lambda: [_marian_arrays()[marian_models.CONFIG].tobytes() + CUT + b"vocabs: [vocab.spm, vocab.spm]\n"])
def marian(parts: Sequence[bytes], folder: Path) -> None:
    """The settings in the model, and decoder.yml if there is one."""
    arrays = _marian_arrays() | {marian_models.CONFIG: np.frombuffer(parts[0], np.int8)}
    np.savez(folder / "model.npz", **arrays)
    (folder / "vocab.spm").write_bytes(marian_models.spm())
    if parts[1]:
        (folder / "decoder.yml").write_bytes(parts[1])
    _import(folder)


_CT2_FILES = ("model.bin", "config.json", "source_vocabulary.json", "target_vocabulary.json")


@target(
    in_files(*_CT2_FILES, made=lambda path: ctranslate2_folders.Folder(ctranslate2_folders.transformer()).write(path))
)
def ctranslate2(parts: Sequence[bytes], folder: Path) -> None:
    for name, content in zip(_CT2_FILES, parts, strict=False):
        (folder / name).write_bytes(content)
    _import(folder)


_BERGAMOT_FILES = ("model.ende.intgemm.alphas.bin", "lex.ende.s2t.bin", "vocab.spm")


@target(in_files(*_BERGAMOT_FILES, made=bergamot_models.folder))
def bergamot(parts: Sequence[bytes], folder: Path) -> None:
    for name, content in zip(_BERGAMOT_FILES, parts, strict=False):
        (folder / name).write_bytes(content)
    _import(folder)


_HF_FILES = ("config.json", "vocab.json", "tokenizer_config.json")


@functools.cache
def _hf_folder() -> dict[str, bytes]:
    with scratch() as folder:
        return {file.name: file.read_bytes() for file in foreign.hugging_face_folder(folder / "made").iterdir()}


@target(lambda: [CUT.join(_hf_folder()[name] for name in _HF_FILES) + CUT + b'{"num_beams": 2}'])
def huggingface(parts: Sequence[bytes], folder: Path) -> None:
    files = _hf_folder() | dict(zip((*_HF_FILES, "generation_config.json"), parts, strict=False))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    _import(folder)


def _pickles() -> list[bytes]:
    out = io.BytesIO()
    torch.save(load(_hf_folder()["model.safetensors"]), out)
    return [out.getvalue()]


@target(_pickles)
def pickled(parts: Sequence[bytes], folder: Path) -> None:
    for name, content in _hf_folder().items():
        if name != "model.safetensors":
            (folder / name).write_bytes(content)
    (folder / "pytorch_model.bin").write_bytes(CUT.join(parts))
    _import(folder)


# Requests to the server.


def _translations(lines: Sequence[str]) -> list[Translated]:
    """The words of each line backwards, with and without an alignment in turn."""
    replies = []
    for number, line in enumerate(lines):
        words = line.split()[::-1]
        links = tuple((len(words) - 1 - i, i) for i in range(len(words))) if number % 2 else None
        replies.append(Translated(" ".join(words), links))
    return replies


def _requests() -> list[bytes]:
    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nA dog.\r\n--x--\r\n'
    return [
        CUT.join((b"multipart/form-data; boundary=x", b"source=en&target=de", form)),
        CUT.join((b"application/x-www-form-urlencoded", b"source=en&q=a", b"q=b&target=de&alternatives=2&format=html")),
        CUT.join((b"application/json", b"", b'{"q": ["a"], "source": "auto", "target": "de", "alignments": true}')),
    ]


@target(_requests, Refusal, DocumentError)
def request(parts: Sequence[bytes], folder: Path) -> None:
    """The content type, the query string and the body."""
    kind, query, body = parts[0], parts[1], CUT.join(parts[2:])
    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", kind)], "query_string": query, "app": None}
    fields = asyncio.run(parameters(Request(scope), body))
    if isinstance(fields.get("file"), Upload):
        upload, _, _ = file_request(fields)
        open_file(upload.name, upload.content, 100_000)
    else:
        asked = translate_request(fields, Limits())
        for given in asked.texts:
            READERS[asked.format](given, asked.source)


@target(
    lambda: [b"<p>A <b>dog</b> runs.<br>It <i>is</i> &amp; <code>x</code></p><!-- c --><pre>a\nb</pre>"], DocumentError
)
def html(parts: Sequence[bytes], folder: Path) -> None:
    source = CUT.join(parts).decode(errors="replace").replace("\0", "")
    assert "".join(item.raw for item in read_html(source)) == source
    document = READERS["html"](source, "en")
    assert len(document.lines) == len(document.aligned)
    document.joined(_translations(document.lines))


@target(
    lambda: [b"1\n00:00:01,000 --> 00:00:02,000\nA <i>dog</i> runs.\nIt is fast.\n\n2\n0:1 --> 1\n- B\n<i>- C</i>\n"],
    DocumentError,
)
def srt(parts: Sequence[bytes], folder: Path) -> None:
    document = SubtitleDocument(CUT.join(parts).decode(errors="replace").replace("\0", ""), "en")
    document.joined(_translations(document.lines))


def _xml(namespace: str, body: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?><w:d xmlns:w="{namespace}">{body}</w:d>'.encode()


_DOCX = (
    "<w:p><w:pPr/><w:r><w:rPr><w:b/></w:rPr><w:t>A dog</w:t></w:r><w:hyperlink><w:r><w:t> runs.</w:t><w:tab/></w:r>"
    "</w:hyperlink></w:p>"
)
_ODT = "<w:p>A <w:span>dog</w:span><w:s/>runs.<w:tab/><w:note><w:p>x</w:p></w:note></w:p>"


@target(lambda: [b"\0" + _xml(W, _DOCX), b"\1" + _xml(R, _ODT)], DocumentError)
def office(parts: Sequence[bytes], folder: Path) -> None:
    """The first byte chooses .odt; what is read as XML is written as XML."""
    content = CUT.join(parts)
    read = odt_document if content[:1] == b"\1" else docx_document
    document = read(content[1:].decode(errors="replace").replace("\0", ""), "en")
    read(document.joined(_translations(document.lines)), "en")


def _zips() -> list[bytes]:
    made = []
    for name, xml in (("word/document.xml", _xml(W, _DOCX)), ("content.xml", _xml(R, _ODT))):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo(name), xml)
        made.append(out.getvalue())
    return made


@target(_zips, DocumentError)
def upload(parts: Sequence[bytes], folder: Path) -> None:
    content = CUT.join(parts)
    opened = open_file("a.docx" if b"word/" in content else "a.odt", content, 10_000)
    documents = [opened.read(text, "en") for text in opened.texts]
    opened.written([document.joined(_translations(document.lines)) for document in documents])
