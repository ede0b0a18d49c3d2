"""The texts that `vtrans translate` translates, from beginning to end or in chunks, and the report at the end."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vtrans.commands.chunks import join, missing, settings_of, shard_of, translate_chunks
from vtrans.commands.lines import many, progress, source_of, stdin_is_terminal, writer
from vtrans.commands.shared_options import BAD_UTF8, check_line_counts, check_output
from vtrans.config.keys import number, path, text
from vtrans.system.console import Console, Counter
from vtrans.system.errors import InputError
from vtrans.system.files import file_sha256
from vtrans.system.signals import ended_by_signals
from vtrans.text.lines import OnBadUtf8

if TYPE_CHECKING:
    from vtrans.translate.stream import Division
    from vtrans.translate.translation import TranslateOptions
    from vtrans.translate.translator import Translator


@dataclass(frozen=True)
class Text:
    """The input and output of a translation. None means stdin, stdout, no prefixes and no constraints."""

    PANEL: ClassVar[str] = "Text"

    input: Path | None = path(None, "Text to translate.", unset="stdin")
    output: Path | None = path(None, "File to write.", unset="stdout")
    prefixes: Path | None = path(
        None,
        "Target prefixes, one per input line; a blank line means none. The last word may be continued unless a space "
        "follows it.",
        flag="--prefix",
        advanced=True,
        panel="Terms and memory",
    )
    constraints: Path | None = path(
        None,
        "Phrases that translations must contain, and others that they must not: one JSON object per input line, such "
        'as {"constraints": ["red car"], "avoid": ["auto"]}; a blank line means none.',
        advanced=True,
        panel="Terms and memory",
    )
    on_bad_utf8: OnBadUtf8 = BAD_UTF8
    chunk_lines: int | None = number(
        None,
        (1, 10**9),
        "Make `output` a folder with one file per N lines, which `vtrans collect` joins. The same command resumes a "
        "job that was stopped, and several jobs may share the folder.",
        "lines",
        advanced=True,
    )
    shard: str | None = text(
        None,
        "With `chunk_lines`, translate only every N-th chunk, beginning with chunk I, as job I of N.",
        metavar="I/N",
        advanced=True,
        unset="1/1",
    )

    @property
    def typed(self) -> bool:
        """Whether the lines are typed at a terminal."""
        return self.input is None and stdin_is_terminal()

    @property
    def files(self) -> dict[str, Path]:
        """The files that are read, by the names of their options."""
        named = {"input": self.input, "prefixes": self.prefixes, "constraints": self.constraints}
        return {name: path for name, path in named.items() if path}

    def check(self, others: list[tuple[str, Path | None]], *, memory: Path | None = None) -> None:
        """Raises InputError if options for chunks do not fit together, if the output would replace an input or one of
        the other files (flag, file), or if there is not one prefix or constraint per line."""
        if self.chunk_lines is None and self.shard is not None:
            raise InputError("`shard` only applies to chunks; add `chunk_lines`, or leave it out.")
        if self.chunk_lines and (self.input is None or self.output is None):
            raise InputError("`chunk_lines` needs `input`, a file, and `output`, a folder.")
        if self.chunk_lines and memory:
            raise InputError("`memory` cannot be used with `chunk_lines`, because it may change while jobs run.")
        shard_of(self.shard or "1/1")
        inputs = [("--input", self.input), ("--prefix", self.prefixes), ("--constraints", self.constraints)]
        check_output(self.output, [*inputs, *others])
        for option, file in inputs[1:]:
            if self.input and file:
                check_line_counts(self.input, file, option[2:])

    def division(self, processes: int | None, threads: int | None, device: str | None) -> Division:
        """Returns the processes and threads that will translate. Raises InputError if the number that the user chose is
        not possible, and under torchrun."""
        from vtrans.translate.stream import divide

        if (world := int(os.environ.get("WORLD_SIZE", "1"))) > 1:
            raise InputError(
                f"torchrun has started {world} processes, which would all translate the whole text; start `vtrans "
                f"translate` without torchrun, once per GPU, with `chunk_lines`, `shard` I/{world} and `device` cuda:I."
            )
        return divide(processes, threads, device, prefer_one=self.typed)


def translate_text(
    load: Callable[[], Translator],
    models: list[Path],
    settings: dict[str, Any],
    options: TranslateOptions,
    text: Text,
    division: Division,
    console: Console,
) -> None:
    """Translates a text with copies of this process if that is faster, and reports how it went. `models` and `settings`
    are what chunks have in common, besides the settings of the translator."""
    from vtrans.storage.run_folder import choose_model
    from vtrans.translate.steps.line import lines_of
    from vtrans.translate.stream import translate_stream, workers_for
    from vtrans.translate.wording.phrases import read_constraints

    with ended_by_signals(), ExitStack() as stack:
        translator = load()
        translator.check(options, constraints=text.constraints is not None)
        lines, extent = stack.enter_context(source_of(text.input, text.on_bad_utf8, console))
        prefixes, asked = (
            stack.enter_context(source_of(path, text.on_bad_utf8, console))[0] if path else None
            for path in (text.prefixes, text.constraints)
        )
        parts: tuple[Any, ...] = lines, prefixes, asked and read_constraints(asked, str(text.constraints))
        if text.typed:
            console.info("reading from the terminal, line by line; end with Ctrl-D")
        workers = stack.enter_context(workers_for(translator, options, division))
        if workers:
            console.info(f"up to {workers.number} processes share the input")

        counter: Counter
        how: dict[str, Any] = {"workers": workers}
        how["advance"] = lambda size: counter.advance(share=extent.advance(size))
        if text.chunk_lines and text.output:
            common = {"model": [file_sha256(choose_model(path).file) for path in models], **settings}
            common |= {**settings_of(translator, options), "on_bad_utf8": text.on_bad_utf8}
            chunks = join(text.output, text.files, text.chunk_lines, options.lines, common)
            wanted = missing(chunks, shard_of(text.shard or "1/1"))
            whole = many(len(chunks), "chunk", f"of at most {text.chunk_lines:,} lines")
            console.info(f"{many(len(wanted), 'chunk', 'to translate')}; {text.output} will hold {whole}")
            total = sum(len(chunks[file]) for file in wanted)
            counter = stack.enter_context(console.progress("translated", total, unit="sentences"))
            translate_chunks(translator, chunks, wanted, parts, options, **how)
        else:
            stream = stack.enter_context(writer(text.output))
            counter = stack.enter_context(progress(console, stream, shown=not text.typed))
            translate_stream(translator, lines_of(*parts), stream, options, complete=extent.known, **how)
    report(translator, console)


def report(translator: Translator, console: Console) -> None:
    """Prints the speed, and warns of translations that a user may want to know about."""
    counts = translator.counts
    seconds = max(counts.seconds, 1e-9)
    console.info(
        f"{many(counts.lines, 'line', 'in')} {seconds:.1f} s of translating "
        f"({counts.lines / seconds:,.1f} lines/s, {counts.tgt_tokens / seconds:,.0f} target subwords/s)"
    )
    again = "searched again, because the translation looped, did not end, or had other numbers or codes"
    doubtful = "left without a translation, because the confidence is below --min-confidence"
    advice = "" if translator.search.min_length else "; --min-length 1 asks for at least one subword"
    notes = (
        (counts.blank, console.info, "blank line", "with a blank translation"),
        (counts.copied, console.info, "line", "without words, copied"),
        (counts.known, console.info, "translation", "taken from the memory"),
        (counts.matched, console.info, "line", "translated with a fuzzy match"),
        (counts.retried, console.info, "line", again),
        (counts.looping, console.warn, "line", "with a translation that repeats the same words many times"),
        (counts.unfinished, console.warn, "line", "with a translation that did not end within its length limit"),
        (counts.empty, console.warn, "line", f"with text that has an empty translation, at least in part{advice}"),
        (counts.short, console.warn, "line", "whose translation is far too short; a part is probably missing"),
        (counts.numbers, console.warn, "line", "with a translation whose numbers differ from the source"),
        (counts.doubtful, console.warn, "line", doubtful),
        (counts.unmet, console.warn, "line", "with a translation that does not obey its constraints"),
        (counts.missing, console.warn, "n-best place", "left empty, because the search found no more hypotheses"),
    )
    for count, say, noun, what in notes:
        if count:
            say(many(count, noun, what))
