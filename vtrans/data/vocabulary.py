"""Subword vocabularies: SentencePiece learns and applies them; the special ids; the overlap of two sides.

A vocabulary is the bytes of one SentencePiece model. `byte_fallback` is always on, so no character
is ever unknown: what has no piece is spelt in bytes. Two things are not kept: runs of spaces become
one, and U+2581, with which SentencePiece marks a word's start, becomes a space.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sentencepiece

from vtrans.config import DEFAULT_VOCAB_SIZE, Subword
from vtrans.errors import FileError, InputError

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
# What SentencePiece models are called in a folder.
JOINT_FILE, SRC_FILE, TGT_FILE = "vocab.model", "src.model", "tgt.model"
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
_BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")
_USER_DEFINED = 4  # a piece's type in SentencePiece's sentencepiece_model.proto

OVERLAP_THRESHOLDS = (1, 5, 20)
# What recipes/sharing/study.py measured, two seeds, 700 updates of multi30k-10min: at this share of shared running
# subwords (seen ADVICE_THRESHOLD times on both sides), the BLEU of one joint vocabulary with one matrix less that of
# separate vocabularies with as many weights, target embedding and projection tied. English-German, and the same with
# the German in Cyrillic letters.
ADVICE_THRESHOLD = 5
MEASURED = ((0.35, 1.0), (0.09, -0.2))
OVERLAP_DEFINITION = (
    "both: subword types seen at least N times on the source side and at least N times on the target side "
    "of the text; either: types seen at least N times on one side or the other; overlap: both over "
    "either; tokens: share of the running tokens of the two sides whose type is in both; special symbols "
    "and single-byte pieces are left out of all four"
)


class Vocabulary:
    """A SentencePiece model with our special ids. Equal bytes are an equal vocabulary.

    `symbols` are the pieces that the user asked for, such as `<BT>`: wherever a text has one, it is one subword,
    whole and as it was written, between subwords that know nothing of it.
    Raises FileError if `proto` is no SentencePiece model, or one with other special ids.
    """

    def __init__(self, proto: bytes, name: str = "the vocabulary") -> None:
        self.proto = bytes(proto)
        self.digest = hashlib.sha256(self.proto).hexdigest()
        self._model = sentencepiece.SentencePieceProcessor()
        try:
            if not self.proto:
                raise ValueError("it is empty")
            self._model.LoadFromSerializedProto(self.proto)
            self.normalization = str(_in_spec(self.proto, 3, 1, ""))
            self.kind: Subword = "bpe" if _in_spec(self.proto, 2, 3, 1) == 2 else "unigram"
            self.symbols = tuple(_symbols(self.proto))
        except (RuntimeError, ValueError, IndexError):
            raise FileError(f"{name} is no SentencePiece model; make one with `vtrans prepare-bpe`.") from None
        size = self._model.get_piece_size()
        found = tuple(self._model.id_to_piece(i) for i in range(min(4, size)))
        if found != SPECIAL_PIECES:
            raise FileError(
                f"{name} has {', '.join(found)} as its first pieces, where vtrans wants "
                f"{', '.join(SPECIAL_PIECES)}; make one with `vtrans prepare-bpe`."
            )
        self._size = size

    def __len__(self) -> int:
        return self._size

    def encode(self, text: str) -> list[int]:
        """The ids of a line, without special ids; [] for a line that normalises to nothing.

        Raises InputError for text that is not UTF-8, such as an argument with other bytes.
        """
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(f"{text!r} is not UTF-8; give text in UTF-8.") from None
        ids: list[int] = self._model.encode(text)
        return ids

    def encode_batch(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """The ids of each line, as `encode` gives them."""
        ids: list[list[int]] = self._model.encode(list(texts), num_threads=threads)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of subword ids; special ids are skipped. May hold a line end, spelt in bytes."""
        text: str = self._model.decode([i for i in ids if i > EOS_ID])
        return text

    def piece(self, id: int) -> str:
        """The piece of an id as SentencePiece writes it, U+2581 before a word."""
        piece: str = self._model.id_to_piece(id)
        return piece

    def merges(self) -> dict[str, tuple[int, int]]:
        """Of a BPE vocabulary, the pieces that text is merged into, single characters included: the id, and the rank,
        the lowest of which is merged first. Two neighbours are merged if they make up such a piece."""
        assert self.kind == "bpe", "only BPE merges"
        ordinary = (i for i in range(len(self)) if self.is_subword(i) and self.piece(i) not in self.symbols)
        return {self.piece(i): (i, round(-self._model.get_score(i))) for i in ordinary}

    def is_subword(self, id: int) -> bool:
        """Whether the id is neither special nor one of the 256 single-byte pieces."""
        return id > EOS_ID and not self._model.is_byte(id)


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


