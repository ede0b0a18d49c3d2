"""Learns subword vocabularies with SentencePiece, from any sentences or from a random sample of the training pairs.

An explicit size is never adjusted silently: an impossible size is refused, and the error names the nearest possible
size.
"""

from __future__ import annotations

import io
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Any

import regex
import sentencepiece

from vtrans.data.options import DEFAULT_VOCAB_SIZE, PrepareOptions
from vtrans.data.preparation.encode import ADVICE, encoders
from vtrans.data.preparation.parallel_text import Sample, Split
from vtrans.system.console import Console
from vtrans.system.errors import InputError
from vtrans.system.workers import map_in_workers
from vtrans.text.normalization import NFC, nfc_rules
from vtrans.text.piece_table import is_byte
from vtrans.text.spm import with_normalization
from vtrans.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, SPECIAL_PIECES, UNK_ID, Vocabulary, words_between_spaces

# A boundary that no learned subword crosses, and its places: next to digits that SentencePiece does not split.
_EDGE, _DIGIT = "\uffff", regex.compile(r"(?<=[\p{Nd}--[0-9\uff10-\uff19]])|(?=[\p{Nd}--[0-9\uff10-\uff19]])", regex.V1)


class SizeError(InputError):
    """The text does not allow a vocabulary of this size; `nearest` is the nearest possible size."""

    def __init__(self, size: int, nearest: int, name: str) -> None:
        bound = "at most" if nearest < size else "at least"
        super().__init__(
            f"`vocab_size` must be {bound} {nearest} for {name}, got {size}; leave it unset to use the nearest "
            "possible size."
        )
        self.nearest = nearest


def learn_vocabularies(split: Split, options: PrepareOptions, console: Console) -> tuple[Vocabulary, Vocabulary]:
    """Returns `options.vocabularies`, or learns the source and target vocabularies; the same object if they are equal.

    Raises SizeError if the text of a side does not allow `options.vocab_size`, and InputError if the given source
    vocabulary lacks a tag.
    """
    if not options.vocabularies:
        sides = ("src", "tgt") if options.separate else ("both",)
        vocabularies = [_learn_side(split, side, options, console) for side in sides]
        return vocabularies[0], vocabularies[-1]
    src, tgt = map(Vocabulary, options.vocabularies)
    for tag in options.tags:
        if tag not in src.tags and not options.vocab_add:
            raise InputError(
                f"`tags` must be tags of the vocabulary that `vocab_from` gives ({', '.join(src.tags) or 'none'}), got "
                f"{tag!r}; add it with `vocab_add`, or leave `vocab_from` out to learn a vocabulary with this tag."
            )
    return src, src if src.digest == tgt.digest else tgt


def _learn_side(split: Split, side: str, options: PrepareOptions, console: Console) -> Vocabulary:
    name = {"src": "the source side", "tgt": "the target side"}.get(side, "the training text")
    pairs = min(options.sample, split.usable)
    console.info(f"learning the vocabulary of {name} from {pairs:,} pairs ...")
    with console.progress(f"reading {name} for its vocabulary", pairs, "pairs") as progress:
        tags = () if side == "tgt" else options.tags
        sample = Sample(split, side, options.sample, progress.advance)
        return learn(sample, options.vocab_size, options, name, tags, encoders(pairs, options.threads))


def learn(
    sentences: Iterable[str],
    size: int | None,
    options: PrepareOptions,
    name: str = "the training text",
    tags: Iterable[str] = (),
    workers: int = 1,
) -> Vocabulary:
    """Returns a vocabulary learned from all of `sentences`, which may be iterated several times.

    A `size` of None means DEFAULT_VOCAB_SIZE or the nearest possible size. Other settings come from `options`. Each
    symbol of `options` and each of `tags` gets a piece, whether or not it occurs. Equal input gives equal bytes,
    whatever the number of `workers`, which count words. Errors call the text `name`. Raises SizeError if the text does
    not allow `size`, InputError if it allows no vocabulary.
    """
    assert not isinstance(sentences, Iterator), "learning may read the sentences twice"
    settings = {
        "model_type": options.subword,
        "character_coverage": options.character_coverage,
        "split_digits": options.split_digits,
        "pretokenization_delimiter": _EDGE if options.split_digits else "",
        "user_defined_symbols": list(options.symbols),
        "control_symbols": list(dict.fromkeys(tags)),
    }
    by_word = options.subword == "bpe" and options.normalization == NFC
    if by_word:
        settings["input_format"] = "tsv"
    wanted = DEFAULT_VOCAB_SIZE if size is None else size
    trial, tried = wanted, set[int]()
    while trial not in tried:  # SentencePiece suggests a size; try it before reporting it
        tried.add(trial)
        with _normalization(options.normalization) as rule:
            outcome = _train(_counted(sentences, workers) if by_word else sentences, trial, settings | rule, name)
        if isinstance(outcome, bytes):
            if size is not None and trial != size:
                raise SizeError(size, trial, name)
            return Vocabulary(with_normalization(outcome, options.normalization))
        trial = outcome
    raise InputError(f"no vocabulary of about {wanted} pieces can be learned from {name}; give more text.")


