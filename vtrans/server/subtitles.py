"""Reads SubRip subtitles (.srt): numbers and times stay, and each caption is translated as a whole."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice

from vtrans.server.batching import Translated
from vtrans.server.documents import MarkedDocument
from vtrans.server.html import read_html


class SubtitleDocument:
    """Subtitles. A caption may have tags such as <i>, and keeps its number of lines."""

    def __init__(self, text: str, language: str) -> None:
        self._kept: list[str] = []  # before each caption, and after the last one
        self._captions: list[MarkedDocument] = []
        self._heights: list[int] = []
        place = 0
        for begin, end in _captions(text):
            caption = text[begin:end].rstrip("\n")
            self._kept.append(text[place:begin])
            self._captions.append(MarkedDocument(read_html(caption.replace("\n", " ")), language, str))
            self._heights.append(caption.count("\n") + 1)
            place = begin + len(caption)
        self._kept.append(text[place:])
        self.lines = [line for caption in self._captions for line in caption.lines]
        self.aligned = [needs for caption in self._captions for needs in caption.aligned]

    def joined(self, translations: Sequence[Translated]) -> str:
        rest, written = iter(translations), []
        for kept, caption, height in zip(self._kept[:-1], self._captions, self._heights, strict=True):
            text = caption.joined(list(islice(rest, len(caption.lines))))
            written += [kept, broken(text, height)]
        return "".join([*written, self._kept[-1]])


def _captions(text: str) -> Iterator[tuple[int, int]]:
    """Yields where captions begin and end: after a line with an arrow, before a blank line."""
    at = text.find("-->")
    while at >= 0 and (begin := text.find("\n", at) + 1) > 0:
        end = text.find("\n\n", begin - 1)
        end = len(text) if end < 0 else max(end, begin)
        yield begin, end
        at = text.find("-->", end)


def broken(text: str, height: int) -> str:
    """Returns a text in `height` lines of about the same length, or fewer if it has fewer words."""
    spaces = [i for i, character in enumerate(text) if character == " "]
    parts, place = [], 0
    for line in range(1, height):
        ideal = place + (len(text) - place) / (height - line + 1)
        k = bisect_left(spaces, ideal)
        near = [space for space in spaces[max(0, k - 1) : k + 1] if space > place]
        if near:
            space = min(near, key=lambda space: abs(space - ideal))
            parts.append(text[place:space])
            place = space + 1
    return "\n".join([*parts, text[place:]])
