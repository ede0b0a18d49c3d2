"""Text normalisation: canonical composition on both sides, and simpler characters in sources.

Target characters are kept, because translations are written in them. Sources lose differences that mean nothing to a
model: `source_text` applies to training text and to the lines to translate.
"""

from __future__ import annotations

import unicodedata

import regex

NFC = "nfc"
"""A vocabulary's rule that composes characters (Unicode's NFC), and otherwise replaces only tabs and line ends."""

# `shape` matches wide and narrow characters, mathematical alphabets, ligatures, positional forms of Arabic letters, and
# several characters in one, such as the ellipsis. It omits superscripts, fractions and circled numbers, which mean
# something else, and single Korean letters, which would join. `invisible` matches control characters other than white
# space, soft hyphens, zero-width spaces, word joiners and byte order marks.
_SIMPLIFIED = regex.compile(
    r"(?P<single>[\u2018-\u201b])|(?P<double>[\u201c-\u201f])|(?P<hyphen>[\u2010\u2011])"
    r"|(?P<space>[\p{White_Space}\x1c-\x1f--[\t\ ]])"
    r"|(?P<invisible>[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u200b\u2060\ufeff])"
    r"|(?P<shape>[[\p{dt=wide}\p{dt=narrow}\p{dt=small}\p{dt=vertical}\p{dt=font}\p{dt=compat}\p{dt=square}"
    r"\p{dt=initial}\p{dt=medial}\p{dt=final}\p{dt=isolated}]--[\u3131-\u318e\uffa0-\uffdc]])",
    regex.V1,
)
_FORMS = {"single": "'", "double": '"', "hyphen": "-", "space": " ", "invisible": ""}


def source_text(text: str) -> str:
    """Returns a text as models read sources: characters in other shapes, such as wide letters and ligatures, take their
    usual one, curly quotation marks become straight, spaces and hyphens become ASCII, and control characters, soft
    hyphens and zero-width spaces are removed. It adds no word, and removes only words without a visible character.
    """
    return text if text.isascii() and text.isprintable() else text.translate(_REPLACED)


class _Replaced(dict[int, str]):
    """The replacement of each character code, found when it first occurs: five times as fast as the pattern."""

    def __missing__(self, code: int) -> str:
        self[code] = _SIMPLIFIED.sub(_simplified, chr(code))
        return self[code]


_REPLACED = _Replaced()


def _simplified(match: regex.Match[str]) -> str:
    if (form := _FORMS.get(match.lastgroup)) is not None:
        return form
    usual = unicodedata.normalize("NFKC", match[0])
    # Vowels that decompose into several characters, such as Thai sara am (U+0E33), are letters of their own.
    is_split = " " in usual or (len(usual) > 1 and any(unicodedata.category(c).startswith("M") for c in usual))
    return match[0] if is_split else usual


def nfc_rules() -> dict[str, str]:
    """Returns the replacements of the rule NFC: each sequence that composes to a character, its accents in canonical
    order, and tabs and line ends, which become spaces.

    Covers the Basic Multilingual Plane. Beyond it, versions of Unicode differ, and only rare scripts have sequences.
    """
    rules = dict.fromkeys("\t\n\r", " ")
    for character in map(chr, range(1 << 16)):
        decomposed = unicodedata.normalize("NFD", character)
        if decomposed != character:
            composed = unicodedata.normalize("NFC", character)
            begun = (unicodedata.normalize("NFC", decomposed[:k]) + decomposed[k:] for k in range(len(decomposed) + 1))
            rules.update(dict.fromkeys({character, *begun} - {composed}, composed))
    return rules
