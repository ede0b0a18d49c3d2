"""Reads subtitles, SubRip (.srt) and WebVTT (.vtt): numbers and times stay, and each speech is translated as a whole,
even across captions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import regex

from vtrans.apps.documents.document import FilledDocument, Filling
from vtrans.apps.documents.formats.flow import Span, chains, slot_across
from vtrans.apps.documents.formats.html import read_html
from vtrans.apps.documents.formats.markup import Item
from vtrans.apps.documents.sentences import trimmed
from vtrans.system.errors import DocumentError

MOST_TAGS = 3  # around a speech; they are left out of it
LEAST_ENDS = 0.25  # minimum share of speeches that end a sentence; with fewer, punctuation is missing

_TIMES = re.compile(
    r"^(?:[ \t]*\d+[ \t]*\r?\n)?[ \t]*(?:\d{1,9}:){1,2}\d{1,9}(?:[,.]\d{1,9})?[ \t]*-->[^\n]*\n?", re.MULTILINE
)
# Text between speeches: blank lines, tags of a whole line such as `{\an8}`, and marks of another speaker.
_BETWEEN = re.compile(
    r"(?P<blank>^[ \t]*\r?\n)|^(?:\{\\[^{}\n]*\})+"
    r"|(?P<speaker>^(?:<[^<>\n]*>|\{[^{}\n]*\}|[ \t])*(?:[-\u2010-\u2015][ \t]*(?=\S)|<v\b[^<>]*>)"
    r"|(?:>>|&gt;&gt;)+[ \t]*)",
    re.MULTILINE,
)
# A sound, such as [DOOR OPENS], and a line of a song.
_ALONE = re.compile(r"^[ \t]*(?:\[[^\[\]\n]*\]|\([^()\n]*\)|[\u266a\u266b][^\n]*)[ \t]*\r?$\n?", re.MULTILINE)
_WRAPPED = re.compile(r"\s*<(\w+)[^<>]*>((?:(?!</?\1\b).)*)</\1>\s*", re.DOTALL)
_STYLE = re.compile(r"\{\\(?P<name>[ibsu])(?P<off>\d+)\}")
_END = regex.compile(r"[\p{SB=STerm}\p{SB=ATerm}\u2026][\p{Pe}\p{Pf}\"'\s]*\Z", regex.V1)


class SubtitleDocument(FilledDocument):
    """Subtitles. A caption may have tags such as <i>. A dash at the beginning of a line marks another speaker, and
    stays. Sounds and lines of songs are translated separately. Each caption keeps its number of lines, and a sentence
    that continues in the next caption is translated as a whole. `escape` escapes text outside tags. Raises
    DocumentError for a text without timings."""

    def __init__(
        self, text: str, language: str, filling: Filling = Filling(), escape: Callable[[str], str] = str
    ) -> None:
        if not _TIMES.search(text):
            raise DocumentError(
                "The file has no timings; a subtitle needs a line such as 00:00:01,000 --> 00:00:02,500."
            )
        parts = [(_unwrapped(text, *span), continues) for span, continues in _speeches(text)]
        ends = sum(_END.search(text, *span) is not None for span, _ in parts)
        if ends < LEAST_ENDS * len(parts):
            parts = [(span, False) for span, _ in parts]
        slot = partial(slot_across, text, language=language, read=_items, escape=escape, repeats=True)
        super().__init__(text, [slot(chain) for chain in chains(text, parts, language)])


def _items(speech: str) -> Iterator[Item]:
    """Yields the items of a speech. WebVTT has tags that are times, and others whose names end with classes."""
    for number, part in enumerate(re.split(r"(<[\d:.]+>|\{\\[^{}]*\})", speech)):
        if number % 2:
            style = _STYLE.fullmatch(part)
            name = style["name"] if style else ""
            yield Item("point" if not style else "close" if style["off"] == "0" else "open", part, name=name)
        else:
            yield from (replace(item, name=item.name.partition(".")[0]) for item in read_html(part))


def _speeches(text: str) -> Iterator[tuple[Span, bool]]:
    """Yields the begin and end of each speech, and whether it may continue the previous one: no other speaker, sound or
    song lies between them. A caption of WebVTT ends at a blank line."""
    is_web, times, may_continue = text.startswith("WEBVTT"), _TIMES.search(text), False
    while times:
        begin, following = times.end(), _TIMES.search(text, times.end())
        end = following.start() if following else len(text)
        between = list(_BETWEEN.finditer(text, begin, end))
        end = next((match.start() for match in between if match["blank"] and is_web), end)
        cuts = [(match.start(), match.end(), match["speaker"] is not None) for match in between]
        cuts += [(place, place, True) for alone in _ALONE.finditer(text, begin, end) for place in alone.span()]
        for start, stop, is_other in [*sorted(cut for cut in cuts if cut[0] < end), (end, end, False)]:
            if begin < start and text[begin:start].strip():
                yield (begin, start), may_continue
                may_continue = True
            begin, may_continue = max(begin, stop), may_continue and not is_other
        times = following


def _unwrapped(text: str, begin: int, end: int) -> Span:
    """Returns where a speech begins and ends without the tags around it."""
    for _ in range(MOST_TAGS):
        if wrapped := _WRAPPED.fullmatch(text, begin, end):
            begin, end = wrapped.span(2)
    return trimmed(text, begin, end)
