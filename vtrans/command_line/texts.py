"""The texts that `vtrans translate` translates, from beginning to end or in chunks, and the report at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vtrans.command_line.lines import Extent, many, progress, source_of, stdin_is_terminal, writer
from vtrans.command_line.options import BAD_UTF8, check_line_counts, check_output
from vtrans.console import Console
from vtrans.errors import InputError
from vtrans.keys import flag, number, path, text
from vtrans.processes.signals import ended_by_signals
from vtrans.text.lines import OnBadUtf8
from vtrans.translate.chunks import ChunkedTexts, chunks_of, settings_of, translate_chunks

if TYPE_CHECKING:
    from vtrans.lines.line import Counts
    from vtrans.translate.division import Division
    from vtrans.translate.translation import TranslateOptions
    from vtrans.translate.translator import Translator


@dataclass(frozen=True)
class Text:
    """What is translated, and where the translations go; None: stdin, stdout, no prefixes, no constraints."""

    PANEL: ClassVar[str] = "Text"

    input: Path | None = path(None, "Text to translate.", unset="stdin")
    output: Path | None = path(None, "File to write.", unset="stdout")
    prefixes: Path | None = path(
        None,
        "Target prefixes, one per input line; a blank line means none. The last word may be continued unless a space "
        "follows it.",
        flag="--prefix",
        panel="Terms and memory",
    )
    constraints: Path | None = path(
        None,
        "Phrases that translations must contain, and others that they must not: one JSON object per input line, such "
        'as {"constraints": ["red car"], "avoid": ["auto"]}; a blank line means none.',
        panel="Terms and memory",
    )
    on_bad_utf8: OnBadUtf8 = BAD_UTF8
    line_buffered: bool = flag(False, "Write each translation before reading the next line.")
    chunk_lines: int | None = number(
        None,
        1,
        10**9,
        "Make `output` a folder with one file per N lines, which `vtrans collect` joins. The same command resumes a "
        "job that was stopped, and several jobs may share the folder.",
        "lines",
    )
    shard: str | None = text(
        None,
        "With `chunk_lines`, translate only every N-th chunk, beginning with chunk I, as job I of N.",
        metavar="I/N",
        unset="1/1",
    )

    @property
    def typed(self) -> bool:
        """Whether the lines are typed at a terminal."""
        return self.input is None and stdin_is_terminal()

    @property
    def chunks(self) -> slice:
        """The chunks of the shard."""
        return chunks_of(self.shard or "1/1")

    def in_chunks(self) -> ChunkedTexts | None:
        """Returns the texts in chunks, after reading them once, or None if they are not divided. Raises InputError for
        a wrong division."""
        if self.chunk_lines is None:
            if self.shard is not None:
                raise InputError("`shard` only applies to chunks; add `chunk_lines`, or leave it out.")
            return None
        if self.input is None or self.output is None:
            raise InputError("`chunk_lines` needs `input`, a file, and `output`, a folder.")
        if self.line_buffered:
            raise InputError("`line_buffered` is for input that arrives line by line; leave it or `chunk_lines` out.")
        chunks_of(self.shard or "1/1")
        paths = {"input": self.input, "prefixes": self.prefixes, "constraints": self.constraints}
        return ChunkedTexts(self.output, {name: path for name, path in paths.items() if path}, self.chunk_lines)

    def check(self, others: list[tuple[str, Path | None]]) -> None:
        """Raises InputError if the output would replace an input or one of the other files, which have flags, or if
        there is not one prefix or constraint per line. Chunks count the lines themselves."""
        inputs = [("--input", self.input), ("--prefix", self.prefixes), ("--constraints", self.constraints)]
        check_output(self.output, [*inputs, *others])
        for name, other in (("prefix", self.prefixes), ("constraints", self.constraints)):
            if self.input and other and self.chunk_lines is None:
                check_line_counts(self.input, other, name)

    def division(self, processes: int | None, threads: int | None) -> Division:
        """Returns the processes and threads that will translate. Raises InputError if the number that the user chose is
        not possible, and under torchrun."""
        from vtrans.translate.division import divide

        if (world := int(os.environ.get("WORLD_SIZE", "1"))) > 1:
            raise InputError(
                f"torchrun has started {world} processes, which would all translate the whole text; start `vtrans "
                f"translate` without torchrun, once per GPU, with `chunk_lines`, `shard` I/{world} and `device` cuda:I."
            )
        reason = "`line_buffered` translates one line at a time" if self.line_buffered else ""
        return divide(processes, threads, reason, prefer_one=self.typed)


@contextmanager
def opened(text: Text, console: Console) -> Iterator[tuple[tuple[Any, ...], Extent]]:
    """Yields the lines of a text, their prefixes and their constraints, for `lines_of`, and the extent of the text."""
    from vtrans.wording.phrases import read_constraints

    with ExitStack() as stack:
        texts, extent = stack.enter_context(source_of(text.input, text.on_bad_utf8, console))
        prefixes, asked = (
            stack.enter_context(source_of(path, text.on_bad_utf8, console))[0] if path else None
            for path in (text.prefixes, text.constraints)
        )
        yield (texts, prefixes, asked and read_constraints(asked, str(text.constraints))), extent


def translate_text(
    load: Callable[[], Translator],
    models: list[Path],
    settings: dict[str, Any],
    options: TranslateOptions,
    text: Text,
    chunks: ChunkedTexts | None,
    division: Division,
    console: Console,
) -> None:
    """Translates a text with copies of this process if that is faster, and reports how it went. `models` and `settings`
    are what chunks have in common, besides the settings of the translator."""
    from vtrans.lines.line import lines_of
    from vtrans.translate.stream import translate_stream, workers_for

    with ended_by_signals(), opened(text, console) as (parts, extent):
        translator = load()
        translator.check(options, constraints=text.constraints is not None)
        if text.typed:
            console.info("reading from the terminal, line by line; end with Ctrl-D")
        if chunks:
            common = {**settings, **settings_of(translator, options), "on_bad_utf8": text.on_bad_utf8}
            job = chunks.join(models, common, options.lines)
            missing = job.missing(text.chunks)
            whole = many(job.chunks, "chunk", f"of at most {job.chunk_lines:,} lines")
            console.info(f"{many(len(missing), 'chunk', 'to translate')}; {job.folder} will hold {whole}")
        copies = division.copies(translator.engine)
        if copies > 1:
            console.info(f"up to {copies} processes share the input")
        with workers_for(translator, options, copies, division.threads) if copies else nullcontext() as workers:
            if chunks:
                with console.progress("translated", job.lines_in(missing), unit="sentences") as counter:
                    translate_chunks(
                        translator,
                        job,
                        text.chunks,
                        chunks,
                        parts,
                        options,
                        advance=lambda size: counter.advance(),
                        workers=workers,
                    )
            else:
                with (
                    writer(text.output) as stream,
                    progress(console, stream, shown=not text.typed) as counter,
                ):
                    translate_stream(
                        translator,
                        lines_of(*parts),
                        stream,
                        options,
                        line_buffered=text.line_buffered,
                        complete=extent.known,
                        advance=lambda size: counter.advance(share=extent.advance(size)),
                        workers=workers,
                    )
    report(translator.counts, console, min_length=translator.search.min_length)


def report(counts: Counts, console: Console, *, min_length: int = 0) -> None:
    """Prints the speed, and warns of translations that a user may want to know about."""
    seconds = max(counts.seconds, 1e-9)
    console.info(
        f"{many(counts.lines, 'line', 'in')} {seconds:.1f} s of translating "
        f"({counts.lines / seconds:,.1f} lines/s, {counts.tgt_tokens / seconds:,.0f} target subwords/s)"
    )
    again = "searched again, because the translation looped, did not end, or had other numbers or codes"
    doubtful = "left without a translation, because the confidence is below --min-confidence"
    advice = "" if min_length else "; --min-length 1 asks for at least one subword"
    notes = (
        (counts.blank, console.info, "blank line", "with a blank translation"),
        (counts.copied, console.info, "line", "without words, copied"),
        (counts.known, console.info, "translation", "taken from the memory"),
        (counts.matched, console.info, "line", "translated with a fuzzy match"),
        (counts.retried, console.info, "line", again),
        (counts.looping, console.warn, "line", "with a translation that repeats the same words many times"),
        (counts.unfinished, console.warn, "line", "with a translation that did not end within its length limit"),
        (counts.empty, console.warn, "line", f"with text that has an empty translation, at least in part{advice}"),
        (counts.short, console.warn, "line", "with a translation that is far shorter; a part is probably missing"),
        (counts.numbers, console.warn, "line", "with a translation whose numbers differ from the source"),
        (counts.doubtful, console.warn, "line", doubtful),
        (counts.unmet, console.warn, "line", "with a translation that does not obey its constraints"),
        (counts.missing, console.warn, "n-best place", "left empty, because the search found no more hypotheses"),
    )
    for count, say, noun, what in notes:
        if count:
            say(many(count, noun, what))
