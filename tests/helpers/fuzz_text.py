"""Fuzzed readers of text, constraints and glossaries."""

import gzip
import io
from collections.abc import Sequence
from pathlib import Path

from fuzzing import CUT, target, tiny_model

from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.parallel_text import Inputs
from vtrans.system.console import Console
from vtrans.text.lines import LineReport, open_bytes, read_lines
from vtrans.translate.wording.glossary import read_glossary
from vtrans.translate.wording.phrases import Wording, encoded, read_constraints, wording_of


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


@target(lambda: [b'{"constraints": ["a", ["b", "c b"]], "avoid": ["a a"], "text": "a"}\n\n{}'])
def constraints(parts: Sequence[bytes], folder: Path) -> None:
    """A file of constraints, and their subwords."""
    vocabulary = tiny_model().tgt_vocab
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
    encoded(Wording(terms=terms), tiny_model().tgt_vocab, (), 1)
    assert dict(found.with_terms(found).pairs) == dict(found.pairs)
