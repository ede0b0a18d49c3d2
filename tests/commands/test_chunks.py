"""Translation in chunks: nothing is lost or mixed, whatever stops it and however the chunks are divided."""

import gzip
import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from translators import sentences, translator

from vtrans.commands.chunks import (
    FORMAT,
    RECORD,
    Chunks,
    collect,
    join,
    missing,
    settings_of,
    shard_of,
    translate_chunks,
)
from vtrans.search.options import Mbr, Sampling
from vtrans.system.errors import FileError, InputError
from vtrans.system.files import file_sha256
from vtrans.text.lines import lines_in, write_line
from vtrans.translate.steps.line import lines_of
from vtrans.translate.stream import translate_stream
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.translator import DEFAULT_OPTIONS
from vtrans.translate.wording.phrases import read_constraints

LINES = sentences(23)


class Stopped(Exception):
    pass


def written(path: Path, lines: Sequence[str]) -> Path:
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as stream:
        for line in lines:
            write_line(stream, line)  # type: ignore[arg-type]  # GzipFile is a binary stream, too
    return path


class Work:
    """A text, a model and a folder for the chunks of 5 lines."""

    def __init__(self, folder: Path, lines: Sequence[str] = LINES, *, chunk_lines: int = 5, name: str = "text") -> None:
        self.lines, self.chunk_lines, self.out = lines, chunk_lines, folder / "out"
        self.text, self.model = written(folder / name, lines), folder / "model"
        self.model.write_bytes(b"a model")
        self.prefixes: Path | None = None
        self.constraints: Path | None = None

    def join(self, options: TranslateOptions = DEFAULT_OPTIONS, **search: Any) -> Chunks:
        named = {"input": self.text, "prefixes": self.prefixes, "constraints": self.constraints}
        texts = {name: path for name, path in named.items() if path}
        settings = {"model": file_sha256(self.model), **settings_of(translator(**search), options)}
        return join(self.out, texts, self.chunk_lines, options.lines, settings)

    def parts(self) -> tuple[Any, ...]:
        prefixes, asked = (lines_in(path) if path else None for path in (self.prefixes, self.constraints))
        return lines_in(self.text), prefixes, asked and read_constraints(asked, "constraints")

    def run(
        self,
        shard: str = "1/1",
        options: TranslateOptions = DEFAULT_OPTIONS,
        *,
        stop_after: float = float("inf"),
        **search: Any,
    ) -> int:
        """Translates a shard, or stops after that many lines. Returns the number of lines translated."""
        chunks, own = self.join(options, **search), translator(**search)
        lines = itertools.count(1)

        def advance(size: int) -> None:
            if next(lines) > stop_after:
                raise Stopped

        wanted = missing(chunks, shard_of(shard))
        translate_chunks(own, chunks, wanted, self.parts(), options, advance=advance)
        return own.counts.lines

    def result(self) -> bytes:
        stream = io.BytesIO()
        assert collect(self.out, stream) == len(self.lines)
        return stream.getvalue()

    def whole(self, options: TranslateOptions = DEFAULT_OPTIONS, **search: Any) -> bytes:
        """Returns the translations of the whole text as one stream."""
        stream = io.BytesIO()
        translate_stream(translator(**search), lines_of(*self.parts()), stream, options)
        return stream.getvalue()

    def names(self) -> set[str]:
        return {path.name for path in self.out.iterdir()}


@pytest.mark.parametrize(
    "options",
    [
        TranslateOptions(),
        TranslateOptions(nbest=3, form="scores"),
        TranslateOptions(alignments=True, form="tsv"),
        TranslateOptions(sampling=Sampling(seed=3)),  # a sample depends on the number of its line
        TranslateOptions(mbr=Mbr()),
    ],
    ids=lambda options: options.form,
)
def test_chunks_are_together_what_a_stream_is(tmp_path: Path, options: TranslateOptions) -> None:
    work = Work(tmp_path, name="text.gz" if options.nbest > 1 else "text")
    assert work.run(options=options) == len(LINES)
    assert work.result() == work.whole(options)


def test_shards_divide_the_chunks(tmp_path: Path) -> None:
    work = Work(tmp_path)
    done = [work.run(f"{number}/3") for number in (2, 3)]
    with pytest.raises(InputError, match="2 of 5"):
        work.result()
    done.append(work.run("1/2"))  # another number of jobs may resume
    assert done == [5 + 3, 5, 5]
    assert work.run() == 5
    assert work.result() == work.whole()


