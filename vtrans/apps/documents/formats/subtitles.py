"""Reads subtitles, SubRip (.srt) and WebVTT (.vtt): numbers and times stay, and what each speaker says in a caption is
translated as a whole."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace

import regex

from vtrans.apps.documents.document import FilledDocument, MarkedDocument, Slot
from vtrans.apps.documents.formats.html import read_html
from vtrans.apps.documents.formats.markup import Item
from vtrans.system.errors import DocumentError
from vtrans.text.words import unwrapped

_TIMES = re.compile(r"^[ \t]*(?:\d{1,9}:){1,2}\d{1,9}(?:[,.]\d{1,9})?[ \t]*-->[^\n]*\n?", re.MULTILINE)
# A space that is not inside a tag, and a place where a line of Chinese or Japanese may end (Unicode's Line_Break).
_GAP = regex.compile(
    r"<[^<>]*>(*SKIP)(*FAIL)| |(?<=[^\s\u200d>\p{Line_Break=Open_Punctuation}])(?=\p{Line_Break=Ideographic})"
)
_DASH = re.compile(r"^(?:<[^<>\n]*>|\{[^{}\n]*\}|[ \t])*[-\u2010-\u2015][ \t]*(?=\S)", re.MULTILINE)

# A sound, such as [DOOR OPENS], and a line of a song.
_ALONE = re.compile(r"^[ \t]*(?:\[[^\[\]\n]*\]|\([^()\n]*\)|[\u266a\u266b][^\n]*)[ \t]*$\n?", re.MULTILINE)


class SubtitleDocument(FilledDocument):
    """Subtitles. A caption may have tags such as <i>. A dash at the beginning of a line begins what another speaker
    says, and stays. Sounds and lines of songs are translated separately. What a speaker says keeps its number of
    lines. `escape` writes text beside tags. Raises DocumentError for a text without times."""

    def __init__(self, text: str, language: str, escape: Callable[[str], str] = str) -> None:
        if not _TIMES.search(text):
            raise DocumentError(
                "The file has no timings; a subtitle needs a line such as 00:00:01,000 --> 00:00:02,500."
            )
        super().__init__(text, [_slot(text, begin, end, language, escape) for begin, end in _speeches(text)])


def _slot(text: str, begin: int, end: int, language: str, escape: Callable[[str], str]) -> Slot:
    speech = text[begin:end].rstrip("\n")
    document = MarkedDocument(list(_items(unwrapped(speech))), language, escape)
    height = speech.count("\n") + 1

    def written(texts: list[str]) -> str:
        return speech if texts[0] == document.unchanged() else broken(texts[0], height)

    return Slot(begin, begin + len(speech), [document], written)


def _items(speech: str) -> Iterator[Item]:
    """Yields the items of a speech. WebVTT has tags that are times, and others whose names end with classes."""
    for number, part in enumerate(re.split(r"(<[\d:.]+>)", speech)):
        items = [Item("point", part)] if number % 2 else read_html(part)
        yield from (replace(item, name=item.name.partition(".")[0]) for item in items)


def _speeches(text: str) -> Iterator[tuple[int, int]]:
    """Yields where speeches begin and end. Captions are between a line with times and a blank line."""
    times = _TIMES.search(text)
    while times:
        begin = times.end()
        end = text.find("\n\n", begin - 1)
        end = len(text) if end < 0 else max(end, begin)
        cuts = [(dash.start(), dash.end()) for dash in _DASH.finditer(text, begin, end)]
        cuts += [(place, place) for alone in _ALONE.finditer(text, begin, end) for place in alone.span()]
        for start, stop in sorted(cuts):
            if begin < start:
                yield begin, start
            begin = max(begin, stop)
        if begin < end:
            yield begin, end
        times = _TIMES.search(text, end)


def broken(text: str, height: int) -> str:
    """Returns a text in `height` lines of about the same length, or fewer if it has fewer words."""
    gaps = dict(match.span() for match in _GAP.finditer(text))
    begins, parts, place = sorted(gaps), [], 0
    for line in range(1, height):
        ideal = place + (len(text) - place) / (height - line + 1)
        k = bisect_left(begins, ideal)
        near = [begin for begin in begins[max(0, k - 1) : k + 1] if begin > place]
        if near:
            gap = min(near, key=lambda begin: abs(begin - ideal))
            parts.append(text[place:gap])
            place = gaps[gap]
    return "\n".join([*parts, text[place:]])
