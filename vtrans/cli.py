"""The command line: thin commands that read their options, build the objects and call one function.

Heavy imports stand inside the commands: `vtrans --help` needs no torch. Results go to stdout,
everything else to stderr. Exit codes: 0 done, 1 failed while running, 2 the user's input is at fault.
"""

from __future__ import annotations

import ctypes
import dataclasses
import difflib
import io
import json
import math
import os
import platform
import re
import signal
import stat
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast, get_args

import typer

import vtrans
from vtrans.config import (
    DECODING_PRECISIONS,
    DEFAULT_AVERAGE,
    DEFAULT_FREQUENT,
    DEFAULT_RECIPE,
    DEFAULT_RUN,
    DEFAULT_TRANSLATIONS,
    DEFAULT_VOCAB_SIZE,
    NEAREST,
    NEAREST_OF_STEP,
    NORMALIZATIONS,
    PrepareOptions,
    Sampling,
    SearchConfig,
    section_from,
)
from vtrans.console import Console, Counter
from vtrans.errors import FileError, InputError, VtransError
from vtrans.text import Extent, LineReport, OnBadUtf8, one_line, open_bytes, read_lines, write_atomically, writing

if TYPE_CHECKING:
    from vtrans.translate import Counts, Translator

app = typer.Typer(
    name="vtrans",
    help="Train and run Transformer translation models. Start with prepare-bpe, then train, average, "
    "translate and score; the defaults chain into each other.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# The class of every complaint of Typer about the command line, whichever click it carries.
_UsageError: type[BaseException] = typer.BadParameter.__mro__[1]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and errors on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")]
Models = Annotated[
    list[Path] | None,
    typer.Option(
        help="A run folder or a model file, several are an ensemble; to translate, also an exported folder.  "
        f"[default: {DEFAULT_RUN}]",
        metavar="PATH",
    ),
]
Weights = Annotated[
    list[float] | None,
    typer.Option(
        help="Of each --model in the ensemble's mean of probabilities; one for each.  [default: equal]", metavar="X"
    ),
]
Output = Annotated[Path | None, typer.Option(help="Where to write it.  [default: stdout]", metavar="FILE")]
Alpha = Annotated[
    float | None,
    typer.Option(
        help="Exponent of the length penalty ((5 + |Y|) / 6) ** alpha.  "
        f"[default: the model's, else {SearchConfig.alpha}]",
        metavar="X",
    ),
]
LengthPenalty = Annotated[
    str | None,
    typer.Option(
        help="gnmt, or length: |Y| ** alpha, by which fairseq, Marian and CTranslate2 divide.  "
        f"[default: the model's, else {SearchConfig.length_penalty}]",
        metavar="KIND",
    ),
]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, cuda:N or mps.  [default: the best there is]", metavar="NAME")
]
BadUtf8 = Annotated[
    str, typer.Option(help="error, or replace: put U+FFFD for bad bytes, and count them.", metavar="HOW")
]


def _version(wanted: bool) -> None:
    if wanted:
        _out(f"vtrans {vtrans.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", callback=_version)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Both have been seen to: `--version` by its callback, `--debug` by main(), wherever it stands."""


@app.command("prepare-bpe")
def prepare_bpe(
    src: Annotated[
        list[Path], typer.Option(help="Source text, a sentence a line; repeat for several corpora.", metavar="FILE")
    ],
    tgt: Annotated[list[Path], typer.Option(help="Its translations, line by line.", metavar="FILE")],
    valid_src: Annotated[
        list[Path] | None,
        typer.Option(help="Validation source; without it random sentences are held out.", metavar="FILE"),
    ] = None,
    valid_tgt: Annotated[list[Path] | None, typer.Option(help="Validation target.", metavar="FILE")] = None,
    out: Annotated[Path, typer.Option(help="Data folder to make.", metavar="FOLDER")] = Path(PrepareOptions.out),
    vocab_size: Annotated[
        int | None,
        typer.Option(help=f"Subwords.  [default: {DEFAULT_VOCAB_SIZE}, or what the text allows]", metavar="N"),
    ] = PrepareOptions.vocab_size,
    separate: Annotated[
        bool, typer.Option("--separate", help="One vocabulary a side, not a joint one.")
    ] = PrepareOptions.separate,
    subword: Annotated[str, typer.Option(help="bpe or unigram.", metavar="KIND")] = PrepareOptions.subword,
    normalization: Annotated[
        str, typer.Option(help=f"SentencePiece's rule: {', '.join(NORMALIZATIONS)} (none).", metavar="RULE")
    ] = PrepareOptions.normalization,
    character_coverage: Annotated[
        float,
        typer.Option(help="Share of running characters with a subword; the rest is spelt in bytes.", metavar="SHARE"),
    ] = PrepareOptions.character_coverage,
    symbol: Annotated[
        list[str] | None,
        typer.Option(help="A subword of its own that is never split, such as <BT>; repeat.", metavar="TEXT"),
    ] = None,
    sample: Annotated[
        int, typer.Option(help="Pairs, at random, that the vocabulary is learnt from.", metavar="N")
    ] = PrepareOptions.sample,
    max_tokens: Annotated[
        int, typer.Option(help="Pairs with more subwords on a side are dropped.", metavar="N")
    ] = PrepareOptions.max_tokens,
    max_ratio: Annotated[
        float, typer.Option(help="Long pairs of odder lengths are dropped.", metavar="RATIO")
    ] = PrepareOptions.max_ratio,
    on_bad_utf8: BadUtf8 = PrepareOptions.on_bad_utf8,
    seed: Annotated[int, typer.Option(help="Of the pairs held out and sampled.", metavar="N")] = PrepareOptions.seed,
    threads: Annotated[int, typer.Option(help="Processors that encode; 0: all.", metavar="N")] = PrepareOptions.threads,
    force: Annotated[bool, typer.Option("--force", help="Replace a folder made from other inputs.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say what it will take, from all lines and some pairs; write nothing."),
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn subwords from parallel text and encode it.

    Two files of parallel text, --src and --tgt, become a data folder: a vocabulary, joint unless
    --separate is given, and the encoded pairs. Plain, .gz, .xz and .bz2 files are read alike.
    """
    if dry_run and quiet and not as_json:
        raise InputError("--dry-run is there to say what preparing will take; leave out --quiet, or add --json.")
    from vtrans.corpus import prepare

    options = PrepareOptions(
        src=tuple(src),
        tgt=tuple(tgt),
        valid_src=tuple(valid_src or ()),
        valid_tgt=tuple(valid_tgt or ()),
        out=out,
        vocab_size=vocab_size,
        separate=separate,
        subword=cast(Any, subword),  # prepare checks it, as it does all the others
        normalization=normalization,
        character_coverage=character_coverage,
        symbols=tuple(symbol or ()),
        sample=sample,
        max_tokens=max_tokens,
        max_ratio=max_ratio,
        on_bad_utf8=_bad_utf8(on_bad_utf8),
        seed=seed,
        threads=threads,
        force=force,
    )
    report = prepare(options, Console(quiet=quiet), dry_run=dry_run)
    if as_json:
        _out(json.dumps(report, ensure_ascii=False, indent=2, sort_keys=True))


