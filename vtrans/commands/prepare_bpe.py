"""`vtrans prepare-bpe`: the options of a PrepareOptions, which `prepare` checks."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from vtrans.commands.lines import print_line
from vtrans.commands.options import BadUtf8, Json, Quiet, bad_utf8
from vtrans.console import Console
from vtrans.data.options import DEFAULT_VOCAB_SIZE, NORMALIZATIONS, PrepareOptions
from vtrans.errors import InputError

_text, _vocabulary, _filter, _output = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("Text", "Vocabulary", "Filter", "Output")
)
Src = Annotated[
    list[Path],
    _text(help="Source text, one sentence per line. Repeat it, and --tgt, for several corpora.", metavar="FILE"),
]
Tgt = Annotated[list[Path], _text(help="The translation of --src, line by line.", metavar="FILE")]
ValidSrc = Annotated[
    list[Path] | None,
    _text(
        help="Source text for validation.  [default: random sentences are held out of the training text]",
        metavar="FILE",
    ),
]
ValidTgt = Annotated[list[Path] | None, _text(help="The translation of --valid-src.", metavar="FILE")]
Alignments = Annotated[
    list[Path] | None,
    _text(
        help="The word alignment of each line, such as 0-0 1-2, for guided alignment. Give one file per --src.",
        metavar="FILE",
    ),
]
Align = Annotated[
    bool, _text("--align", help="Align the words of the training text, for guided alignment, instead of --alignments.")
]
SrcLang = Annotated[
    list[str] | None,
    _text(
        help="The language of --src, such as en or pt-BR, which the model records. Give one for all corpora, or one "
        "per corpus.  [default: what the file names end in, if that is a language]",
        metavar="CODE",
    ),
]
TgtLang = Annotated[list[str] | None, _text(help="The language of --tgt.", metavar="CODE")]
Tags = Annotated[
    list[str] | None,
    _text(
        "--tag",
        help="For a model of several target languages: the tag with which each source of a corpus begins, such as "
        "'>>de<<'. Give one per --src. `vtrans translate --to de` then puts it before each line.",
        metavar="TEXT",
    ),
]
ValidTags = Annotated[
    list[str] | None,
    _text(
        "--valid-tag",
        help="The tag of a --valid-src. Give one per --valid-src.  [default: the tag of the language that the name of "
        "--valid-tgt ends in]",
        metavar="TEXT",
    ),
]
VocabFrom = Annotated[
    Path | None,
    _vocabulary(help="Use the vocabulary of this model instead of learning one, to fine-tune it.", metavar="RUN|FILE"),
]
VocabSize = Annotated[
    int | None,
    _vocabulary(
        help=f"The number of subwords.  [default: {DEFAULT_VOCAB_SIZE}, or the nearest number that the text allows]",
        metavar="N",
    ),
]
Separate = Annotated[
    bool, _vocabulary("--separate", help="Learn one vocabulary per side instead of a joint vocabulary.")
]
Kind = Annotated[str, _vocabulary(help="The kind of subwords: bpe or unigram.", metavar="KIND")]
Normalization = Annotated[
    str,
    _vocabulary(
        help=f"SentencePiece's normalization rule: {', '.join(NORMALIZATIONS)} (no normalization).", metavar="RULE"
    ),
]
Coverage = Annotated[
    float,
    _vocabulary(
        help="The share of all characters of the text that subwords cover. Other characters are encoded as bytes.",
        metavar="SHARE",
    ),
]
Symbols = Annotated[
    list[str] | None,
    _vocabulary("--symbol", help="A subword that is never split, such as <BT>. Repeat it for several.", metavar="TEXT"),
]
SampleSize = Annotated[int, _vocabulary(help="Learn the vocabulary from this many random pairs at most.", metavar="N")]
MaxTokens = Annotated[int, _filter(help="Drop training pairs with more subwords than this on a side.", metavar="N")]
MaxRatio = Annotated[
    float,
    _filter(
        help="Drop long training pairs with one side more than this many times as long as the other.", metavar="RATIO"
    ),
]
Out = Annotated[Path, _output(help="The data folder to make.", metavar="FOLDER")]
Force = Annotated[
    bool, _output("--force", help="Replace a data folder that was made from other inputs or with other options.")
]
DryRun = Annotated[
    bool,
    _output("--dry-run", help="Write nothing. Count all lines, encode some, and print the time and space needed."),
]
Seed = Annotated[int, typer.Option(help="The seed for choosing random pairs.", metavar="N")]
Threads = Annotated[int, typer.Option(help="The number of processors to use for encoding; 0 means all.", metavar="N")]


def prepare_bpe(
    src: Src,
    tgt: Tgt,
    alignments: Alignments = None,
    align: Align = PrepareOptions.align,
    valid_src: ValidSrc = None,
    valid_tgt: ValidTgt = None,
    src_lang: SrcLang = None,
    tgt_lang: TgtLang = None,
    tags: Tags = None,
    valid_tags: ValidTags = None,
    on_bad_utf8: BadUtf8 = PrepareOptions.on_bad_utf8,
    vocab_from: VocabFrom = None,
    vocab_size: VocabSize = PrepareOptions.vocab_size,
    separate: Separate = PrepareOptions.separate,
    subword: Kind = PrepareOptions.subword,
    normalization: Normalization = PrepareOptions.normalization,
    character_coverage: Coverage = PrepareOptions.character_coverage,
    symbols: Symbols = None,
    sample: SampleSize = PrepareOptions.sample,
    max_tokens: MaxTokens = PrepareOptions.max_tokens,
    max_ratio: MaxRatio = PrepareOptions.max_ratio,
    out: Out = Path(PrepareOptions.out),
    force: Force = PrepareOptions.force,
    dry_run: DryRun = False,
    seed: Seed = PrepareOptions.seed,
    threads: Threads = PrepareOptions.threads,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn subwords from parallel text and encode it.

    The files --src and --tgt contain one sentence per line, each line the translation of the other. The result is a
    data folder for `vtrans train`: a vocabulary and the encoded pairs. Files may be compressed (.gz, .xz, .bz2).
    """
    if dry_run and quiet and not as_json:
        raise InputError("--dry-run prints an estimate, which --quiet hides; leave out one of them, or add --json.")
    from vtrans.data.prepare import prepare

    vocabularies: tuple[bytes, ...] = ()
    if vocab_from is not None:
        from vtrans.checkpoint import choose_model, read_vocabularies

        vocabularies = tuple(vocabulary.proto for vocabulary in read_vocabularies(choose_model(vocab_from).file))
    options = PrepareOptions(
        src=tuple(src),
        tgt=tuple(tgt),
        alignments=tuple(alignments or ()),
        align=align,
        valid_src=tuple(valid_src or ()),
        valid_tgt=tuple(valid_tgt or ()),
        src_lang=tuple(src_lang or ()),
        tgt_lang=tuple(tgt_lang or ()),
        tags=tuple(tags or ()),
        valid_tags=tuple(valid_tags or ()),
        out=out,
        vocabularies=vocabularies,
        vocab_size=vocab_size,
        separate=separate,
        subword=cast(Any, subword),  # prepare checks it
        normalization=normalization,
        character_coverage=character_coverage,
        symbols=tuple(symbols or ()),
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
