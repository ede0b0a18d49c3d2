"""`vtrans prepare-bpe`: its options are PrepareOptions, which the room behind it checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from vtrans.commands.lines import print_line
from vtrans.commands.options import BadUtf8, Json, Quiet, bad_utf8
from vtrans.config import DEFAULT_VOCAB_SIZE, NORMALIZATIONS, PrepareOptions
from vtrans.console import Console
from vtrans.errors import InputError


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
        int, typer.Option(help="Training pairs with more subwords on a side are dropped.", metavar="N")
    ] = PrepareOptions.max_tokens,
    max_ratio: Annotated[
        float, typer.Option(help="Long training pairs of odder lengths are dropped.", metavar="RATIO")
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
    from vtrans.data.prepare import prepare

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
        on_bad_utf8=bad_utf8(on_bad_utf8),
        seed=seed,
        threads=threads,
        force=force,
    )
    report = prepare(options, Console(quiet=quiet), dry_run=dry_run)
    if as_json:
        print_line(json.dumps(report, ensure_ascii=False, indent=2, sort_keys=True))
