"""Languages: codes, names, the pairs and tags of a model, the language in a file name, and the scripts without spaces
between words."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import regex

from vtrans.system.errors import InputError

_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*|[a-z]{3}_[A-Z][a-z]{3}")  # the second form is NLLB's
_PACKED = (".gz", ".xz", ".bz2")
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Line_Break=SA}"
"""Characters of scripts written without spaces between words, for a character class of `regex`: Chinese, Japanese, and
scripts such as Thai, which only a dictionary can split into words."""

_RIGHT_TO_LEFT = regex.compile(r"[\p{Bidi_Class=R}\p{Bidi_Class=AL}]")
# One line per language of ISO 639-1: its code, its ISO 639-3 code in NLLB (- if NLLB lacks the language), and its name.
_LINES = Path(__file__).with_name("languages.txt").read_text(encoding="utf-8").split("\n")
_TABLE = [line.split(" ", 2) for line in _LINES if line]
NAMES = {code: name for code, _, name in _TABLE}
_SHORT_CODES = {nllb: code for code, nllb, _ in _TABLE if nllb != "-"}


class Languages(NamedTuple):
    """The source and target language of a translation, as codes such as `en` or `pt-BR`."""

    src: str
    tgt: str


def check_language(name: str, code: str) -> str:
    """Returns `code`. Raises InputError, which calls it `name`, if it is not a language code."""
    if not _CODE.fullmatch(code):
        raise InputError(f"{name} must be a language code such as en or pt-BR, got {code!r}.")
    return code


def base(code: str) -> str:
    """Returns a language code without its region or script: `pt` for `pt-BR`. NLLB's three letters become two: `de` for
    `deu_Latn`."""
    language = code.replace("_", "-").partition("-")[0].lower()
    return _SHORT_CODES.get(language, language)


def languages_in(codes: str) -> Languages | None:
    """Returns the pair of languages that a text such as `en-de` or `en-pt-BR` names; None if it is not unique."""
    words = codes.split("-")
    halves = [("-".join(words[:i]), "-".join(words[i:])) for i in range(1, len(words))]
    pairs = [Languages(*pair) for pair in halves if all(map(_CODE.fullmatch, pair))]
    return pairs[0] if len(pairs) == 1 else None


def direction(known: Sequence[Languages], tagged: bool, src: str | None, tgt: str | None) -> Languages:
    """Returns the only pair among a model's `known` pairs that matches `src` and `tgt`; either may be None. Without
    known pairs, returns `src` and `tgt` if both are given, or empty codes if the model is not `tagged`. Raises
    InputError if no direction matches, or several do."""
    found = [pair for pair in known if src in (None, pair.src) and tgt in (None, pair.tgt)]
    if len(found) == 1:
        return found[0]
    if not known and src and tgt:
        return Languages(check_language("`from`", src), check_language("`to`", tgt))
    if tagged or (known and not found):
        pairs = ", ".join("-".join(pair) for pair in known) or "which does not record its directions"
        given = " and ".join(f"{name} {code}" for name, code in (("`from`", src), ("`to`", tgt)) if code) or "neither"
        raise InputError(f"`from` and `to` must name one direction of the model, {pairs}, got {given}.")
    return Languages("", "")


def common(pairs: Sequence[Languages], to: str | None) -> Languages:
    """Returns the source and the target language of the pairs into `to`, or of all; "" if there is not exactly one."""
    chosen = [pair for pair in pairs if to in (None, pair.tgt)]
    sides = {pair.src for pair in chosen}, {pair.tgt for pair in chosen}
    return Languages(*(codes.pop() if len(codes) == 1 else "" for codes in sides))


def is_right_to_left(text: str) -> bool:
    """Returns whether most letters of a text belong to right-to-left scripts."""
    return 2 * len(_RIGHT_TO_LEFT.findall(text)) > sum(map(str.isalpha, text))


def language_name(code: str) -> str:
    """Returns the English name of a language, such as `German` or `Portuguese (BR)`, or the code if it is unknown."""
    base, _, region = code.partition("-")
    name = NAMES.get(base)
    if name is None:
        return code
    return f"{name} ({region})" if region else name


def languages_record(pairs: Sequence[Languages]) -> list[object] | None:
    """Returns pairs of languages for a file: [source, target] for one, a list of these for several, None for none."""
    return None if not pairs else list(pairs[0]) if len(pairs) == 1 else [list(pair) for pair in pairs]


def languages_from(value: object) -> tuple[Languages, ...]:
    """Returns the inverse of `languages_record`, () for None. Raises InputError for anything else."""
    if value is None:
        return ()
    pairs: list[Any] = value if isinstance(value, list) and value and isinstance(value[0], list) else [value]
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(code, str) for code in pair):
            raise InputError(f"languages must be a source and a target language, got {pair!r}.")
    return tuple(Languages(*(check_language("a language", code) for code in pair)) for pair in pairs)


def tags_from(value: object, pieces: Collection[str]) -> dict[str, str]:
    """Returns the tags that a file records, by target language; {} for None. Raises InputError for anything else, and
    for a tag that is not in `pieces`."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise InputError(f"tags must be a tag for each target language, got {value!r}.")
    for code, tag in value.items():
        check_language("the language of a tag", code)
        if tag not in pieces:
            raise InputError(f"the tag of {code} must be a subword of the vocabulary, got {tag!r}.")
    return value


def tags_among(pieces: Sequence[str]) -> dict[str, str]:
    """Returns the tags among `pieces`, such as `>>fr<<` and `>>pt_BR<<`, by language code."""
    codes = {piece[2:-2].replace("_", "-"): piece for piece in pieces if piece[:2] == ">>" and piece[-2:] == "<<"}
    return {code: piece for code, piece in codes.items() if _CODE.fullmatch(code)}


def language_of_file(name: str) -> str | None:
    """Returns the language code at the end of a file name, such as `en` for `train.en` and `train.en.gz`, or None.

    Only the codes of ISO 639-1 count, so `.txt` and `.src` are not languages.
    """
    path = PurePath(name)
    ending = (PurePath(path.stem) if path.suffix in _PACKED else path).suffix[1:]
    return ending if ending in NAMES else None