def test_a_job_that_was_stopped_anywhere_resumes(tmp_path: Path) -> None:
    work, done = Work(tmp_path), 0
    for stop in range(1, 30, 3):
        try:
            done += work.run(stop_after=stop)
        except Stopped:
            continue
    assert done < len(LINES)
    assert work.run() == 0
    assert work.result() == work.whole()


def test_what_a_killed_job_left_is_removed_when_the_chunks_are_collected(tmp_path: Path) -> None:
    work = Work(tmp_path)
    leftover = work.out / f".{next(iter(work.join())).name}.123.tmp"
    leftover.mkdir()
    (leftover / "half").write_text("half")
    work.run()
    work.result()
    assert not leftover.exists()


def test_prefixes_and_constraints_are_divided_like_their_lines(tmp_path: Path) -> None:
    work = Work(tmp_path)
    begun = ["Hund" if number % 4 == 1 else "" for number in range(23)]
    asked = ['{"constraints": ["park"]}' if number % 4 == 3 else "" for number in range(23)]
    work.prefixes = written(tmp_path / "prefixes", begun)
    work.constraints = written(tmp_path / "constraints", asked)
    work.run()
    assert work.result() == work.whole()
    found = work.result().decode().split("\n")
    assert [text.startswith("Hund") for text in found[1:23:4]] == [line.strip() != "" for line in LINES[1:23:4]]
    assert ["park" in text for text in found[3:23:4]] == [bool(line) for line in LINES[3::4]]
    written(work.prefixes, begun[:-1])
    with pytest.raises(InputError, match="`prefixes`"):
        work.run()
    written(work.prefixes, begun)
    written(work.constraints, [*asked[:-1], "[]"])
    work.out = tmp_path / "other"
    with pytest.raises(FileError, match="23"):
        work.run()


def test_no_other_text_model_or_option_may_join(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.run("1/5")
    for given, named in (({"beam": 2}, "`beam`"), ({"options": TranslateOptions(nbest=2)}, "`nbest`")):
        with pytest.raises(InputError, match=named):
            work.run(**given)
    work.chunk_lines = 4
    with pytest.raises(InputError, match="`chunk_lines`"):
        work.run()
    work.chunk_lines = 5
    for path, other, named in ((work.model, b"another", "`model`"), (work.text, b"another line", "`input`")):
        whole = path.read_bytes()
        path.write_bytes(other)
        with pytest.raises(InputError, match=named):
            work.run()
        path.write_bytes(whole)
    assert work.run(batch_tokens=7) == len(LINES) - 5  # it changes the speed only
    assert work.result() == work.whole()


def test_a_text_that_was_cut_under_way_is_refused(tmp_path: Path) -> None:
    work = Work(tmp_path)
    chunks = work.join()
    written(work.text, LINES[:-1])
    with pytest.raises(InputError, match="chunk-00000004"):
        translate_chunks(translator(), chunks, [*chunks], work.parts(), DEFAULT_OPTIONS)
    assert len(work.names()) == len(chunks)


@pytest.mark.parametrize("common", ["{}", '{"chunk_lines": 0}', '{"chunk_lines": "5"}'])
def test_a_damaged_record_is_named(tmp_path: Path, common: str) -> None:
    (tmp_path / RECORD).write_text(f'{{"format": {FORMAT}, "lines": 9, "output_lines": 1, "common": {common}}}')
    with pytest.raises(FileError, match=RECORD):
        collect(tmp_path, io.BytesIO())


def test_a_damaged_chunk_is_named(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.run()
    chunk = sorted(work.out.glob("chunk-*"))[3]
    whole = chunk.read_bytes()
    for damaged in (whole[:-1], whole + b"\n", b""):
        chunk.write_bytes(damaged)
        stream = io.BytesIO()
        with pytest.raises(FileError, match=chunk.name):
            collect(work.out, stream)
        assert stream.getvalue() == b""
    chunk.unlink()
    with pytest.raises(InputError, match="lines 16 to 20"):
        work.result()
    work.run()
    assert work.result() == work.whole()


def test_folders_and_files_of_something_else_are_refused(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.out.mkdir()
    (work.out / "notes").write_text("mine")
    with pytest.raises(InputError, match="`output`"):
        work.run()
    assert work.names() == {"notes"}
    with pytest.raises(FileError, match=r"job\.json"):
        work.result()
    work.out = work.text
    with pytest.raises(FileError, match="text"):
        work.run()
