"""How text is normalised: canonical composition on both sides, and simpler forms of characters in sources.

A target's characters survive, because translations are written in them. Sources lose differences that say nothing to a
model: training text and translated lines pass `source_text` alike.
"""

from __future__ import annotations

import unicodedata

import regex

NFC = "nfc"
"""The rule of a vocabulary that composes characters (Unicode's NFC) and changes nothing else but tabs and line ends."""

# Characters in other shapes are wide and narrow ones, those of mathematical alphabets, ligatures, Arabic letters by
# their place in a word, and several characters in one, such as the ellipsis. Superscripts, fractions and circled
# numbers mean something else, and single letters of Korean would join. Invisible are control characters but the tab,
# soft hyphens, and marks of places where a line may break or must not.
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
    """Returns a text as models read sources: characters in other shapes, such as wide letters and ligatures, have the
    usual one, curly quotation marks are straight, all spaces and hyphens are equal, and control characters, soft
    hyphens and zero-width spaces are left out. It adds no word, and takes away only those without a visible character.
    """
    return text if text.isascii() and text.isprintable() else _SIMPLIFIED.sub(_simplified, text)


def _simplified(match: regex.Match[str]) -> str:
    if (form := _FORMS.get(match.lastgroup)) is not None:
        return form
    usual = unicodedata.normalize("NFKC", match[0])
    # Vowels such as that of Thai, which are several characters, are letters of their own.
    is_split = " " in usual or (len(usual) > 1 and any(unicodedata.category(c).startswith("M") for c in usual))
    return match[0] if is_split else usual


def nfc_rules() -> dict[str, str]:
    """Returns what a vocabulary with the rule NFC replaces by what: each sequence that composes to a character with its
    accents in the usual order, and tabs and line ends, which are spaces.

    Beyond the Basic Multilingual Plane, where versions of Unicode differ, only rare scripts have such sequences.
    """
    rules = dict.fromkeys("\t\n\r", " ")
    for character in map(chr, range(1 << 16)):
        decomposed = unicodedata.normalize("NFD", character)
        if decomposed != character:
            composed = unicodedata.normalize("NFC", character)
            begun = (unicodedata.normalize("NFC", decomposed[:k]) + decomposed[k:] for k in range(len(decomposed) + 1))
            rules.update(dict.fromkeys({character, *begun} - {composed}, composed))
    return rules
