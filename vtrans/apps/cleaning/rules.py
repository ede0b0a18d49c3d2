"""The rules of `vtrans clean` that look at a single pair of lines, with norms learned from a sample."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, lru_cache

import regex

from vtrans.apps.cleaning.clean_options import CleanOptions
from vtrans.apps.cleaning.detection import probabilities
from vtrans.data.preparation.encode import TextPair
from vtrans.data.preparation.overlap import script_of
from vtrans.text.languages import UNSPACED

SHORT = 30  # up to this length of the longer side, scaled by the usual ratio, any length ratio is allowed
REPEATED, LONGEST_PHRASE = 4, 6  # consecutive occurrences that count as repetition; words in the phrase
USUAL = 0.1  # minimum share of a side's letters for a script to be usual there
UNLIKELY = 0.25  # a line is dropped if its language is less probable than this
PACKAGES = {"mojibake": "ftfy", "language": "py3langid"}
"""The packages of the extra `clean` that rules need."""

# Each character of a script without spaces counts as a word.
_WORD = regex.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]")
_MARKUP = regex.compile(
    r"</?(a|abbr|b|big|br|center|code|div|em|font|h[1-6]|hr|i|img|li|ol|p|pre|small|span|strong|sub|sup|table|td|th|tr|u|ul)"
    r"(?=[\s/>])[^<>]*>|(&(?:[a-z]{2,8}|\#\d{1,6});)"
)
_UNCOUNTED = regex.compile(r"\p{Line_Break=SA}")
_NUMBER = regex.compile(r"\p{Nd}+")
_URL = regex.compile(r"(?:https?://|www\.)[^\s<>\"]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_OTHER = regex.compile(r"[^\p{L}\p{M}\p{N}]+")
_script = cache(script_of)


def words_of(line: str) -> list[str]:
    """Returns the words of a line in lower case, and its punctuation marks and symbols."""
    words: list[str] = _WORD.findall(line.lower().replace("\u2019", "'"))
    return words


def bare(line: str) -> str:
    """Returns the letters and digits of a line, case-folded, with one space for anything between; the line itself if it
    has none."""
    return _OTHER.sub(" ", line.casefold()).strip() or line.strip()


@lru_cache(16)
def _is_misread(line: str) -> bool:
    """Returns whether ftfy finds a line wrongly decoded."""
    from ftfy.badness import is_bad

    return not line.isascii() and bool(is_bad(line))


def repaired(line: str) -> str:
    """Returns a line with the wrongly decoded characters that ftfy recognizes repaired."""
    from ftfy import fix_encoding

    return fix_encoding(line) if _is_misread(line) else line


def _spoilt(line: str) -> bool:
    return "\ufffd" in line or _is_misread(line)


class Rules:
    """The rules applied to each pair, except `skipped` ones and those that the options exclude. `sample` has random
    pairs of the text, most of them sound."""

    def __init__(self, options: CleanOptions, skipped: Collection[str], sample: Sequence[TextPair]) -> None:
        skipped = {*skipped, *options.without}
        self.options, self.repairs, self.languages = options, "mojibake" not in skipped, options.languages()
        self.ratio = statistics.median(len(tgt) / len(src) for src, tgt in sample)
        """The median ratio of target length to source length, in characters."""
        self.scripts = [_scripts(pair[side] for pair in sample) for side in (0, 1)]
        """The usual scripts of each side."""
        rules: dict[str, Callable[[str, str], bool]] = {
            "empty": lambda src, tgt: not (src.strip() and tgt.strip()),
            "length": lambda src, tgt: self._is_long(src) or self._is_long(tgt),
            "ratio": self._has_odd_ratio,
            "mojibake": lambda src, tgt: _spoilt(src) or _spoilt(tgt),
            "script": lambda src, tgt: self._is_foreign(0, src) or self._is_foreign(1, tgt),
            "copy": lambda src, tgt: bare(src) == bare(tgt) and len(words_of(bare(src))) > 1,
            "repetition": _repeats,
            "markup": lambda src, tgt: markup(src) != markup(tgt),
            "numbers": _numbers_differ,
            "urls": lambda src, tgt: urls(src) != urls(tgt),
            "language": self._is_in_another_language,
        }
        self._rules = [(name, rule) for name, rule in rules.items() if name not in skipped]

    def read(self, src: str, tgt: str) -> tuple[str, str]:
        """Returns a pair, repaired unless the rule mojibake is excluded."""
        return (repaired(src), repaired(tgt)) if self.repairs else (src, tgt)

    def reason(self, src: str, tgt: str) -> str | None:
        """Returns the first rule that drops a pair, or None."""
        return next((name for name, rule in self._rules if rule(src, tgt)), None)

    def _is_long(self, line: str) -> bool:
        most = self.options.max_words
        # Words of scripts such as Thai cannot be counted.
        return len(line) > 10 * most or (len(line) > most and len(words_of(_UNCOUNTED.sub("", line))) > most)

    def _has_odd_ratio(self, src: str, tgt: str) -> bool:
        shorter, longer = sorted((len(src) * math.sqrt(self.ratio), len(tgt) / math.sqrt(self.ratio)))
        return longer > max(SHORT, self.options.max_ratio * shorter)

    def _is_foreign(self, side: int, line: str) -> bool:
        if line.isascii() and "Latin" in self.scripts[side]:
            return False
        letters = [character for character in line if character.isalpha()]
        return 2 * sum(_script(character) not in self.scripts[side] for character in letters) > len(letters)

    def _is_in_another_language(self, src: str, tgt: str) -> bool:
        assert self.languages is not None
        return any(
            probabilities(line, self.languages).get(code, 1.0) < UNLIKELY
            for line, code in zip((src, tgt), self.languages, strict=True)
        )


def _scripts(lines: Iterable[str]) -> list[str]:
    """Returns the scripts that have at least a share USUAL of the letters."""
    counts = Counter(_script(character) for line in lines for character in line if character.isalpha())
    return sorted(name for name, n in counts.items() if n >= USUAL * counts.total())


def _numbers_differ(src: str, tgt: str) -> bool:
    """Returns whether both sides have numbers, but different ones; order and separators may differ by language."""
    ours, theirs = (
        ["".join(str(int(digit)) for digit in number) for number in _NUMBER.findall(line)] for line in (src, tgt)
    )
    if not ours or not theirs or "".join(ours) == "".join(theirs):
        return False
    return sorted(number.lstrip("0") for number in ours) != sorted(number.lstrip("0") for number in theirs)


def _repeats(src: str, tgt: str) -> bool:
    """Returns whether one side repeats a phrase REPEATED times in a row, and twice as often as the other side."""
    fewer, more = sorted((repetitions(src), repetitions(tgt)))
    return more >= REPEATED and more >= 2 * fewer


def repetitions(line: str) -> int:
    """Returns the largest number of consecutive occurrences of a phrase, at least 1. Punctuation is ignored."""
    words, most = [word for word in words_of(line) if word[0].isalnum()], 1
    for size in range(1, min(LONGEST_PHRASE, len(words) // 2) + 1):
        run = 0
        for word, earlier in zip(words[size:], words[:-size], strict=True):
            run = run + 1 if word == earlier else 0
            most = max(most, 1 + run // size)
    return most


def markup(line: str) -> set[str]:
    """Returns the names of a line's HTML elements, and its entities."""
    if "<" not in line and "&" not in line:
        return set()
    return {tag or entity for tag, entity in _MARKUP.findall(line.lower())}


def urls(line: str) -> set[str]:
    """Returns the web and e-mail addresses of a line."""
    if not any(mark in line for mark in ("@", "//", "www.")):
        return set()
    return {url.rstrip(".,;:!?)'") for url in _URL.findall(line)}


def key_of(src: str, tgt: str) -> int:
    """Returns an 8-byte hash of the words of a pair, without case and punctuation."""
    text = f"{bare(src)}\n{bare(tgt)}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
