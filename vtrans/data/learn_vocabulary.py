"""The subwords of parallel text, learnt from random pairs of it: one vocabulary for both sides or one a side, of a size
that the text allows.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence

import sentencepiece

from vtrans.config import DEFAULT_VOCAB_SIZE, PrepareOptions, Subword
from vtrans.console import Console
from vtrans.data.parallel_text import Sample, TrainingText
from vtrans.data.vocabulary import BOS_ID, EOS_ID, PAD_ID, SPECIAL_PIECES, UNK_ID, Vocabulary
from vtrans.errors import InputError

_BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")


def learn_sides(source: TrainingText, pairs: int, options: PrepareOptions, console: Console) -> list[Vocabulary]:
    """The vocabulary of both sides, or one a side; `pairs` of the source have no blank side."""
    sides = ("src", "tgt") if options.separate else ("both",)
    size, works = options.vocab_size, options.vocab_size
    tried, refused = set(), None
    while works not in tried:  # what one side allows may be too much or too little for the other
        tried.add(works)
        try:
            vocabularies = [_learn_side(source, side, pairs, works, options, console) for side in sides]
        except SizeError as error:
            works, refused = error.works, refused or error
            continue
        if refused is None:
            return vocabularies
        assert size is not None
        assert works is not None
        raise refused if refused.works == works else SizeError(size, works, "the pair of sides")
    raise InputError(f"--vocab-size {size} does not fit both sides, and no size does; leave it unset.")


def _learn_side(
    source: TrainingText, side: str, pairs: int, size: int | None, options: PrepareOptions, console: Console
) -> Vocabulary:
    name = {"src": "the source side", "tgt": "the target side"}.get(side, "the training text")
    drawn = min(options.sample, pairs)
    with console.progress(f"reading {name} for its vocabulary", drawn, "pairs") as progress:
        read = 0

        def seen() -> None:
            nonlocal read
            read += 1
            progress.advance()
            if read == drawn:  # SentencePiece learns when it has read all, and says nothing meanwhile
                console.info(f"learning the vocabulary of {name} from {drawn:,} pairs ...")

        return learn_from(Sample(source, side, options.sample, pairs, seen), size, options, name)


def learn_from(lines: Iterable[str], size: int | None, options: PrepareOptions, name: str) -> Vocabulary:
    """The vocabulary of these lines, in the kind and with the rules of the options."""
    return learn(
        lines,
        size=size,
        kind=options.subword,
        coverage=options.character_coverage,
        normalization=options.normalization,
        symbols=options.symbols,
        name=name,
    )


def check_symbols(symbols: Sequence[str]) -> None:
    """InputError for the first symbol of the user that can't be one."""
    for place, symbol in enumerate(symbols):
        if not symbol or " " in symbol or not symbol.isprintable() or set(symbol) & set("\u2581\u2585"):
            raise InputError(f"--symbol must be printable characters without a space, such as <BT>, but is {symbol!r}.")
        if symbol in SPECIAL_PIECES or _BYTE_PIECE.fullmatch(symbol):
            raise InputError(f"--symbol {symbol} is a piece of every vocabulary already; choose another name.")
        if symbol in symbols[:place]:
            raise InputError(f"--symbol {symbol} is given twice; give it once.")


class SizeError(InputError):
    """A size that a text does not allow; `works` is the nearest one that it does."""

    def __init__(self, size: int, works: int, name: str) -> None:
        kindly, wrong = ("at most", "large") if works < size else ("at least", "small")
        super().__init__(
            f"--vocab-size {size} is too {wrong} for {name}, which allows {kindly} {works}; "
            f"use --vocab-size {works}, or leave it unset."
        )
        self.works = works


def learn(
    sentences: Iterable[str],
    *,
    size: int | None,
    kind: Subword,
    coverage: float,
    normalization: str,
    symbols: Sequence[str] = (),
    name: str = "the training text",
) -> Vocabulary:
    """A vocabulary learnt from all of `sentences`, which may be iterated several times.

    `size` None: DEFAULT_VOCAB_SIZE, or the nearest size that the text allows. Raises SizeError, naming
    the size that works, if an explicit size is above or below what the text allows. `symbols` get a piece
    each, whether or not the text has them. Equal input gives equal bytes.
    """
    assert not isinstance(sentences, Iterator), "learning may read the sentences twice"
    wanted = DEFAULT_VOCAB_SIZE if size is None else size
    trial, seen = wanted, set[int]()
    while trial not in seen:  # SentencePiece names the size that works; it is believed once it has worked
        seen.add(trial)
        outcome = _train(sentences, trial, kind, coverage, normalization, symbols, name)
        if isinstance(outcome, bytes):
            if size is not None and trial != size:
                raise SizeError(size, trial, name)
            return Vocabulary(outcome)
        trial = outcome
    raise InputError(f"no vocabulary of about {wanted} pieces can be learnt from {name}; give more text.")


def _train(
    sentences: Iterable[str],
    size: int,
    kind: Subword,
    coverage: float,
    normalization: str,
    symbols: Sequence[str],
    name: str,
) -> bytes | int:
    """The model's bytes, or the size that SentencePiece names instead of this one."""
    failure: list[BaseException] = []

    def guarded() -> Iterator[str]:
        # SentencePiece skips a sentence with U+2585, its mark for an unknown character; and it would
        # turn an exception of ours into a RuntimeError without its type.
        try:
            for sentence in sentences:
                yield sentence.replace("\u2585", " ")
        except BaseException as error:
            failure.append(error)
            raise

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=guarded(),
            model_writer=model,
            model_type=kind,
            vocab_size=size,
            character_coverage=coverage,
            byte_fallback=True,
            normalization_rule_name=normalization,
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            pad_piece=SPECIAL_PIECES[PAD_ID],
            user_defined_symbols=list(symbols),
            input_sentence_size=0,
            shuffle_input_sentence=False,
            max_sentence_length=1 << 30,  # bytes; the default would skip longer lines without a word
            # Unigram's sums depend on the number of threads, and the number is written into the model:
            # a constant, so that equal text gives equal bytes on every machine.
            num_threads=8,
            minloglevel=2,
        )
    except RuntimeError as error:
        if failure:
            raise failure[0] from None
        message = str(error)
        if found := re.search(r"set it to a value <= (\d+)", message):
            return int(found[1])
        if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
            return int(found[1])
        if "sentences_.empty()" in message or "all_chars_count" in message:
            raise InputError(f"{name} holds no text to learn a vocabulary from.") from None
        raise InputError(f"SentencePiece can't learn a vocabulary from {name}: {message}") from None
    return model.getvalue()