def _in_spec(proto: bytes, message: int, field: int, default: int | str) -> int | str:
    """A field of a message in a serialised ModelProto: of trainer_spec (2) the model_type (3), 1 for unigram
    and 2 for BPE; of normalizer_spec (3) the name (1) of the rule.

    Read by hand, since SentencePiece's own reader needs the protobuf package.
    """
    for number, value in _fields(proto):
        if number == message and isinstance(value, bytes):
            found = next((v for n, v in _fields(value) if n == field), default)
            return found.decode() if isinstance(found, bytes) else found
    raise ValueError("no such message")


def _symbols(proto: bytes) -> Iterator[str]:
    """The user-defined pieces of a serialised model, which stand behind the special ones: ModelProto.pieces (1),
    of each .piece (1) and .type (3)."""
    pieces = (value for field, value in _fields(proto) if field == 1 and isinstance(value, bytes))
    for message in itertools.islice(pieces, len(SPECIAL_PIECES), None):
        piece = dict(_fields(message))
        name = piece.get(1)
        if piece.get(3) != _USER_DEFINED or not isinstance(name, bytes):
            return
        yield name.decode()


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message, in order: number and value (bytes, or an integer).

    The wire format: https://protobuf.dev/programming-guides/encoding/
    """

    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value, at

    at = 0
    while at < len(message):
        key, at = varint(at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(at)
            yield number, value
            continue
        if wire == 2:
            length, at = varint(at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + length > len(message):
            raise ValueError("truncated")
        yield number, message[at : at + length]
        at += length


@dataclass(frozen=True)
class OverlapRow:
    """The overlap of two sides for types seen at least `threshold` times."""

    threshold: int
    both: int
    """Types seen at least so often on each side."""
    either: int
    """Types seen at least so often on one side or the other."""
    share: float
    """both / either; 0 if there is none."""
    token_share: float
    """Of the running tokens of both sides, those whose type is in `both`."""


def subword_counts(vocabulary: Vocabulary, counts: Sequence[int]) -> dict[str, int]:
    """Counts by surface piece from counts by id, without special and single-byte pieces, and symbols of the user."""
    first = len(SPECIAL_PIECES) + len(vocabulary.symbols)
    return {vocabulary.piece(i): n for i, n in enumerate(counts) if n and i >= first and vocabulary.is_subword(i)}


def overlap(src_counts: Mapping[str, int], tgt_counts: Mapping[str, int]) -> list[OverlapRow]:
    """The overlap of the two sides at each of OVERLAP_THRESHOLDS, as OVERLAP_DEFINITION says.

    The counts are by surface piece (`subword_counts`), so two separate vocabularies compare too.
    """
    running = sum(src_counts.values()) + sum(tgt_counts.values())
    rows = []
    for threshold in OVERLAP_THRESHOLDS:
        src = {piece for piece, n in src_counts.items() if n >= threshold}
        tgt = {piece for piece, n in tgt_counts.items() if n >= threshold}
        both, either = src & tgt, src | tgt
        covered = sum(src_counts[p] + tgt_counts[p] for p in both)
        rows.append(
            OverlapRow(
                threshold,
                len(both),
                len(either),
                len(both) / len(either) if either else 0.0,
                covered / running if running else 0.0,
            )
        )
    return rows


def overlap_table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The rows, each an OverlapRow as a dict, as they are printed, with their header."""
    header = ("N", "both", "either", "overlap", "tokens")
    return [
        (str(row["threshold"]), f"{row['both']:,}", f"{row['either']:,}", f"{row['share']:.0%}",
         f"{row['token_share']:.0%}")
        for row in rows
    ], header  # fmt: skip


def tying_advice(rows: Sequence[Mapping[str, Any]]) -> str:
    """Whether one matrix for both sides is likely to pay, from the share of running subwords that both sides have
    (the row of ADVICE_THRESHOLD): by the nearer of what was MEASURED, and how far it goes."""
    token_share: float = next(row["token_share"] for row in rows if row["threshold"] == ADVICE_THRESHOLD)
    (_, gained), (_, lost) = sorted(MEASURED, reverse=True)
    nearer = min(MEASURED, key=lambda point: abs(point[0] - token_share))
    so = (
        "a joint vocabulary and one matrix, the default, suit these texts"
        if nearer[1] > 0
        else "separate vocabularies may do as well or better: prepare-bpe --separate, whose tie is tgt-softmax"
    )
    where = " and ".join(f"{share:.0%}" for share, _ in MEASURED)
    return (
        f"{token_share:.0%} of the running subwords are of both sides (N = {ADVICE_THRESHOLD}): {so}. With as many "
        f"weights, one matrix was {gained:g} BLEU better and {-lost:g} worse in short trainings at {where}; "
        "differences so small may be chance."
    )
