"""The texts that `vtrans translate` translates: from beginning to end, or in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrans.commands.lines import lines_of, many, progress, source_of, stdin_is_terminal, warn_of_characters, writer
from vtrans.console import Console
from vtrans.text import LineReport, OnBadUtf8
from vtrans.translate.chunks import Job, Shard, join_job, settings_of, sources_for, translate_chunks

if TYPE_CHECKING:
    from vtrans.runtime.ranks import Ranks
    from vtrans.translate.stream import Workers
    from vtrans.translate.translation import TranslateOptions
    from vtrans.translate.translator import Translator


# Prepares a text for a translator. Returns a function that translates it, with copies of this process if there are any.
Work = Callable[["Translator"], "Callable[[Workers | None], None]"]


@dataclass(frozen=True)
class Text:
    """What is translated, and where the translations go; None: stdin, stdout, no prefixes, no constraints."""

    input: Path | None
    output: Path | None
    prefixes: Path | None
    constraints: Path | None
    on_bad_utf8: OnBadUtf8
    line_buffered: bool

    @property
    def typed(self) -> bool:
        """Whether the lines are typed at a terminal."""
        return self.input is None and stdin_is_terminal()


@dataclass(frozen=True)
class Chunks:
    """A text in chunks of that many lines, whose translations go to a folder."""

    lines: int
    shard: Shard
    input: Path
    folder: Path
    measure: bool  # whether the user asks for kernels, instead of those with which the job began


@contextmanager
def streamed(options: TranslateOptions, text: Text, ranks: Ranks, console: Console) -> Iterator[Work]:
    """Opens a text that is translated from beginning to end."""
    from vtrans.translate.stream import translate_stream
    from vtrans.wording.phrases import read_constraints

    beside = [
        lines_of(path, text.on_bad_utf8, console) if path else nullcontext()
        for path in (text.prefixes, text.constraints)
    ]
    source = source_of(text.input, text.on_bad_utf8, console)
    with source as (lines, extent), beside[0] as prefixes, beside[1] as asked:

        def run(translator: Translator, workers: Workers | None) -> None:
            with (
                writer(text.output) as stream,
                progress(console, stream, shown=not text.typed, share=extent.known) as counter,
            ):
                translate_stream(
                    translator,
                    lines,
                    stream,
                    options,
                    prefixes=prefixes,
                    constraints=read_constraints(asked, str(text.constraints)) if asked else None,
                    line_buffered=text.line_buffered,
                    progress=lambda lines, size: counter.update(lines, extent.share(size)),
                    ranks=ranks,
                    workers=workers,
                )

        yield lambda translator: partial(run, translator)


@contextmanager
def chunked(
    chunks: Chunks,
    models: list[Path],
    settings: dict[str, Any],
    options: TranslateOptions,
    text: Text,
    ranks: Ranks,
    console: Console,
) -> Iterator[Work]:
    """Finds the chunks of a text, of which those of the shard are translated."""
    beside = {"prefixes": text.prefixes, "constraints": text.constraints}
    texts = {"input": chunks.input} | {name: path for name, path in beside.items() if path}
    sources = sources_for(chunks.folder, texts, chunks.lines)

    def prepare(translator: Translator) -> Callable[[Workers | None], None]:
        common = {**settings, **settings_of(translator, options), "on_bad_utf8": text.on_bad_utf8}
        job = join_job(chunks.folder, sources, models, common, chunks.lines, options.lines)
        missing = many(len(job.missing(chunks.shard)), "chunk", "to translate")
        whole = many(job.chunks, "chunk", f"of at most {chunks.lines:,} lines")
        console.info(f"{missing}; {chunks.folder} will hold {whole}")
        if not chunks.measure:
            job.use_kernels()
        return partial(run, translator, job)

    def run(translator: Translator, job: Job, workers: Workers | None) -> None:
        report = LineReport()
        with console.progress("translated", unit="sentences", shares=True) as counter:
            translate_chunks(
                translator,
                job,
                chunks.shard,
                sources,
                options,
                on_bad_utf8=text.on_bad_utf8,
                report=report,
                progress=counter.update,
                ranks=ranks,
                workers=workers,
            )
        warn_of_characters(report, str(chunks.input), console)

    yield prepare
