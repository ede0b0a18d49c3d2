"""Replace Latin by Cyrillic letters, to make a language pair with little overlap from one with much overlap.

    python recipes/sharing/transliterate.py < IN > OUT

Each letter is replaced by a different one. The words, the grammar and all scores stay the same; only letters that both
sides could have in common disappear. Accents, digits and punctuation stay. The mapping does not follow the
transliteration of any real language.
"""

from __future__ import annotations

import sys
import unicodedata

LATIN = "abcdefghijklmnopqrstuvwxyzßæœø"
CYRILLIC = "абцдефгхижклмнопщрстувшчызьӕѡѳ"  # without letters that include an accent, such as й and ё
_ONTO = str.maketrans(LATIN + LATIN.upper().replace("SS", "ẞ"), CYRILLIC + CYRILLIC.upper())


def transliterated(text: str) -> str:
    """Returns the text in Cyrillic letters, in normalisation form C."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).translate(_ONTO))


if __name__ == "__main__":
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(transliterated(line.decode()).encode())
