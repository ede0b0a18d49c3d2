"""The options of `vtrans clean` and its rules. The command line imports this module to show them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, get_args

from vtrans.config.keys import Key, check_fields, choice, flag, nearest, number, path, text, texts
from vtrans.system.errors import InputError
from vtrans.text.languages import Languages, check_language, language_of_file
from vtrans.text.lines import OnBadUtf8

RULES = {
    "empty": "a side is blank",
    "length": "a side is too long",
    "ratio": "one side is much longer than the other, compared with the other pairs",
    "mojibake": "characters were decoded wrongly, and cannot be repaired",
    "script": "most letters of a side are of another script than usual on this side",
    "copy": "both sides have the same words",
    "repetition": "a side repeats words that the other one does not repeat",
    "markup": "the sides have different HTML tags or entities",
    "numbers": "the sides have different numbers",
    "urls": "the sides have different URLs or e-mail addresses",
    "language": "a side is in another language",
    "duplicate": "the words of the pair have occurred before",
    "misaligned": "the target is unlikely to translate the source",
    "incomplete": "a part of one side is unlikely to have a translation",
}
"""The rules that can drop a pair, in the order in which they are tried."""
OPTIONAL = tuple(rule for rule in RULES if rule != "empty")


@dataclass(frozen=True)
class CleanOptions:
    """The options of `vtrans clean`, whose command line reads these defaults."""

    PANEL: ClassVar[str] = "Rules"

    src: str | Path = field(metadata={"key": Key("Source text, one sentence per line.", Path, panel="Text")})
    tgt: str | Path = field(metadata={"key": Key("Translation of `src`, line by line.", Path, panel="Text")})
    src_lang: str | None = text(
        None, "Language of `src`, such as en.", metavar="CODE", panel="Text", unset="what the file name ends in"
    )
    tgt_lang: str | None = text(
        None, "Language of `tgt`.", metavar="CODE", panel="Text", unset="what the file name ends in"
    )
    on_bad_utf8: OnBadUtf8 = choice(
        "error",
        get_args(OnBadUtf8),
        "How to treat bytes that are not UTF-8: error, or replace (by U+FFFD; the rule mojibake drops the pair).",
        metavar="HOW",
        panel="Text",
    )
    out: str | Path = path(
        "clean", "Folder for the kept pairs, the dropped pairs and the report.", metavar="FOLDER", panel="Text"
    )
    without: tuple[str, ...] = texts(f"Rule that is not applied: {', '.join(OPTIONAL)}.", metavar="RULE")
    max_words: int = number(
        250, (1, 10_000), "Drop pairs with more words than this on a side, or ten times as many characters.", "words"
    )
    max_ratio: float = number(
        3.0,
        (1.0, 1e6),
        "Drop long pairs whose ratio of lengths is this many times that of the text.",
        metavar="RATIO",
    )
    force: bool = flag(False, "Replace the result of an earlier run.", panel="Options")
    seed: int = number(1, (0, 2**63 - 1), "Seed of the choice of random pairs.", panel="Options")

    def checked(self) -> CleanOptions:
        """Returns these options. Raises InputError for the first invalid one."""
        check_fields(self)
        for rule in self.without:
            if rule not in OPTIONAL:
                raise InputError(f"`without` must be a rule, got {rule!r}; {nearest(rule, OPTIONAL)}")
        for name in ("src_lang", "tgt_lang"):
            if code := getattr(self, name):
                check_language(f"`{name}`", code)
        return self

    def languages(self) -> Languages | None:
        """Returns the languages of the text, or None unless both are known."""
        src = self.src_lang or language_of_file(str(self.src))
        tgt = self.tgt_lang or language_of_file(str(self.tgt))
        return Languages(src, tgt) if src and tgt else None