@app.command()
def train(
    data: Annotated[Path, typer.Option(help="Data folder of prepare-bpe.", metavar="FOLDER")] = Path(
        PrepareOptions.out
    ),
    out: Annotated[Path, typer.Option(help="Run folder; one that holds a run is resumed.", metavar="FOLDER")] = Path(
        DEFAULT_RUN
    ),
    recipe: Annotated[
        str | None,
        typer.Option(
            help=f"A recipe's name or a TOML file.  [default: {DEFAULT_RECIPE}; when resuming, the run's own]",
            metavar="NAME|FILE",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a value of the recipe; repeat.", metavar="section.key=value"),
    ] = None,
    init_from: Annotated[
        Path | None,
        typer.Option(
            help="Begin a new run with the weights of this model, of the same vocabulary or another.",
            metavar="RUN|FILE",
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Throw the run in the folder away and start over.")] = False,
    compile_: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Compile the layers; resuming is not exact then. For a GPU: on a CPU steps took twice as long.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say what training will take, from a few updates; write nothing."),
    ] = False,
    device: Device = None,
    quiet: Quiet = False,
) -> None:
    """Train a model, or resume the run in the folder.

    A resumed run goes on exactly where it stopped.
    """
    if dry_run and quiet:
        raise InputError("--dry-run is there to say what training will take; leave out --quiet.")
    _manage_memory()
    from vtrans.checkpoint import RunFolder
    from vtrans.store import DataFolder
    from vtrans.train import train as run_training

    run_training(
        DataFolder.open(data),
        RunFolder(out),
        Console(quiet=quiet),
        recipe_name=recipe,
        overrides=set_ or [],
        fresh=fresh,
        device=device,
        dry_run=dry_run,
        init_from=init_from,
        compiled=compile_,
    )


@app.command()
def average(
    what: Annotated[
        list[Path] | None,
        typer.Argument(help=f"A run folder, or model files.  [default: {DEFAULT_RUN}]", metavar="RUN|FILE"),
    ] = None,
    last: Annotated[
        int | None, typer.Option(help=f"The newest N checkpoints.  [default: {DEFAULT_AVERAGE}]", min=1, metavar="N")
    ] = None,
    best: Annotated[int | None, typer.Option(help="The best N instead.", min=1, metavar="N")] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write.  [default: RUN/averaged.safetensors]", metavar="FILE")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Average the weights of several checkpoints.

    Takes the newest or the best of a run, or files that you name.
    """
    from vtrans.average import average as run_average
    from vtrans.average import checkpoints_of
    from vtrans.checkpoint import RunFolder

    console = Console(quiet=quiet)
    if last is not None and best is not None:
        raise InputError("--last and --best exclude each other; give one of them.")
    paths = what or [Path(DEFAULT_RUN)]
    if len(paths) == 1 and not paths[0].is_file():
        run = RunFolder(paths[0])
        count = best or last or DEFAULT_AVERAGE
        files = checkpoints_of(run, count, by="best" if best else "last")
        target, run_step = out or run.averaged, max(run.steps())
        if len(files) < count and (best or last):
            console.warn(f"{run.path} holds {len(files)} such checkpoints, not {count}; train.keep_last keeps more")
    else:
        if last is not None or best is not None:
            raise InputError("--last and --best choose in a run folder; named files are averaged as they are.")
        if out is None:
            raise InputError("averaging named files needs --out FILE for the result.")
        for path in paths:
            if path.is_dir():
                raise InputError(f"{path} is a folder; average takes one run folder, or model files.")
        files, target, run_step = paths, out, None
    steps = run_average(files, target, run_step)
    console.info(f"{target}: the average of {len(files)} checkpoints, steps {', '.join(map(str, steps))}")


@app.command()
def shortlist(
    model: Annotated[Path, typer.Argument(help="A run folder or a model file.", metavar="MODEL")] = Path(DEFAULT_RUN),
    data: Annotated[Path, typer.Option(help="Data folder that it was trained on.", metavar="FOLDER")] = Path(
        PrepareOptions.out
    ),
    out: Annotated[
        Path | None, typer.Option(help="Model file to write.  [default: the same file]", metavar="FILE")
    ] = None,
    translations: Annotated[
        int, typer.Option(help="Target subwords for each source subword.", min=1, metavar="N")
    ] = DEFAULT_TRANSLATIONS,
    frequent: Annotated[
        int, typer.Option(help="Most frequent target subwords, for every sentence.", min=0, metavar="N")
    ] = DEFAULT_FREQUENT,
    quiet: Quiet = False,
) -> None:
    """Learn which subwords can follow from which of the source.

    From the training pairs, by IBM model 1; the table is written into the model file, whose weights stay
    as they are.
    """
    from vtrans.checkpoint import add_shortlist, choose_model, load_model
    from vtrans.shortlist import learn_shortlist
    from vtrans.store import DataFolder

    console = Console(quiet=quiet)
    file, reason = choose_model(model)
    console.info(f"model: {file}{f' ({reason})' if reason else ''}")
    loaded, folder = load_model(file), DataFolder.open(data)
    if (folder.src_vocab.digest, folder.tgt_vocab.digest) != (loaded.src_vocab.digest, loaded.tgt_vocab.digest):
        raise InputError(f"{data} has another vocabulary than {file}; give the --data that the model was trained on.")
    found = learn_shortlist(folder.train, len(folder.src_vocab), len(folder.tgt_vocab), translations, frequent)
    add_shortlist(file, found, out or file)
    console.info(
        f"{out or file}: with a shortlist of {translations} translations of each source subword and the "
        f"{len(found.frequent):,} most frequent target subwords; `vtrans translate --shortlist` uses it"
    )


@app.command()
def overlap(
    src: Annotated[Path | None, typer.Argument(help="Text of the source language.", metavar="SRC")] = None,
    tgt: Annotated[
        Path | None, typer.Argument(help="Text of the target language; it need not be parallel.", metavar="TGT")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Data folder whose vocabulary is taken; without SRC and TGT, whose training pairs are compared.",
            metavar="FOLDER",
        ),
    ] = None,
    vocab: Annotated[
        Path | None, typer.Option(help="SentencePiece model that prepare-bpe has made, for both.", metavar="FILE")
    ] = None,
    vocab_size: Annotated[
        int | None,
        typer.Option(
            help=f"Subwords of the one that is learnt.  [default: {DEFAULT_VOCAB_SIZE}, or what the text allows]",
            metavar="N",
        ),
    ] = PrepareOptions.vocab_size,
    on_bad_utf8: BadUtf8 = PrepareOptions.on_bad_utf8,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Count the subwords that two languages have in common.

    Before any training, by script, with the definition of each figure: what a joint vocabulary and tied embeddings
    would share. A joint BPE vocabulary is learnt for it, as prepare-bpe would, unless one is given.
    """
    if (src is None) != (tgt is None) or (src is None and data is None):
        raise InputError("overlap compares two texts; give SRC and TGT, or --data FOLDER for its training pairs.")
    if data and vocab:
        raise InputError("--data brings its own vocabulary; leave out --vocab.")
    if vocab_size is not None and (data or vocab):
        raise InputError(
            f"--vocab-size is of a vocabulary to learn; leave it out with --{'data' if data else 'vocab'}."
        )
    how, console = _bad_utf8(on_bad_utf8), Console(quiet=quiet)
    from vtrans.overlap import overlap_of_data, overlap_of_files, vocabularies_of
    from vtrans.store import DataFolder

    if src is None or tgt is None:
        found = overlap_of_data(DataFolder.open(cast(Path, data)))
    else:
        given = vocabularies_of(data, vocab) if data or vocab else None
        found = overlap_of_files(src, tgt, console, given=given, vocab_size=vocab_size, on_bad_utf8=how)
    if as_json:
        _out(json.dumps(found.as_dict(), ensure_ascii=False, indent=2))
    else:
        found.show(_result_console())


@app.command()
def inspect(
    model: Annotated[Path, typer.Argument(help="A run folder or a model file.", metavar="MODEL")] = Path(DEFAULT_RUN),
    word: Annotated[
        str | None,
        typer.Option(help="Show instead which rows of the embeddings are nearest to its subwords.", metavar="WORD"),
    ] = None,
    sentence: Annotated[
        str | None,
        typer.Option(
            help="Show instead, for each step of its translation, which rows are most like the decoder's output.",
            metavar="TEXT",
        ),
    ] = None,
    nearest: Annotated[
        int | None,
        typer.Option(
            help=f"Rows shown.  [default: {NEAREST} for each subword of --word, {NEAREST_OF_STEP} for a step of "
            "--sentence]",
            min=1,
            metavar="N",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Data folder that it was trained on, for the overlap of its sides.", metavar="FOLDER"),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Each layer, and each head's matrices, by itself.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a model is made of.

    The tree of its parts with their shapes and parameters, what is shared between which of them and what that
    saves, its bytes, and what it knows of its training.
    """
    if nearest and word is None and sentence is None:
        raise InputError("--nearest is of --word and --sentence; give one of them, or leave it out.")
    if full and not (word is None and sentence is None):
        raise InputError("--full is of the tree, which --word and --sentence take the place of; leave it out.")
    from vtrans.anatomy import Anatomy, overlap_of
    from vtrans.checkpoint import choose_model, load_model
    from vtrans.similarity import neighbours, show_neighbours, show_steps, steps
    from vtrans.translate import Translator

    file, chosen = choose_model(model)
    loaded = load_model(file)
    anatomy = Anatomy(file, chosen, loaded, overlap_of(data, loaded) if data else None)
    near = neighbours(loaded, word, nearest or NEAREST) if word is not None else []
    walk = None
    if sentence is not None:
        walk = steps(Translator([loaded]), one_line(sentence), nearest or NEAREST_OF_STEP)
    if as_json:
        result = anatomy.as_dict()
        if word is not None:
            result["nearest"] = [dataclasses.asdict(each) for each in near]
        if walk:
            result["translation"], result["steps"] = walk[0], [dataclasses.asdict(step) for step in walk[1]]
        _out(json.dumps(result, ensure_ascii=False, indent=2))
        return
    console = _result_console()
    if word is None and sentence is None:
        anatomy.show(console, full=full)
    show_neighbours(near, console)
    if walk:
        show_steps(*walk, console)


@app.command()
def attend(
    model: Annotated[Path, typer.Argument(help="A run folder or a model file.", metavar="MODEL")],
    sentence: Annotated[str, typer.Argument(help="A sentence to translate.", metavar="SENTENCE")],
    target: Annotated[
        str | None,
        typer.Option(help="A translation to take, in place of the model's own.", metavar="TEXT"),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(help="A layer of the decoder, 0 the lowest.  [default: mean of the upper half]", metavar="N"),
    ] = None,
    head: Annotated[int | None, typer.Option(help="One of its heads.  [default: mean of all]", metavar="N")] = None,
    subwords: Annotated[bool, typer.Option("--subwords", help="Subwords on both axes, not words.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="SVG file to write.  [default: characters on stdout]", metavar="FILE")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show where a translation looks in its source.

    The cross-attention of one sentence, as a picture in SVG or as blocks of characters.
    """
    if out and out.suffix.lower() != ".svg":
        raise InputError(f"--out must be an SVG file, such as attend.svg, but is {out}.")
    _check_output(out, [("MODEL", model)])
    from vtrans.attend import as_svg, as_text, attention
    from vtrans.checkpoint import choose_model, load_model
    from vtrans.translate import Translator

    console = Console(quiet=quiet)
    file, chosen = choose_model(model)
    console.info(f"model: {file}{f' ({chosen})' if chosen else ''}")
    found = attention(
        Translator([load_model(file)], console=console),
        sentence,
        target,
        layer=layer,
        head=head,
        subwords=subwords,
    )
    if out:
        write_atomically(out, as_svg(found).encode())
        console.info(f"{out}: {found.which}, {len(found.target)} rows and {len(found.source)} columns")
    if as_json:
        _out(json.dumps(found.as_dict(), ensure_ascii=False, indent=2))
    elif not out:
        _out(as_text(found))


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="A run folder or a model file.", metavar="MODEL")] = Path(DEFAULT_RUN),
    to: Annotated[str, typer.Option(help="The engine: ctranslate2.", metavar="ENGINE")] = "ctranslate2",
    out: Annotated[
        Path | None, typer.Option(help="Folder to make.  [default: RUN/ctranslate2]", metavar="FOLDER")
    ] = None,
    quantization: Annotated[
        str, typer.Option(help="Of the weights: float32, float16 or int8.", metavar="TYPE")
    ] = "float32",
    sample_file: Annotated[
        Path | None,
        typer.Option(help="Sentences to compare the two on.  [default: made up of its words]", metavar="FILE"),
    ] = None,
    on_bad_utf8: BadUtf8 = "error",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a model for another engine, and compare the two.

    The folder runs by `vtrans translate --model FOLDER`, and in whatever else runs CTranslate2. It gets its
    name only if it translates and scores sample sentences as the original does.
    """
    console = Console(quiet=quiet)
    if to != "ctranslate2":
        raise InputError(f"--to must be ctranslate2, the one engine to export to, but is {to!r}.")
    how = _bad_utf8(on_bad_utf8)
    samples = _read_all(sample_file, how, console) if sample_file else None
    _manage_memory()
    from vtrans.checkpoint import choose_model, load_model
    from vtrans.engine import FOLDER
    from vtrans.export import export as run_export

    file, reason = choose_model(model)
    if out is None:
        if not model.is_dir():
            raise InputError("exporting a named file needs --out FOLDER for the result.")
        out = model / FOLDER
    console.info(f"model: {file}{f' ({reason})' if reason else ''}")
    comparison = run_export(load_model(file), out, console, quantization=quantization, samples=samples)
    if as_json:
        _out(json.dumps(comparison.as_dict(), ensure_ascii=False, indent=2))


@app.command()
def translate(
    model: Models = None,
    weight: Weights = None,
    input_: Annotated[
        Path | None, typer.Option("--input", help="Text to translate.  [default: stdin]", metavar="FILE")
    ] = None,
    output: Output = None,
    beam: Annotated[
        int | None,
        typer.Option(
            help=f"Live hypotheses a sentence; 1 is greedy.  [default: the model's, else {SearchConfig.beam}]",
            metavar="N",
        ),
    ] = None,
    alpha: Alpha = None,
    length_penalty: LengthPenalty = None,
    stop: Annotated[
        str | None,
        typer.Option(
            help="count: when as many hypotheses have ended as the beam is wide; exhaustive: when no live one can "
            f"win.  [default: the model's, else {SearchConfig.stop}]",
            metavar="RULE",
        ),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Cap on the subwords of a translation.  [default: source + 50]", metavar="N")
    ] = None,
    min_length: Annotated[
        int | None,
        typer.Option(
            help="Least subwords of a translation, EOS not counted.  "
            f"[default: the model's, else {SearchConfig.min_length}]",
            metavar="N",
        ),
    ] = None,
    no_repeat_ngram: Annotated[
        int | None,
        typer.Option(
            help="No N subwords twice in a translation; 0: no such rule.  "
            f"[default: the model's, else {SearchConfig.no_repeat_ngram}]",
            metavar="N",
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(
            help="Factor on the log-probability of a subword that was said before; scores have it in them, "
            "log-probabilities too.  "
            f"[default: the model's, else {SearchConfig.repetition_penalty}]",
            metavar="X",
        ),
    ] = None,
    prefix: Annotated[
        Path | None,
        typer.Option(
            help="How the translations begin, a line each, blank for any; the last word may go on if no space "
            "follows it.",
            metavar="FILE",
        ),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            help="Padded source subwords of a batch; 1: one sentence at a time.  "
            f"[default: the model's, else {SearchConfig.batch_tokens}]",
            metavar="N",
        ),
    ] = None,
    nbest: Annotated[int, typer.Option(help="Translations of each line, best first.", metavar="N")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Put each one's score and a tab before it.")] = False,
    tsv: Annotated[
        bool, typer.Option("--tsv", help="Put each one's log-probability and its score before it, a tab behind each.")
    ] = False,
    alignments: Annotated[
        bool,
        typer.Option(
            "--alignments",
            help="Put its links of source and target word before it, and a tab: 0-0 1-2, words counted from 0.",
        ),
    ] = False,
    sample: Annotated[
        bool,
        typer.Option(
            "--sample",
            help="Draw translations instead of searching; their score is the mean log-probability of a subword.",
        ),
    ] = False,
    top_k: Annotated[
        int | None,
        typer.Option(help="With --sample: from the K likeliest subwords only.  [default: all]", metavar="K"),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            help=f"With --sample: from the likeliest with this mass only.  [default: {Sampling.top_p}]", metavar="P"
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            help=f"With --sample: below 1 is safer, above 1 more varied.  [default: {Sampling.temperature}]",
            metavar="X",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help=f"With --sample: of the draws.  [default: {Sampling.seed}]", metavar="N")
    ] = None,
    on_bad_utf8: BadUtf8 = "error",
    line_buffered: Annotated[
        bool, typer.Option("--line-buffered", help="Answer each line by itself, at once.")
    ] = False,
    shortlist: Annotated[
        bool,
        typer.Option(
            "--shortlist",
            help="Search among the subwords that the source's can become (see `vtrans shortlist`): faster, and scores "
            "are of these alone.",
        ),
    ] = False,
    precision: Annotated[
        str | None,
        typer.Option(
            help="float32, bfloat16, float16, or int8: on a CPU, the weights of the projection in 8 bits.  "
            f"[default: {DECODING_PRECISIONS[0]}]",
            metavar="TYPE",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="torch or ctranslate2.  [default: what the model is made for]", metavar="NAME"),
    ] = None,
    device: Device = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object for each line, with all there is, to each subword.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Translate text: a line out for every line in.

    Reads stdin and writes stdout unless told otherwise; order is kept, blank lines stay blank.
    """
    drawing = {"seed": seed, "top_k": top_k, "top_p": top_p, "temperature": temperature}
    searching = {"beam": beam, "alpha": alpha, "length_penalty": length_penalty, "stop": stop}
    bounds = {"max_length": max_length, "min_length": min_length, "batch_tokens": batch_tokens}
    repetition = {"no_repeat_ngram": no_repeat_ngram, "repetition_penalty": repetition_penalty}
    search = _given({**searching, **bounds, **repetition})
    if not sample and _given(drawing):
        raise InputError(f"{_flag(_given(drawing))} only matters with --sample; add --sample or leave it out.")
    if sample and _given(searching):
        raise InputError(f"--sample draws instead of searching; leave out {_flag(_given(searching))}, or --sample.")
    if (scores or tsv) and as_json:
        raise InputError(f"--json holds the scores already; leave out {'--scores' if scores else '--tsv'}.")
    if scores and tsv:
        raise InputError("--tsv holds the scores already; leave out --scores.")
    _check_search(search)
    _check_output(output, [("--input", input_), ("--prefix", prefix), *(("--model", file) for file in model or [])])
    if input_ and prefix:
        _check_line_counts(input_, prefix, "prefix")
    sampling = Sampling(**_given(drawing)) if sample else None
    how = _bad_utf8(on_bad_utf8)
    _manage_memory()
    from vtrans.ranks import CPU, Ranks
    from vtrans.stream import serve, translate_stream
    from vtrans.translate import load

    console, ranks = Console(quiet=quiet), Ranks()
    settings: dict[str, Any] = {
        "nbest": nbest,
        "sampling": sampling,
        "form": "json" if as_json else "tsv" if tsv else "scores" if scores else "text",
        "alignments": alignments,
    }

    def loaded(console: Console) -> Translator:
        where, paths = ranks.device_name(device), list(model or [Path(DEFAULT_RUN)])
        how_fast: dict[str, Any] = {"engine": engine, "shortlist": shortlist, "precision": precision}
        translator = load(paths, device=where, console=console, weights=weight, **how_fast, **search)
        if translator.engine:
            translator.engine.token_logprobs = as_json
        return translator

    with _ended_by_signals(), ranks.joined(CPU):
        if ranks.rank > 0:
            serve(loaded, ranks, **settings)
            return
        begun = _lines_of(prefix, how, console) if prefix else nullcontext()
        with ranks.leading(), _source(input_, how, console) as (lines, extent), begun as prefixes:
            translator = loaded(console)
            translator.check_nbest(nbest, sampling, alignments=alignments, prefixes=prefix is not None)
            typing = input_ is None and _stdin_is_terminal()
            if typing:
                console.info("reading from the terminal, a line at a time; end with Ctrl-D")
            if ranks.world > 1:
                console.info(f"{ranks.world} processes share the input")
            with _writer(output) as stream, _progress(console, stream, shown=not typing, share=extent.known) as counter:
                translate_stream(
                    translator,
                    lines,
                    stream,
                    **settings,
                    prefixes=prefixes,
                    line_buffered=line_buffered,
                    progress=lambda lines, size: counter.update(lines, extent.share(size)),
                    ranks=ranks,
                )
    _say_how_it_went(translator.counts, console)


@app.command()
def logprob(
    src: Annotated[Path, typer.Argument(help="Source text.", metavar="SRC")],
    tgt: Annotated[Path, typer.Argument(help="Its translations, line by line.", metavar="TGT")],
    model: Models = None,
    weight: Weights = None,
    output: Output = None,
    alpha: Alpha = None,
    length_penalty: LengthPenalty = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            help="Padded subwords of the larger side of a batch.  "
            f"[default: the model's, else {SearchConfig.batch_tokens}]",
            metavar="N",
        ),
    ] = None,
    on_bad_utf8: BadUtf8 = "error",
    device: Device = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object for each line, with the log-probability of each subword.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Score given translations with the model.

    Forced decoding: each pair of lines gives its log-probability (natural, EOS counted), a tab, and its score
    by the length penalty. A blank source has a blank translation for certain (0), and any other with -inf; a pair
    too long to be translated in one piece gives nan. The text is encoded as subwords anew, which a search may have
    put together otherwise.
    """
    search = _given({"alpha": alpha, "length_penalty": length_penalty, "batch_tokens": batch_tokens})
    _check_search(search)
    _check_output(output, [("SRC", src), ("TGT", tgt), *(("--model", path) for path in model or [])])
    how, console = _bad_utf8(on_bad_utf8), Console(quiet=quiet)
    _check_line_counts(src, tgt, "translation")
    _manage_memory()
    from vtrans.stream import logprob_stream
    from vtrans.translate import load

    with _lines_of(src, how, console) as sources, _lines_of(tgt, how, console) as targets:
        translator = load(list(model or [Path(DEFAULT_RUN)]), device=device, console=console, weights=weight, **search)
        with _writer(output) as stream, _progress(console, stream, what="scored") as counter:
            total = logprob_stream(translator, sources, targets, stream, as_json=as_json, done=counter.advance)
    counts = translator.counts
    if counts.tgt_tokens:
        mean = total / counts.tgt_tokens
        console.info(
            f"{_many(counts.lines, 'pair', 'in')} {counts.seconds:.1f} s; {counts.tgt_tokens:,} target subwords with "
            f"EOS, of log-probability {mean:.4f} in the mean (perplexity {math.exp(min(-mean, 700)):.2f})"
        )


@app.command()
def score(
    references: Annotated[
        list[Path],
        typer.Argument(help="Reference translations; several are several references.", metavar="REF"),
    ],
    hyp: Annotated[Path | None, typer.Option(help="Translations to score.  [default: stdin]", metavar="FILE")] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="bleu, chrf, chrf++ or ter; repeat.  [default: bleu and chrf]", metavar="NAME"),
    ] = None,
    tokenize: Annotated[
        str | None, typer.Option(help="sacrebleu's tokenizer for BLEU.  [default: 13a]", metavar="NAME")
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(help="Another system's translations: paired bootstrap significance.", metavar="FILE"),
    ] = None,
    on_bad_utf8: BadUtf8 = "error",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score translations against references.

    Through sacrebleu; its signature travels with each number.
    """
    from vtrans.score import DEFAULT_METRICS, compare, data_warnings
    from vtrans.score import score as run_score

    console = Console(quiet=quiet)
    how = _bad_utf8(on_bad_utf8)
    if hyp is None and _stdin_is_terminal():
        raise InputError(
            "there is no hypothesis; give one with --hyp FILE or as `vtrans score REF < FILE`"
            + (" (the files named are all references)." if len(references) > 1 else ".")
        )
    refs = [_read_all(path, how, console) for path in references]
    names = [str(path) for path in references]
    hypotheses = _read_all(hyp, how, console)
    metrics = metric or DEFAULT_METRICS
    settings: dict[str, Any] = {"tokenize": tokenize, "lowercase": lowercase}
    labels: dict[str, Any] = {"hyp_name": str(hyp or "stdin"), "ref_names": names}
    results: list[Any]
    if baseline is None:
        results = list(run_score(hypotheses, refs, metrics, **settings, **labels))
    else:
        other = _read_all(baseline, how, console)
        results = list(compare(other, hypotheses, refs, metrics, **settings, **labels, baseline_name=str(baseline)))
    for sentence in data_warnings(hypotheses, refs, **settings):
        console.warn(sentence)
    if as_json:
        _out(json.dumps([result.as_dict() for result in results], ensure_ascii=False, indent=2))
    else:
        for result in results:
            _out(result.text)


# What the commands share.


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that the user set: the others have their defaults where they are defined."""
    return {key: value for key, value in options.items() if value is not None}


def _many(number: int, noun: str, rest: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'} {rest}"


def _flag(options: dict[str, Any]) -> str:
    """The first of the options as the user writes it."""
    return "--" + next(iter(options)).replace("_", "-")


def _check_search(options: dict[str, Any]) -> None:
    for key, value in options.items():
        section_from(SearchConfig, "search", {key: value}, _flag({key: value}))


def _check_output(output: Path | None, inputs: list[tuple[str, Path | None]]) -> None:
    for option, file in inputs:
        if output and file and output.is_file() and file.exists() and output.samefile(file):
            raise InputError(f"--output {output} is the file of {option}, which would be lost; name another.")


def _check_line_counts(src: Path, other: Path, what: str) -> None:
    """Counts the lines of two files before the work begins; pipes, read once, are met when one of them ends."""
    if src.is_file() and other.is_file():
        counts = []
        for path in (src, other):
            with open_bytes(path) as stream:
                counts.append(sum(1 for _ in read_lines(stream, str(path), on_bad_utf8="replace")))
        if counts[0] != counts[1]:
            raise InputError(
                f"{src} has {counts[0]:,} lines, but {other} has {counts[1]:,}; each line needs its {what}."
            )


def _bad_utf8(how: str) -> OnBadUtf8:
    if how not in get_args(OnBadUtf8):
        raise InputError(f"--on-bad-utf8 must be error or replace, but is {how!r}.")
    return cast(OnBadUtf8, how)


def _stdin_is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


@contextmanager
def _source(path: Path | None, on_bad_utf8: OnBadUtf8, console: Console) -> Iterator[tuple[Iterator[str], Extent]]:
    """The lines of a file or of stdin, how much there is, and a warning about what reading them met."""
    report, name = LineReport(), str(path or "stdin")
    with open_bytes(path) if path else _stdin() as source:
        yield read_lines(source, name, on_bad_utf8=on_bad_utf8, report=report), Extent(source, report)
    if report.odd_line_ends:
        odd = _many(report.odd_line_ends, "character", "that other tools take for a line end became a space")
        console.warn(f"{name}: {odd}")
    if report.replacements:
        console.warn(f"{name}: {_many(report.replacements, 'bad UTF-8 sequence', 'became U+FFFD')}")


@contextmanager
def _lines_of(path: Path | None, on_bad_utf8: OnBadUtf8, console: Console) -> Iterator[Iterator[str]]:
    with _source(path, on_bad_utf8, console) as (lines, _):
        yield lines


def _stdin() -> BinaryIO:
    """The bytes of stdin, unbuffered: a thread that still waits for them at the end holds no lock."""
    try:
        os.set_blocking(0, True)  # else a pipe that is empty for a moment would look like its end
        return cast(BinaryIO, open(0, "rb", buffering=0, closefd=False))
    except OSError as error:
        raise FileError(f"stdin can't be read: {error.strerror}.") from None


def _read_all(path: Path | None, on_bad_utf8: OnBadUtf8, console: Console) -> list[str]:
    with _lines_of(path, on_bad_utf8, console) as lines:
        return list(lines)


@contextmanager
def _writer(path: Path | None) -> Iterator[BinaryIO]:
    """stdout, or a file, packed if its name says so, that is replaced once it is whole."""
    if path is None:
        yield _stdout()
    else:
        with writing(path) as stream:
            yield stream


def _stdout() -> BinaryIO:
    if sys.stdout is None:
        raise FileError("stdout is closed; there is nowhere to write the result.")
    return sys.stdout.buffer


def _out(text: str) -> None:
    """A line of the result."""
    stream = _stdout()
    stream.write(text.encode() + b"\n")
    stream.flush()


def _result_console() -> Console:
    """Where tables that are the result go: stdout, in UTF-8 wherever that is no terminal."""
    stream = sys.stdout
    if stream is None:
        raise FileError("stdout is closed; there is nowhere to write the result.")
    if isinstance(stream, io.TextIOWrapper) and not stream.isatty():
        stream.reconfigure(encoding="utf-8")
    return Console(stream=stream)


@contextmanager
def _progress(
    console: Console, out: BinaryIO, *, what: str = "translated", shown: bool = True, share: bool = False
) -> Iterator[Counter]:
    """Counts sentences on stderr, unless that would be drawn over lines that are typed or shown.

    What reads a pipe, such as `head`, mostly writes to the same terminal: there a line is printed now and
    then, in place of a display that is drawn over and over.
    """
    if not shown or out.isatty():
        console = Console(quiet=True)
    drawn = not (out is getattr(sys.stdout, "buffer", None) and stat.S_ISFIFO(os.fstat(out.fileno()).st_mode))
    with console.progress(what, unit="sentences", rate=True, shares=share, drawn=drawn) as counter:
        yield counter


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM, and SIGHUP of a terminal that closes, end a command as Ctrl-C does: tidily. What compiled code makes
    of a signal's exception, an error of its own, counts as that signal too."""
    came: list[str] = []

    def end(number: int, frame: object) -> None:
        came.append("" if number == signal.SIGINT else signal.Signals(number).name)
        raise KeyboardInterrupt(came[-1])

    names = ("SIGINT", "SIGTERM", "SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = (signal.SIG_DFL, signal.default_int_handler)
    usual = {n: signal.signal(n, end) for n in numbers if signal.getsignal(n) in before}
    try:
        yield
    except Exception as error:
        if came:
            raise KeyboardInterrupt(came[-1]) from error
        raise
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def _say_how_it_went(counts: Counts, console: Console) -> None:
    seconds = max(counts.seconds, 1e-9)
    console.info(
        f"{_many(counts.lines, 'line', 'in')} {seconds:.1f} s of translating "
        f"({counts.lines / seconds:,.1f} lines/s, {counts.tgt_tokens / seconds:,.0f} target subwords/s)"
    )
    if counts.unfinished:
        console.warn(_many(counts.unfinished, "line", "whose translation did not end within its limit"))
    if counts.missing:
        console.warn(_many(counts.missing, "n-best place", "left empty: the search found no further hypothesis"))


def _manage_memory() -> None:
    """Tells glibc to keep large blocks it is given back, whose page faults cost a quarter of the time; and oneDNN to
    keep no more than a hundred or so of the kernels that it makes for each shape of a product.

    Each kernel takes half a megabyte to two, and their places split what is free between them: with the 1,024 of its
    own cache, and as many of torch's beside it, a training of 2 million weights grew to 3.8 GB. After 40 updates of
    3+3 layers, D 256, the peak is 1.9 GB with 512 of them, and 1.5 with 128, which are 4% slower. It has to be called
    before the first product. A variable that the user set wins. Where the C library is another one, it keeps its ways.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    os.environ.setdefault("LRU_CACHE_CAPACITY", "1")  # torch's, which speeds nothing up beside oneDNN's own
    keep, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = 1 << 30, -1, -3
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    for variable, parameter in (
        ("MALLOC_MMAP_THRESHOLD_", M_MMAP_THRESHOLD),
        ("MALLOC_TRIM_THRESHOLD_", M_TRIM_THRESHOLD),
    ):
        if variable not in os.environ:
            libc.mallopt(parameter, keep)


def main() -> None:
    """Runs the command line and exits with its code; the one place where errors are printed."""
    debug = "--debug" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--debug"]
    try:
        command = typer.main.get_command(app)
        # Not command.main(), which has answers of its own to a broken pipe and to Ctrl-C.
        with command.make_context("vtrans", list(words) or ["--help"]) as context:
            command.invoke(context)
        code = 0
    except typer.Exit as error:
        code = error.exit_code if words else _failed("a command is missing.", 2, debug)
    except VtransError as error:
        code = _failed(str(error), error.exit_code, debug)
    except (typer.Abort, KeyboardInterrupt) as error:
        # The signals that do not come from the keyboard give their name.
        by = str(error)
        code = _failed(f"ended by {by}." if by else "interrupted.", 1, debug) if not _rank() else 1
    except BrokenPipeError:
        # The reader of our output has gone: nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 1
    except Exception as error:
        if isinstance(error, _UsageError):
            code = 2 if _rank() else _failed(_usage_message(error), 2, debug)  # the same for all of them
        else:
            what = " ".join(str(error).split()) or "no message"
            code = _failed(f"{type(error).__name__}: {what} (--debug shows where)", 1, debug)
    if "WORLD_SIZE" in os.environ and code:
        # What an exception has left of the talk between processes is not waited for.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.flush()
        os._exit(code)
    sys.exit(code)


def _rank() -> int:
    """The number of this process among those that torchrun has started, 0 for the only one."""
    return int(os.environ.get("RANK", "0"))


def _usage_message(error: Any) -> str:
    """What Typer says, in one sentence; an unknown word with the nearest known one."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    path, command = (context.command_path, context.command) if context else ("vtrans", None)
    if unknown := re.match(r"No such (command|option):? '?([^ '.]+)", message):
        kind, word = unknown.groups()
        known = getattr(command, "commands", None) if kind == "command" else None
        if known is None:
            known = [name for parameter in getattr(command, "params", ()) for name in parameter.opts]
        # By the letters alone: with the dashes --resume would be like --fresh, which throws a run away.
        names = {name.lstrip("-"): name for name in known}
        close = difflib.get_close_matches(word.lstrip("-"), names, n=1, cutoff=0.6)
        message = f"there is no {kind} {word}" + (f"; did you mean {names[close[0]]}?" if close else "")
    if message.startswith("Got unexpected extra argument") and path.endswith("translate"):
        message += "; a file to translate is given with --input"
    return f"{message}{' ' if message.endswith('?') else '; '}`{path} --help` lists what there is."


def _failed(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    Console().error(f"process {_rank()}: {message}" if _rank() else message)
    return code
