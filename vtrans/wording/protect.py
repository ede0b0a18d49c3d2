"""Text that is copied from a line to its translation, such as addresses and placeholders.

Protected text is replaced by a code such as `A1`, which models place well, and the codes of the translation are
replaced by the text again. The search requires each code as often as it occurs in the source. Where it cannot, or if
the length limit ended the translation, missing text is put at the end, so that it is never lost.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from vtrans.errors import InputError
from vtrans.text.words import codes_for
from vtrans.wording.phrases import has_spaces

# Repetitions are bounded where a hostile text could make a search quadratic.
PATTERNS = {
    "code": r"<(?:code|kbd)\b[^<>]*>.{0,500}?</(?:code|kbd)>|`[^`]+`",
    "addresses": (
        r"(?:\b(?:https?|ftp)://|\bwww\.)(?:[^\s<>\"()]|\([^\s<>\"()]*\))+"
        r"(?<![.,;:!?\[\]'\u2018\u2019\u201c\u201d])"
    ),
    "e-mail": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+",
    "tags": r"</?[A-Za-z][^<>]*>|&lt;/?[A-Za-z][^<>&]*&gt;|&(?:[A-Za-z]+|#\d+|#x[0-9A-Fa-f]+);",
    "braces": (
        r"\{\w{1,40},\s?(?:plural|select|selectordinal),"  # a message of ICU
        r"(?:[^{}]{1,200}\{[^{}]{0,300}(?:\{[^{}]{0,50}\}[^{}]{0,300}){0,5}\}){1,12}\s?\}"
        r"|\{\{[^{}]*\}\}|\$?\{[^{}\s]*(?:\{[^{}\s]*\}[^{}\s]*){0,5}\}|%\{\w+\}|\$\(\w+\)"
    ),
    "format": (
        r"%(?:\d{1,3}\$|\(\w+\))?[-+0#]{0,5}(?:\d{1,4}|\*(?:\d{1,3}\$)?)?(?:\.\d{1,4})?"
        r"(?:hh|h|ll|l|z)?[sdifgeuxXcpoE@](?![A-Za-z])"
    ),
}
"""What is protected by default, by kind; earlier kinds take precedence."""


# Of programs in which no flag tells the format. `100%`, `50%n` and `$5` are text.
PLACEHOLDERS = (
    r"%\d{1,2}:[-.\d]*[a-z](?![^\W_])|%<\w+>[\d.]*[sdfxi](?![^\W_])|(?<![\w%])(?:%[A-Za-z](?:[-:/.](?=%[A-Za-z]))?)+(?![^\W_])"
    r"|(?<![\w$\\])\$[A-Za-z_]\w*|(?<![\w%])%\d{1,2}(?!\w|[%$]|[.,]\d)|\[\[[^\[\]]{1,200}\]\]"
)
_KEYS = r"\b(?:Ctrl|Alt|Shift|Meta|Super|Cmd|Win)(?:\+\w+|-[A-Z]\b)+"
# Paths of Windows, keys, and characters and fonts of groff.
NAMES = (
    rf"(?<!\w)[A-Za-z]:\\[\w.~$\\-]{{0,200}}[\w\\]|{_KEYS}"
    r"|\\(?:\(\w\w|f(?:\[\w*\]|\(\w\w|[BIPR])(?!\w)|\*?\[\w+\])"
)
# Pages and names of servers, paths and files of Unix, dates in digits, settings (`DEBUG=true`), versions (`1.2.3`,
# `torch>=2.1`), ISBNs, phone numbers, emoticons, functions and words such as `mp3`. `and/or`, `1/2`, `9.5` and `10am`
# are text.
_MORE = (
    r"(?<![\w@./-])(?:[\w-]{1,60}\.){1,5}[A-Za-z]{2,12}(?::\d{2,5})?/[^\s<>\"()]*(?<![.,;:!?\[\]'\u2018\u2019\u201c\u201d])"
    r"|(?<![\w./~-])(?:~|\.{1,2})?(?:/[\w.+-]*\w){1,30}/?(?!\w)"
    r"|(?<![\w./-])\w[\w-]{0,60}(?:[./]\w[\w-]{0,60}){0,9}\.(?:ya?ml|json|toml|ini|cfg|conf|log|txt|md|pdf|docx?|xlsx?|pptx?"
    r"|[ct]sv|png|jpe?g|gif|svg|mp[34]|wav|zip|tar|gz|exe|dll|iso|apk|sh|py|js|ts|css|html?|xml|sql|cpp|hpp|java|rs|php"
    r"|com|org|net|io|dev|edu|gov|info|de|uk|eu|fr|ch)(?!\w)"
    r"|(?<![\w./,-])(?:\d{1,2}/\d{1,2}/(?:\d{4}|\d{2})|\d{4}/\d{1,2}/\d{1,2})(?![\w/])"
    r"|(?<![\w./-])[A-Za-z][\w.-]{0,60}(?:[=~<>]=\d|=\w)[\w.]{0,20}(?<!\.)(?!\w)|(?<!\S)\.(?:env|git|[a-z]{2,8}(?:rc|ignore))(?!\w)"
    r"|(?<![\w.,])[vV]?\d{1,4}(?:\.\d{1,4}){2,4}(?:[-+]?[A-Za-z]\w*(?:\.\d{1,4}){0,2})?(?!\w|\.\d)"
    r"|(?<![\w-])\d{1,6}(?:-\d{1,7}){2,5}(?![\w-])"
    r"|(?<![\w+])\+\d{1,3}(?:[ ./-]?\(?\d{1,5}\)?){2,5}(?!\d)|(?<!\w)\(\d{2,5}\)[ -]?\d{3,5}(?:[ -]\d{2,5}){0,2}(?!\w)"
    r"|(?<![\w.,/-])(?:\d{3}-\d{4}|\d{3}[ .]\d{3}[ .]\d{4}|0\d{1,4}[ /-]\d{3,8}(?: \d{2,5}){0,3})(?![\w-]|[.,]\d)"
    r"|(?<!\S)[:;]['\u2019]?-?[()DP](?!\S)"
    r"|(?<![\w.$-])[A-Za-z_]\w{0,60}\(\)|(?<![\w.$&/-])(?:[a-z]{1,20}\d|0x[\da-fA-F])\w{0,30}(?![\w(]|[-@./]\w)"
)
# Hashtags, mentions, flags, names with capitals inside, escapes, `_` of Markdown, and what shells write. `-5`, `-no`,
# `he/she`, `w/`, PhDs and McDonald are text.
_TYPED = (
    r"(?<![\w#&@./])#(?:[^\W\d_]\w{1,60}|[\da-fA-F]{6})(?!\w)|(?<![\w@./+-])@[A-Za-z_]\w{0,40}(?:[.-]\w{1,40}){0,3}(?!\w)"
    r"|(?<![^\s(\[|,=\"'\u201c])--[a-z][a-z\d]{0,30}(?:-[a-z\d]{1,30}){0,5}"
    r"(?:=[^\s,;)\]\"']{0,60}[^\s,.;:!?)\]\"'])?(?![\w'-])|^-[A-Za-z](?=,? --|,? [A-Z]{2,}\b)"
    r"|(?:(?<=[^\s.!?\u2026\"-]\s)|(?<=[(\[|]))-(?!(?:and|as|but|he|if|no|not|or|she|so|the|we|who|yes|you|I)\b)"
    r"[A-Za-z]{1,3}(?![\w'\u2019-])|\\[nrt](?![a-z])|(?<!\w)_(?=[^\W_](?:[^_]{0,100}[^\s_])?_(?!\w))|(?<=[^\W_])_(?!\w)"
    r"|(?<![\w@./\\=-])(?<!=\")(?!(?:the|and|Ma?c|De|L[ae]|Van|Fitz)[A-Z]|PhD|WiFi)(?:[a-z]{2,20}|[A-Z][a-z\d]{1,20})"
    r"(?:[A-Z][a-z\d]{1,20}|[A-Z]{2,9}(?![a-z])){1,6}(?:\.[A-Za-z]\w{0,30}){0,3}(?!\w)"
    r"|(?<![\w*])\*(?:\.[A-Za-z]\w{0,9}){1,2}(?!\w)|(?<![\w.])localhost:\d{2,5}(?!\d)(?:/[^\s<>\"()]*\w/?)?"
    r"|(?<![\w./-])(?:[A-Za-z.][\w.-]{1,40}/){1,9}(?=[.,;:!?)\"]|$)|(?<= folder |rectory )[\w.-]{1,40}/(?!\S)"
    r"|(?<!\w)HEAD[~^]\d{0,3}|(?<![\w.])\d{1,6}\.\.\d{1,6}(?![\w.])|(?<![\w./-])[\da-f]{4}(?:-[\da-f]{4}){1,7}(?![\w-])"
)
_HEX = r"[\da-fA-F]{1,4}"
_RARE = "|".join((
    # UUIDs, and words of at least six characters with letters between digits, such as the checksum `9e107d9d`
    r"(?<![\w./-])(?:[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}"
    r"|(?=\w{6})[A-Za-z]{0,40}\d{1,40}[A-Za-z]{1,40}\d\w{0,130})(?![\w-])",
    # addresses of network cards and of IPv6
    rf"(?<![\w.:])(?:(?:{_HEX}:){{4,7}}{_HEX}|{_HEX}(?::{_HEX}){{0,6}}::(?:{_HEX}(?::{_HEX}){{0,6}})?)(?![\w:])",
    # angles, decimal coordinates, feet and inches
    r"(?<!\w)\d{1,3}\u00b0\d{1,2}['\u2032](?:\d{1,2}(?:\.\d{1,4})?[\"\u2033])?[NSEW]?(?!\w)",
    r"(?<![\w.,-])-?\d{1,3}\.\d{4,8}, ?-?\d{1,3}\.\d{4,8}(?!\w|[.,]\d)|(?<![\w'])\d'\d{1,2}\"(?!\w)",
    # ranges and scores; a range of times has am or pm
    r"(?<![\w.,:/$%-])\d{1,4}[-\u2013]\d{1,4}(?![\w%-]|[.,:/]\d| ?[ap]\.?m(?!\w))",
    # codes of banks
    r"(?:(?<=\bBIC )|(?<=\bBIC: )|(?<=\bSWIFT: ))[A-Z]{8}(?:[A-Z]{3})?(?!\w)",
    # formulas such as `mc` with a 2 above the line, parts such as `2b`, and Roman numerals
    r"(?<!\w)[A-Za-z]{1,3}[\u00b2\u00b3\u2070-\u2089]\w{0,20}|(?<![\w.,$-])\d{1,2}[abc](?![\w/-])",
    r"(?<=[a-z] )(?<![Ww]ar )(?<!\ba )(?<!\ban )(?<!\bon )(?<!\bthe )"
    r"(?:II|III|IV|VI{1,3}|IX|X[IV]{0,4}|XX[IV]{0,4})(?!\w)",
    # dot leaders and rules; `Wait.... what?` has an ellipsis
    r"[-=*_\u2013\u2014]{4,}|\.{5,}|(?<![\w.])\.{4}",
))  # fmt: skip
CODE = r"(?<![\w-])(?=[A-Z./-]{0,30}\d)(?=[\d./-]{0,30}[A-Z])[A-Z\d]{1,30}(?:[./-][A-Z\d]{1,30}){0,5}(?![\w-]|[@/.]\w)"
"""A word of capitals and digits, such as A-17, COVID-19 or 4K."""

_CODE = re.compile(r"[A-Z]\d{1,5}")
# What keeps the spacing of the source. German separates a dash by spaces.
_MARKUP = re.compile(r"(?:[^\w\u2013\u2014]|_)+|</?[A-Za-z].*>|&.*;|\\[nrt]")
_GAP = (" ", "")
_OPENING = re.compile(r"""(?:^|\s)["'\u2018\u201a\u201c\u201e\xab\xbb([{#*]+ $""")  # a bracket or a quotation mark


