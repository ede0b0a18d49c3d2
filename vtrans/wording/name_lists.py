"""Lists of names and of English words.

`names.tsv` has English names that are translated, their German forms, and the genders of those that have an article: m,
f, n, p (plural), or P for peoples, whose names need none. Names without a form are left to the model.
`unchanged_names.txt` has names that are the same in every language, though some are English words, too.
`english_words.txt.xz` has English words, which are no names where any word has a capital.
"""

from __future__ import annotations

import lzma
from functools import cache
from importlib.resources import files

import regex

_FOLDER = files("vtrans.wording")
_PART, _LONGEST = 4, 30  # the fewest letters of the parts of a compound, and the most of the compound
_DOUBLE = regex.compile(r"([b-df-hj-np-tv-z])\1$")
_DERIVED = regex.compile(
    r".{3,}(?:able|ance|ence|ful|graphy|hood|ible|ical|ing|ism|ity|less|logy|ment|ness|ous|proof|sion|ship|tion|ware|wise)s?"
)
_ENDINGS = (("s", ""), ("es", ""), ("ies", "y"), ("ed", ""), ("d", ""), ("ly", ""), ("er", ""), ("r", ""), ("est", ""))


@cache
def _rows() -> list[tuple[str, str, str]]:
    rows = (f"{row}\t\t".split("\t") for row in (_FOLDER / "names.tsv").read_text("utf-8").split("\n"))
    return [(name, form, gender) for name, form, gender, *_ in rows]


@cache
def table() -> dict[str, str]:
    """Returns the names of one word and their German forms, empty for those that are left to the model."""
    return {name: form for name, form, _ in _rows() if " " not in name}


@cache
def phrases() -> dict[str, list[tuple[str, str]]]:
    """Returns the names of several words and their German forms, longest first, by the first word."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, form, _ in sorted(_rows(), key=lambda row: -len(row[0])):
        if " " in name:
            found.setdefault(name.split()[0], []).append((name, form))
    return found


@cache
def _genders() -> dict[str, str]:
    return {form: gender for _, form, gender in _rows() if gender}


def gender_of(form: str) -> str:
    """Returns the gender of a German form, or "" if it has no article."""
    return _genders().get(form, "")


@cache
def _unchanged() -> frozenset[str]:
    return frozenset((_FOLDER / "unchanged_names.txt").read_text("utf-8").split())


def is_unchanged(word: str) -> bool:
    """Returns whether a word is the same in every language: a listed name, or one such as iPhone."""
    return word in _unchanged() or word[0].islower() or table().get(word) == word


@cache
def _words() -> frozenset[str]:
    return frozenset(lzma.decompress((_FOLDER / "english_words.txt.xz").read_bytes()).decode().split())


def is_english_word(word: str) -> bool:
    """Returns whether a word with a capital is an English word, an inflected one, or a compound of two."""
    words, small = _words(), word.lower()
    if small in words or _DERIVED.fullmatch(small):
        return True
    stems = [small.removesuffix(ending) + rest for ending, rest in _ENDINGS if small.endswith(ending)]
    stems += [f"{stem}e" for stem in stems] + [stem[:-1] for stem in stems if _DOUBLE.search(stem)]
    compounds = ({small[:k], small[k:]} for k in range(_PART, min(len(small), _LONGEST) - _PART + 1))
    return any(len(stem) > 2 and stem in words for stem in stems) or any(compound <= words for compound in compounds)