def _counted(sentences: Iterable[str], workers: int) -> Iterator[str]:
    """Yields the words of sentences, each with a tab and its number. BPE learns the same from them, in a quarter of the
    time and without holding the sentences. Their order depends on `workers`, but SentencePiece sorts them."""
    batches = sentences.batches() if isinstance(sentences, Sample) else [list(sentences)]
    texts = chain(map("\n".join, batches), repeat(None, workers))
    counts = Counter[str]()
    for some in map_in_workers(_WordCounter, texts, workers, "counting words", ADVICE):
        counts.update(some)
    counts.pop("", None)
    while counts:  # SentencePiece copies each word
        word, number = counts.popitem()
        yield "\t".join((word.replace("\t", " "), str(number)))


class _WordCounter:
    """Counts the words of lines. Returns the counts for None, and nothing before: the texts have many words in
    common."""

    def __init__(self) -> None:
        self._counts = Counter[str]()

    def __call__(self, text: str | None) -> Counter[str]:
        if text is None:
            return self._counts
        # Splitting a whole text takes a sixth less time than splitting its lines.
        lines = text.split("\n") if "\u2581" in text else [text.replace("\n", " ")]
        self._counts.update(chain.from_iterable(map(words_between_spaces, lines)))
        return Counter()


@contextmanager
def _normalization(rule: str) -> Iterator[dict[str, str]]:
    """Yields SentencePiece's settings for a normalization rule."""
    if rule != NFC:
        yield {"normalization_rule_name": rule}
        return
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        for sides in nfc_rules().items():
            print(*(" ".join(f"{ord(character):X}" for character in side) for side in sides), sep="\t", file=file)
        file.flush()
        yield {"normalization_rule_tsv": file.name}


def _train(sentences: Iterable[str], size: int, settings: dict[str, Any], name: str) -> bytes | int:
    """Returns the bytes of the model, or the size that SentencePiece suggests instead."""
    failure: list[BaseException] = []
    unlearned, edge = ["\u2585", _EDGE, *settings["control_symbols"]], settings["pretokenization_delimiter"]

    def guarded() -> Iterator[str]:
        # SentencePiece skips sentences with U+2585, its mark for unknown characters, and fails if a tag occurs in the
        # text. It also turns exceptions of the iterator into a RuntimeError, losing their type.
        try:
            for sentence in sentences:
                text, *number = sentence.split("\t") if "input_format" in settings else [sentence]
                for piece in unlearned:
                    text = text.replace(piece, " ")
                text = text if text.isascii() else _DIGIT.sub(edge, text)
                yield "\t".join((text, *number))
        except BaseException as error:
            failure.append(error)
            raise

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=guarded(),
            model_writer=model,
            vocab_size=size,
            **settings,
            byte_fallback=True,
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            pad_piece=SPECIAL_PIECES[PAD_ID],
            input_sentence_size=0,
            shuffle_input_sentence=False,
            max_sentence_length=1 << 30,  # bytes; the default would silently skip longer lines
            # Sums of the unigram model depend on the number of threads, which the model also records. A constant gives
            # equal bytes on every machine.
            num_threads=8,
            minloglevel=2,
        )
    except RuntimeError as error:
        if failure:
            raise failure[0] from None
        message = str(error)
        for pattern in (r"set it to a value <= (\d+)", r"smaller than required_chars\. \d+ vs (\d+)"):
            if limit := re.search(pattern, message):
                return int(limit[1])
        if "sentences_.empty()" in message or "all_chars_count" in message:
            raise InputError(f"{name} contains no text to learn a vocabulary from.") from None
        raise InputError(f"SentencePiece cannot learn a vocabulary from {name}: {message}") from None
    return model.getvalue()


def check_symbols(options: PrepareOptions) -> None:
    """Raises InputError for the first symbol or tag that cannot be a piece."""
    given = [
        *(("symbols", symbol) for symbol in options.symbols),
        *(("tags", tag) for tag in dict.fromkeys(options.tags)),
    ]
    for place, (name, symbol) in enumerate(given):
        if not symbol or " " in symbol or not symbol.isprintable() or set(symbol) & set("\u2581\u2585"):
            raise InputError(f"`{name}` must be printable characters without a space, such as <BT>, got {symbol!r}.")
        if symbol in SPECIAL_PIECES or is_byte(symbol):
            raise InputError(f"`{name}` {symbol} is already a piece of every vocabulary; choose another name.")
        if symbol in (other for _, other in given[:place]):
            raise InputError(f"`{name}` {symbol} is given twice; give it once.")