@dataclass(frozen=True)
class Protection:
    """Regular expressions for protected text, besides PATTERNS. Raises InputError for one that is not valid."""

    more: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in self.more:
            try:
                re.compile(pattern)
            except re.error as error:
                raise InputError(
                    f"`protect_patterns` must be regular expressions of Python, got {pattern!r}: {error.msg}."
                ) from None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?:{pattern})" for pattern in (*self.more, *PATTERNS.values())))

    def spans(self, line: str) -> Iterator[Span]:
        """Yields where a line has protected text."""
        return (match.span() for match in self._pattern.finditer(line) if match.group().strip())

    def masked(self, line: str) -> Masked:
        """Returns a line with codes for its protected text."""
        return masked(line, self.spans(line))


_NOT_CODES = r"(?<![\w-])(?![A-Z]{5,30}-?\d{1,3}(?!\w)|\d+(?:[AP]M|K[GM])\b)"
EVERYDAY = Protection((PLACEHOLDERS, NAMES, _TYPED, _MORE, _RARE, rf"(?<![$\u20ac\u00a3]){_NOT_CODES}{CODE}"))
"""What models that have learned codes copy by default. COVID-19 is a word, and 10AM a time."""


Span = tuple[int, int]
"""Where a part of a line begins and ends."""


def masked(line: str, spans: Iterable[Span], known: Mapping[str, str] | None = None) -> Masked:
    """Returns a line with codes for the text in these spans, which are in order and do not overlap. `known` are texts
    that have codes already."""
    code_of, parts, end = dict(known or {}), list[Part](), 0
    codes = codes_for(" ".join((line, *code_of.values())))
    for begin, stop in spans:
        text = line[begin:stop]
        if text not in code_of:
            code_of[text] = next(codes)
        before = line[end:begin]
        parts.append((before, before))
        # A code stands apart from the words and codes beside it. A code before a letter has a space already.
        follows = begin == end > 0
        if (follows or line[:begin][-1:].isalnum()) and not (follows and line[begin].isalnum()):
            parts.append(_GAP)
        parts.append((code_of[text], text))
        if line[stop : stop + 1].isalnum():
            parts.append(_GAP)
        end = stop
    return Masked([*parts, (line[end:], line[end:])], {code: text for text, code in code_of.items()})


