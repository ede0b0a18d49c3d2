"""Replace Latin by Cyrillic letters, to make a language pair with little overlap from one with much overlap.

    python recipes/sharing/transliterate.py < IN > OUT

Each letter is replaced by a different one, so `--back` restores the text. The words, the grammar and all scores stay
the same; only letters that both sides could have in common disappear. Accents, digits and punctuation stay. The
mapping does not follow the transliteration of any real language.
"""

from __future__ import annotations

import argparse
import sys
import unicodedata
from collections.abc import Sequence

LATIN = "abcdefghijklmnopqrstuvwxyzßæœø"
CYRILLIC = "абцдефгхижклмнопщрстувшчызьӕѡѳ"  # without letters that include an accent, such as й and ё
_ONTO = str.maketrans(LATIN + LATIN.upper().replace("SS", "ẞ"), CYRILLIC + CYRILLIC.upper())
_BACK = {onto: letter for letter, onto in _ONTO.items() if isinstance(onto, int)}


def transliterated(text: str) -> str:
    """Returns the text in Cyrillic letters, in normalisation form C."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).translate(_ONTO))


def restored(text: str) -> str:
    """Returns the text before transliteration, in normalisation form C. It must not have had Cyrillic letters."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).translate(_BACK))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--back", action="store_true", help="restore the Latin letters")
    options = parser.parse_args(arguments)
    turn = restored if options.back else transliterated
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(turn(line.decode()).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
