"""The options of `vtrans prepare-bpe` and their defaults. The command line imports this module to show them."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from vtrans.errors import InputError
from vtrans.keys import check_value, choice, flag, keys_of, number
from vtrans.languages import Languages, check_language, language_of_files
from vtrans.text import OnBadUtf8

Subword = Literal["bpe", "unigram"]
NORMALIZATIONS = ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity")
"""SentencePiece's rules: NFKC, with `nmt_` also special spaces and control characters, with `_cf` case folding;
identity: none."""


SMALLEST_VOCAB_SIZE = 5  # the special ids and one subword; learning refuses it if the text needs more
DEFAULT_VOCAB_SIZE = 8000  # fewer if the text does not have as many subwords


@dataclass(frozen=True)
class PrepareOptions:
    """The options of `vtrans prepare-bpe`, whose command line reads these defaults."""

    src: tuple[str | Path, ...]
    tgt: tuple[str | Path, ...]
    valid_src: tuple[str | Path, ...] = ()
    valid_tgt: tuple[str | Path, ...] = ()
    src_lang: str | None = None
    """The language of the source, such as `en`; None: what the file names end in, if that is a language."""
    tgt_lang: str | None = None
    out: str | Path = "data"
    vocab_size: int | None = number(
        None,
        SMALLEST_VOCAB_SIZE,
        1 << 24,
        "subwords of a vocabulary, special ones and bytes included; None: DEFAULT_VOCAB_SIZE, or what the text allows",
    )
    separate: bool = flag(False, "one vocabulary per side instead of a joint one")
    subword: Subword = choice("bpe", ("bpe", "unigram"), "kind of vocabulary")  # noqa: RUF009 - a field
    normalization: str = choice(
        "nmt_nfkc", NORMALIZATIONS, 'SentencePiece\'s normalization rule; "identity" switches it off'
    )
    character_coverage: float = number(
        0.9999, 0.98, 1.0, "share of running characters that have a subword; the others are spelt in bytes"
    )
    vocabularies: tuple[bytes, ...] = ()
    """The vocabularies of the source and the target, each as `Vocabulary.proto`, instead of learning any."""
    symbols: tuple[str, ...] = ()
    """Subwords that are never split, such as the tag of back-translated text (Caswell et al. 2019)."""
    sample: int = number(1_000_000, 1, 10**9, "random training pairs from which the vocabulary is learned", "pairs")
    max_tokens: int = number(
        250, 1, 10**6, "training pairs with more subwords than this on a side are dropped", "subwords"
    )
    max_ratio: float = number(
        4.0, 1.0, 1e6, "training pairs with one side longer than this many times the other are dropped"
    )
    on_bad_utf8: OnBadUtf8 = choice(  # noqa: RUF009 - a field
        "error", get_args(OnBadUtf8), "error, or replace each bad sequence by U+FFFD and count it"
    )
    seed: int = number(1, 0, 2**63 - 1, "seed of the held-out and sampled pairs")
    threads: int = number(
        0,
        0,
        1024,
        "processors that encode; 0: all that this process may use. The result does not depend on it",
        "processors",
    )
    force: bool = flag(False, "replace a data folder made from other inputs or options")

    def checked(self) -> PrepareOptions:
        """Returns these options. Raises InputError for the first one that is not allowed."""
        for name, key in keys_of(type(self)).items():
            if (value := getattr(self, name)) is not None:
                check_value(key, f"`{name}`", value)
        if not self.src:
            raise InputError("`src` and `tgt` must name at least one corpus, got none.")
        for name in ("vocab_size", "separate", "subword", "normalization", "character_coverage", "symbols", "sample"):
            if self.vocabularies and getattr(self, name) != getattr(PrepareOptions, name):
                raise InputError(
                    f"`{name}` is for learning a vocabulary, but `vocab_from` gives one; leave one of them out."
                )
        for ours, theirs in (("src", "tgt"), ("valid_src", "valid_tgt")):
            n, m = len(getattr(self, ours)), len(getattr(self, theirs))
            if n != m:
                raise InputError(f"`{ours}` and `{theirs}` must name equally many files, got {n} and {m}.")
        for name in ("src_lang", "tgt_lang"):
            if (code := getattr(self, name)) is not None:
                check_language(f"`{name}`", code)
        if (self.src_lang or self.tgt_lang) and self.languages() is None:
            raise InputError("`src_lang` and `tgt_lang` must be given together, got only one of them.")
        return self

    def languages(self) -> Languages | None:
        """Returns the languages of the two sides, or None unless both are known and they differ or are given."""
        src = self.src_lang or language_of_files(str(file) for file in self.src)
        tgt = self.tgt_lang or language_of_files(str(file) for file in self.tgt)
        guessed = not (self.src_lang and self.tgt_lang)
        return None if src is None or tgt is None or (guessed and src == tgt) else Languages(src, tgt)

    def identity(self) -> dict[str, Any]:
        """Returns the options that determine the data, as data.json records them."""
        apart = ("src", "tgt", "valid_src", "valid_tgt", "out", "threads", "force")
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in apart}
        values["vocabularies"] = [hashlib.sha256(proto).hexdigest() for proto in self.vocabularies]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
