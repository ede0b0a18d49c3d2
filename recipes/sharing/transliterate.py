"""A language pair with little overlap, made of one that has much: python recipes/sharing/transliterate.py < IN > OUT

Writes Latin letters as Cyrillic ones, each by one letter that stands for no other, so that nothing is lost:
`--back` gives the text again. Words, grammar and everything that a score counts stay as they are; only what the
two sides could share in letters goes. It is no romanisation of any language. Accents stay on their letters, and
digits and punctuation as they are.
"""

from __future__ import annotations

import argparse
import sys
import unicodedata
from collections.abc import Sequence

LATIN = "abcdefghijklmnopqrstuvwxyzßæœø"
CYRILLIC = "абцдефгхижклмнопщрстувшчызьӕѡѳ"  # none with an accent of its own, as й and ё have
_ONTO = str.maketrans(LATIN + LATIN.upper().replace("SS", "ẞ"), CYRILLIC + CYRILLIC.upper())
_BACK = {onto: letter for letter, onto in _ONTO.items() if isinstance(onto, int)}


def transliterated(text: str) -> str:
    """The text in Cyrillic letters, in normalisation form C."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).translate(_ONTO))


def restored(text: str) -> str:
    """The text that was transliterated, in normalisation form C; it must have had no Cyrillic letters."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).translate(_BACK))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--back", action="store_true", help="Cyrillic letters into Latin ones again")
    options = parser.parse_args(arguments)
    turn = restored if options.back else transliterated
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(turn(line.decode()).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
