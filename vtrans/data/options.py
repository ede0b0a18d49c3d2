"""The options of `vtrans prepare-bpe` and their defaults, which the command line reads here."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from vtrans.config.keys import check_fields, choice, flag, keys_of, number, path, paths, texts
from vtrans.system.errors import InputError
from vtrans.text.languages import Languages, check_language, language_of_file
from vtrans.text.lines import OnBadUtf8
from vtrans.text.normalization import NFC

Subword = Literal["bpe", "unigram"]
NORMALIZATIONS = (NFC, "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity")
"""`nfc` and SentencePiece's rules: NFKC; `nmt_` also replaces special spaces and control characters, `_cf` folds case;
identity changes nothing."""


SMALLEST_VOCAB_SIZE = 5  # the special ids and one subword; most texts need more
DEFAULT_VOCAB_SIZE = 8000  # or fewer, if the text does not allow as many
LEARNING = "Vocabulary"  # the panel of the options for learning a vocabulary
_RARE: dict[str, Any] = {"panel": LEARNING, "advanced": True}


@dataclass(frozen=True)
class PrepareOptions:
    """The options of `vtrans prepare-bpe`."""

    PANEL: ClassVar[str] = "Text"

    src: tuple[str | Path, ...] = paths(
        "Source text, one sentence per line. Repeat it, and `tgt`, for several corpora."
    )
    tgt: tuple[str | Path, ...] = paths("Translation of `src`, line by line.")
    valid_src: tuple[str | Path, ...] = paths(
        "Source text for validation.", unset="random sentences are held out of the training text"
    )
    valid_tgt: tuple[str | Path, ...] = paths("Translation of `valid_src`.")
    alignments: tuple[str | Path, ...] = paths(
        "Word alignment of each line, such as 0-0 1-2, for guided alignment. Give one file per `src`.",
        advanced=True,
        unset="training aligns the words itself",
    )
    src_lang: tuple[str, ...] = texts(
        "Language of `src`, such as en or pt-BR, which the model records. Give one for all corpora, or one per corpus.",
        metavar="CODE",
        unset="the suffix of the file names, if that is a language",
    )
    tgt_lang: tuple[str, ...] = texts("Language of `tgt`.", metavar="CODE")
    tags: tuple[str, ...] = texts(
        "For a model with several target languages: the tag before each source of a corpus, such as '>>de<<'. "
        "Give one per `src`. `vtrans translate --to de` then puts it before each line.",
        flag="--tag",
        advanced=True,
        metavar="TEXT",
    )
    valid_tags: tuple[str, ...] = texts(
        "Tag of a `valid_src`. Give one per `valid_src`.",
        flag="--valid-tag",
        advanced=True,
        metavar="TEXT",
        unset="the tag of the language in the suffix of `valid_tgt`",
    )
    on_bad_utf8: OnBadUtf8 = choice(
        "error",
        get_args(OnBadUtf8),
        "How to treat bytes that are not UTF-8: error, or replace (by U+FFFD, with a count).",
        metavar="HOW",
        advanced=True,
    )
    vocabularies: tuple[bytes, ...] = ()
    """The source and target vocabularies, each as `Vocabulary.proto`, to use instead of learning any."""
    vocab_add: int | None = number(
        None,
        (1, 1 << 24),
        "Add up to this many subwords to the vocabulary that `vocab_from` gives, for characters that it lacks.",
        "subwords",
        **_RARE,
    )
    vocab_size: int | None = number(
        None,
        (SMALLEST_VOCAB_SIZE, 1 << 24),
        "Number of subwords in a vocabulary, including special ones and bytes.",
        panel=LEARNING,
        unset=f"{DEFAULT_VOCAB_SIZE}, or the nearest possible number",
    )
    separate: bool = flag(False, "Learn one vocabulary per side instead of a joint vocabulary.", panel=LEARNING)
    subword: Subword = choice(
        "bpe", ("bpe", "unigram"), "Kind of subwords: bpe or unigram.", metavar="KIND", panel=LEARNING
    )
    normalization: str = choice(
        NFC,
        NORMALIZATIONS,
        f"How characters are replaced: {NFC} composes them, and simplifies the source; "
        f"{', '.join(NORMALIZATIONS[1:])} are SentencePiece's rules for both sides.",
        metavar="RULE",
        **_RARE,
    )
    character_coverage: float = number(
        0.9999,
        (0.98, 1.0),
        "Share of all characters of the text that subwords cover. Other characters are encoded as bytes.",
        metavar="SHARE",
        **_RARE,
    )
    split_digits: bool = flag(True, "Make each digit a subword, so that the model can copy any number.", **_RARE)
    symbols: tuple[str, ...] = texts(
        "Symbol that is never split, such as the tag <BT> of back-translated text (Caswell et al. 2019). May be "
        "repeated.",
        flag="--symbol",
        metavar="TEXT",
        **_RARE,
    )
    sample: int = number(
        1_000_000, (1, 10**9), "Learn the vocabulary from at most this many random pairs.", "pairs", **_RARE
    )
    fuzzy: bool = flag(
        False,
        "Add each pair again with the translation of the most similar other source, so that the model learns "
        "to use a translation memory.",
    )
    max_tokens: int = number(
        250, (1, 10**6), "Drop training pairs with more subwords than this on a side.", "subwords", panel="Filter"
    )
    max_ratio: float = number(
        4.0,
        (1.0, 1e6),
        "Drop long training pairs with one side more than this many times as long as the other.",
        metavar="RATIO",
        panel="Filter",
    )
    out: str | Path = path("data", "Data folder to write.", metavar="FOLDER", panel="Output")
    force: bool = flag(
        False, "Replace a data folder that was made from other inputs or with other options.", panel="Output"
    )
    seed: int = number(1, (0, 2**63 - 1), "Seed of the choice of random pairs.", panel="Options")
    threads: int = number(
        0,
        (0, 1024),
        "Number of processors for encoding; 0 means all. Does not change the result.",
        "processors",
        panel="Options",
    )

    def checked(self) -> PrepareOptions:
        """Returns these options. Raises InputError for the first invalid one."""
        check_fields(self)
        if not self.src:
            raise InputError("`src` and `tgt`, or `pairs`, must name at least one corpus, got none.")
        for name, key in keys_of(PrepareOptions).items():
            changed = getattr(self, name) != getattr(PrepareOptions, name)
            if self.vocabularies and key.panel == LEARNING and changed and name != "vocab_add":
                raise InputError(
                    f"`{name}` is for learning a vocabulary, but `vocab_from` gives one; leave out one of the two."
                )
        if self.vocab_add and not self.vocabularies:
            raise InputError("`vocab_add` adds to the vocabulary that `vocab_from` gives; give both or neither.")
        for ours, theirs in (("src", "tgt"), ("valid_src", "valid_tgt")):
            n, m = len(getattr(self, ours)), len(getattr(self, theirs))
            if n != m:
                raise InputError(f"`{ours}` and `{theirs}` must name the same number of files, got {n} and {m}.")
        if self.alignments and len(self.alignments) != len(self.src):
            raise InputError(
                f"`alignments` must name one file per corpus, {len(self.src)} in all, got {len(self.alignments)}."
            )
        for name in ("src_lang", "tgt_lang"):
            codes: tuple[str, ...] = getattr(self, name)
            for code in codes:
                check_language(f"`{name}`", code)
            if len(codes) not in (0, 1, len(self.src)):
                raise InputError(
                    f"`{name}` must be given once, or once per corpus ({len(self.src)}), got {len(codes)} languages."
                )
        self._check_tags()
        if (self.src_lang or self.tgt_lang) and not self.languages():
            raise InputError(
                "`src_lang` and `tgt_lang` must be given together, the same for all corpora without `tags`."
            )
        return self

    def _check_tags(self) -> None:
        """Raises InputError unless tags and target languages correspond one to one."""
        for name, corpora in (("tags", self.src), ("valid_tags", self.valid_src)):
            tags = getattr(self, name)
            if tags and len(tags) != len(corpora):
                raise InputError(f"`{name}` must be given once per corpus, {len(corpora)} in all, got {len(tags)}.")
        if not self.tags:
            if self.valid_tags:
                raise InputError("`valid_tags` needs `tags`, one for each training corpus; give both or neither.")
            return
        for file, pair in zip(self.src, self._pairs(), strict=True):
            if pair is None:
                raise InputError(
                    f"the corpus {file} has a tag, so its languages must be known; give `src_lang` and "
                    "`tgt_lang`, each once or once per corpus."
                )
        meant = dict.fromkeys(self._tagged())
        if not len(meant) == len({code for code, _ in meant}) == len({tag for _, tag in meant}):
            raise InputError(
                "`tags` must have one tag for each target language, and one language for each tag, got "
                f"{', '.join(f'{tag} for {code}' for code, tag in meant)}."
            )
        for tag in self.valid_tags:
            if tag not in self.tags:
                raise InputError(f"`valid_tags` must be one of {', '.join(tag for _, tag in meant)}, got {tag!r}.")
        self.tags_of_validation()

    def _pairs(self) -> list[Languages | None]:
        """Returns the languages of each training corpus; None unless both are known and either differ or are given."""
        pairs: list[Languages | None] = []
        for i, files in enumerate(zip(self.src, self.tgt, strict=True)):
            given = [codes[i if len(codes) > 1 else 0] if codes else None for codes in (self.src_lang, self.tgt_lang)]
            src, tgt = (code or language_of_file(str(file)) for code, file in zip(given, files, strict=True))
            unknown = src is None or tgt is None or (src == tgt and None in given)
            pairs.append(None if unknown or src is None or tgt is None else Languages(src, tgt))
        return pairs

    def _tagged(self) -> list[tuple[str, str]]:
        """Returns the target language and the tag of each training corpus."""
        return [(pair.tgt, tag) for pair, tag in zip(self._pairs(), self.tags, strict=True) if pair is not None]

    def languages(self) -> tuple[Languages, ...]:
        """Returns the language pairs of the training text: with tags, those of all corpora; without tags, the common
        pair of all corpora, if there is one."""
        pairs = dict.fromkeys(self._pairs())
        known = tuple(pair for pair in pairs if pair is not None)
        return known if self.tags or len(pairs) == 1 else ()

    def tags_by_language(self) -> dict[str, str]:
        """Returns the tag of each target language."""
        return dict(self._tagged()) if self.tags else {}

    def tags_of_validation(self) -> tuple[str, ...]:
        """Returns the tag of each pair of validation files, or of each corpus from which pairs are held out. Raises
        InputError if a tag is unknown."""
        if self.valid_tags or not self.valid_src:
            return self.valid_tags or self.tags
        if not self.tags:
            return ()
        by_language, tags = self.tags_by_language(), []
        for file in self.valid_tgt:
            tag = by_language.get(language_of_file(str(file)) or "")
            if tag is None and len(by_language) > 1:
                raise InputError(
                    f"the tag of {file} is not known; give `valid_tags`, once per pair of validation files."
                )
            tags.append(tag or self.tags[0])
        return tuple(tags)

    def identity(self) -> dict[str, Any]:
        """Returns the options that determine the data, for data.json."""
        apart = ("src", "tgt", "alignments", "valid_src", "valid_tgt", "out", "threads", "force")
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in apart}
        values["vocabularies"] = [hashlib.sha256(proto).hexdigest() for proto in self.vocabularies]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
