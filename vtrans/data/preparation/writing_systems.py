"""The writing system (script) of a subword.

Scripts are values of Unicode's Script property (Unicode Standard Annex 24), which the package `regex` supports and
Python's unicodedata does not.
"""

from __future__ import annotations

from functools import cache
from typing import Any

# fmt: off
SCRIPTS = (
    "Latin", "Greek", "Cyrillic", "Armenian", "Georgian", "Hebrew", "Arabic", "Syriac", "Thaana", "Nko", "Ethiopic",
    "Tifinagh", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya", "Tamil", "Telugu", "Kannada", "Malayalam",
    "Sinhala", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan", "Mongolian", "Javanese", "Han", "Hiragana", "Katakana",
    "Bopomofo", "Hangul", "Yi", "Cherokee", "Canadian_Aboriginal",
)
# fmt: on
"""The scripts that are counted separately; letters of other scripts count as "other script"."""


def script_of(piece: str) -> str:
    """Returns the script of a subword, ignoring the word-start mark U+2581. A subword without letters is "digits",
    "punctuation and symbols" or "word start"."""
    text = piece.replace("\u2581", "")
    if not text:
        return "word start"
    groups = {match.lastgroup or "" for match in _characters().finditer(text)}
    scripts = groups - {"digits", "common"}
    if len(scripts) == 1:
        return scripts.pop().replace("_", " ")
    if scripts:
        return "mixed"
    return "digits" if "digits" in groups else "punctuation and symbols"


@cache
def _characters() -> Any:
    """Returns a pattern that matches any character, in a group named after its script."""
    import regex

    names = "|".join(rf"(?P<{script}>\p{{Script={script}}})" for script in SCRIPTS)
    common = r"[\p{Script=Common}\p{Script=Inherited}\p{Script=Unknown}]"
    digits = rf"(?P<digits>\p{{Nd}}|(?=\p{{N}}){common})"
    return regex.compile(rf"{digits}|{names}|(?P<common>{common})|(?P<other_script>.)", regex.DOTALL)