def coded_pair(src: str, tgt: str, protection: Protection) -> tuple[str, str] | None:
    """Returns a pair with the same codes for the same protected text; None if the sides differ in it. Names of keys may
    differ, as translators write `Strg+S` for `Ctrl+S`; the pair then has no codes for them."""
    sides = [(side, list(protection.spans(side))) for side in (src, tgt)]
    for _ in range(2):
        (_, src_spans), (_, tgt_spans) = sides
        read = masked(src, src_spans)
        answer = masked(tgt, tgt_spans, {text: code for code, text in read.texts.items()})
        if read.counts() == answer.counts():
            return read.masked, answer.masked
        sides = [
            (side, [span for span in spans if not re.fullmatch(_KEYS, side[slice(*span)])]) for side, spans in sides
        ]
    return None


def _touches(side: str, other: str) -> bool:
    """Returns whether markup that touches `side` in the source touches `other` in the translation."""
    return bool(side.strip()) and has_spaces(side) and (side.isalnum() or not other.isalnum())


Part = tuple[str, str]
"""A part of a text, with codes and as it is."""


@dataclass(frozen=True)
class Masked:
    """A text whose protected text is represented by codes."""

    parts: Sequence[Part]
    texts: Mapping[str, str]
    """The text of each code."""

    @classmethod
    def plain(cls, text: str) -> Masked:
        """Returns a text without codes."""
        return cls([(text, text)], {})

    @property
    def masked(self) -> str:
        """The text with codes."""
        return "".join(code for code, _ in self.parts)

    @property
    def own(self) -> list[str]:
        """The text besides the protected text."""
        return [text for code, text in self.parts if code == text]

    @property
    def has_letters(self) -> bool:
        """Whether there are letters besides the protected text."""
        return any(character.isalpha() for text in self.own for character in text)

    @property
    def text(self) -> str:
        """The text as it is."""
        return "".join(text for _, text in self.parts)

    def counts(self) -> Counter[str]:
        """Returns how often each code occurs."""
        return Counter(code for code, text in self.parts if code in self.texts and code != text)

    def restored(self, translation: str) -> Masked:
        """Returns a translation of `masked`. Codes that occur too often are left out, and missing ones are added.

        Separates a code from a word that the model joined to it, unless the source has such a word.
        """
        if not self.texts:
            return Masked.plain(translation)
        left, parts, end, joined, glued = self.counts(), list[Part](), 0, self._joined(), self._glued()
        pairs = pairwise(part for part in self.parts if part[0])
        opened = {code for (_, before), (code, text) in pairs if code != text and _OPENING.search(f"{before} ")}
        opening = {code for code, _ in glued if unicodedata.category(self.texts.get(code, " ")[-1]) in ("Ps", "Pi")}
        closing = {code for _, code in glued if unicodedata.category(self.texts.get(code, " ")[0]) in ("Pe", "Pf")}
        triples = zip(self.parts, self.parts[1:], self.parts[2:], strict=False)
        listed = {(first, last) for (first, _), (mark, _), (last, _) in triples if mark == ", "}
        closed = False  # whether the text so far ends with protected text that a word must not touch
        before, right, sides = "", "", self._sides()  # the code before, and what touches it in the source
        for begin, code in (*self._codes_in(translation), (len(translation), "")):
            between, kept = translation[end:begin], left[code] > 0
            words = between.split()
            word = words[0] if words else code
            if between[:1] == " " and (before in opening or (before, word) in glued or _touches(right, word[:1])):
                parts.append(_GAP)
                between = between[1:]
            left_side, right = sides[code][-left[code]] if kept and code in sides else ("", "")
            glues = code in closing or (words and ((words[-1], code) in glued or _touches(left_side, words[-1][-1])))
            joins = bool(words) and (glues or (code in opened and _OPENING.search(between)))
            gap = between[-1:] == " " and joins
            between = between[:-1] if gap else between
            if closed and between[:1].isalnum():
                parts.append(("", " "))
            parts.append((between, ", " if between == " " and (before, code) in listed else between))
            closed = closed and not between
            if gap:
                parts.append(_GAP)
            if kept:
                closed = code not in joined
                if closed and between[-1:].isalnum():
                    parts.append(("", " "))
            parts.append((code, self.texts[code] if kept else ""))
            left[code] -= 1
            end, before = begin + len(code), code
        for code in self.texts:
            for _ in range(left[code]):
                parts.append(("", " " if any(text for _, text in parts) else ""))
                parts.append(("", self.texts[code]))
        return Masked(parts, self.texts)

    def _glued(self) -> set[tuple[str, str]]:
        """Returns the codes, and words beside them, that only `masked` has a space between."""
        parts = [part for part in self.parts if part[0]]
        gaps = (k for k, part in enumerate(parts) if part == _GAP)
        sides = ((parts[k - 1][0].split(), parts[k + 1][0].split()) for k in gaps)
        return {(before[-1], after[0]) for before, after in sides if before and after}

    def _sides(self) -> dict[str, list[tuple[str, str]]]:
        """Returns the characters before and after each occurrence of markup, but for spaces that only `masked` has."""
        sides: dict[str, list[tuple[str, str]]] = {}
        parts = [("", ""), *(part for part in self.parts if part[0] and part != _GAP), ("", "")]
        for (before, _), (code, text), (after, _) in zip(parts, parts[1:], parts[2:], strict=False):
            if code != text and _MARKUP.fullmatch(text):
                sides.setdefault(code, []).append((before[-1:], after[:1]))
        return sides

    def _joined(self) -> set[str]:
        """Returns the codes whose text touches a letter or digit in the source."""
        joined, place, whole = set(), 0, self.text
        for code, text in self.parts:
            end = place + len(text)
            if code != text and (whole[max(0, place - 1) : place].isalnum() or whole[end : end + 1].isalnum()):
                joined.add(code)
            place = end
        return joined

    def code_words(self) -> dict[str, list[int]]:
        """Returns the words of `masked` that have each code."""
        words: dict[str, list[int]] = {}
        for k, word in enumerate(self.masked.split()):
            for _, code in self._codes_in(word):
                words.setdefault(code, []).append(k)
        return words

    def _codes_in(self, text: str) -> Iterator[tuple[int, str]]:
        """Yields the codes in a text and where they are. Other digits may follow one."""
        for match in _CODE.finditer(text):
            code = match.group()
            while code and code not in self.texts:
                code = code[:-1]
            if code:
                yield match.start(), code

    def words(self) -> list[int]:
        """Returns, for each word of `masked`, the word of `text` that it stands for or is a part of."""
        begins = [match.start() for match in re.finditer(r"\S+", self.text)]
        places, there = list[int](), 0  # for each character of `masked`, where it is in `text`
        for code, text in self.parts:
            places += [there + (i if code == text else 0) for i in range(len(code))]
            there += len(text)
        words = (bisect_right(begins, places[match.start()]) - 1 for match in re.finditer(r"\S+", self.masked))
        return [max(0, word) for word in words]
