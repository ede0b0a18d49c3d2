"""Reads subtitles, SubRip (.srt) and WebVTT (.vtt), and plain text. A sentence that crosses captions or wrapped lines
is translated as a whole, and its translation is divided again."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import regex

from vtrans.apps.documents.document import Document, FilledDocument, Filling, MarkedDocument, PlainDocument, Slot
from vtrans.apps.documents.formats.html import read_html
from vtrans.apps.documents.formats.markup import Item
from vtrans.apps.documents.sentences import MARKS, trimmed
from vtrans.system.errors import DocumentError
from vtrans.text.sentences import sentences
from vtrans.text.words import WORD, unwrapped

MOST_PARTS = 6  # captions or lines per sentence; a longer run lacks sentence-final punctuation
NARROWEST = 40  # minimum length of the longest line of wrapped text, in characters
FULL = 0.85  # of the longest line: minimum length of a wrapped line plus the first word of the next line
NEAR = 6  # word gaps that are tried on each side of the ideal place
MARK_BONUS = 4  # characters by which a part may be longer or shorter to end at punctuation

_LINE_END = re.compile(r"\r?\n|\\N")
# A space that is not inside a tag, or a place where a line of Chinese or Japanese may end (Unicode's Line_Break).
_GAP = regex.compile(
    r"<[^<>]*>(*SKIP)(*FAIL)| +|(?<=[^\s\u200d>\p{Line_Break=Open_Punctuation}])(?=\p{Line_Break=Ideographic})"
)
_TAG = re.compile(r"<(/?)[A-Za-z][^<>]*>")
_MARK = regex.compile(r"[\p{P}--[\p{Ps}\p{Pi}]]", regex.V1)
_ITEM = re.compile(r"[ \t]*(?:[-*\u2022>#+|]|\d{1,3}[.)])[ \t]")  # of a list

Span = tuple[int, int]

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


def chains(text: str, parts: Iterable[tuple[Span, bool]], language: str) -> Iterator[list[Span]]:
    """Yields the parts of a text, grouped where a sentence continues in the next part. The second value of a part says
    whether it may continue the part before."""
    chain, length = list[Span](), 1
    for part, may_continue in parts:
        if chain and may_continue and length < MOST_PARTS:
            before = text[slice(*chain[-1])].strip()
            both = sentences(f"{before} {text[slice(*part)].strip()}", language)
            ends = [*accumulate(map(len, both))][:-1]
            if not any(len(before) <= end <= len(before) + 1 for end in ends):
                chain.append(part)
                length = 1 if ends and ends[-1] > len(before) else length + 1
                continue
        if chain:
            yield chain
        chain, length = [part], 1
    if chain:
        yield chain


def slot_across(
    text: str,
    parts: Sequence[Span],
    language: str,
    read: Callable[[str], Iterator[Item]],
    escape: Callable[[str], str] = str,
    *,
    repeats: bool = False,
) -> Slot:
    """Returns a slot for the parts of a text that belong together. `read` yields the items of a part, given as one
    line. A translation with too few words fills fewer parts; with `repeats`, the others repeat its last part."""
    (begin, _), (_, end) = parts[0], parts[-1]
    raws = [text[slice(*part)] for part in parts]
    mark = next((sign for sign in MARKS if sign not in text[begin:end]), "")
    items = list[Item]()
    for n, raw in enumerate(raws):
        if n:
            space = unwrapped(f"{raws[n - 1][-1:]}\n{raw[:1]}")[1:-1]
            items += [Item("point", mark), Item("text", space, space)]
        items += read(unwrapped(_LINE_END.sub("\n", raw)))
    document = MarkedDocument(items, language, escape)

    def written(texts: list[str]) -> str | None:
        if texts[0] == document.unchanged():
            return text[begin:end]
        made = divided(texts[0], [len(raw) for raw in raws], mark)
        made += made[-1:] * (len(raws) - len(made)) if repeats else []
        result = ""
        for n, (raw, part) in enumerate(zip(raws, made, strict=False)):  # a short translation has fewer parts
            ends = _LINE_END.findall(raw)
            lines = divided(part, [1] * (len(ends) + 1))  # never more than the source has; fewer need fewer line ends
            result += text[parts[n - 1][1] : parts[n][0]] if n else ""
            result += lines[0] + "".join(f"{line_end}{line}" for line_end, line in zip(ends, lines[1:], strict=False))
        return result

    return Slot(begin, end, [document], written)


def divided(text: str, shares: Sequence[int], mark: str = "") -> list[str]:
    """Divides a text into one part per share, or fewer if it has fewer words. Lengths are roughly proportional to the
    shares. Parts preferably end at punctuation, and near the `mark`s in the text, which are removed."""
    pieces = text.split(mark) if mark else [text]
    wanted, text = [*accumulate(map(len, pieces))][:-1], "".join(pieces)
    left = [*accumulate(reversed(shares))][::-1]
    gaps = _gaps(text)
    begins, made, place = sorted(gaps), list[str](), 0
    for n in range(len(shares) - 1):
        last = len(begins) - (len(shares) - 2 - n)  # gaps for the other parts
        ideal = place + (len(text) - place) * shares[n] / max(left[n], 1)
        goals = [ideal, *([wanted[n]] * 2 if len(wanted) == len(shares) - 1 else [])]
        near = (begins[max(0, k - NEAR) : min(k + NEAR, last)] for k in (bisect_left(begins, goal) for goal in goals))
        candidates = {begin for few in near for begin in few if begin > place}
        if not candidates:
            continue

        def cost(begin: int, goals: Sequence[float] = goals) -> tuple[float, int]:
            bonus = MARK_BONUS if _MARK.match(text, begin - 1) else 0
            return sum(abs(begin - goal) for goal in goals) - bonus * len(goals), begin

        gap = min(candidates, key=cost)
        made.append(text[place:gap])
        place = gaps[gap]
    return [*made, text[place:]]


def _gaps(text: str) -> dict[int, int]:
    """Returns the end of each gap between words, by its begin. Gaps inside elements are a last resort."""
    gaps = dict(match.span() for match in _GAP.finditer(text) if match.start())
    depths, depth = [(0, 0)], 0
    for tag in _TAG.finditer(text):
        depth += -1 if tag[1] else 1
        depths.append((tag.end(), depth))
    outside = {begin: end for begin, end in gaps.items() if not depths[bisect_left(depths, (begin + 1,)) - 1][1]}
    return outside or gaps


def text_document(text: str, language: str, filling: Filling = Filling()) -> Document:
    """Returns plain text as a document. The lines of a wrapped paragraph belong together."""
    lines = [match.span() for match in re.finditer(r"[^\r\n]+", text) if match.group().strip()]
    paragraphs = list[list[Span]]()
    for line in lines:
        is_next = paragraphs and text[paragraphs[-1][-1][1] : line[0]] in ("\n", "\r\n")
        if is_next and not _ITEM.match(text, *line):
            paragraphs[-1].append(line)
        else:
            paragraphs.append([line])
    if not any(_is_wrapped(text, paragraph) for paragraph in paragraphs):
        return PlainDocument(text, language)
    slots = list[Slot]()
    for paragraph in paragraphs:
        wrapped = _is_wrapped(text, paragraph)
        parts = [(trimmed(text, *line), wrapped and n > 0) for n, line in enumerate(paragraph)]
        for chain in chains(text, parts, language):
            slots.append(slot_across(text, chain, language, lambda part: iter([Item("text", part, part)])))
    return FilledDocument(text, slots)


def _is_wrapped(text: str, lines: Sequence[Span]) -> bool:
    """Returns whether lines look wrapped: the first word of each would hardly fit into the line before. Two lines count
    as wrapped only if the second does not begin with a capital."""
    width = max(end - begin for begin, end in lines)
    words = [match[0] for line in lines[1:] if (match := WORD.search(text, *line))]
    if not words or width < NARROWEST or (len(words) == 1 and words[0][0].isupper()):
        return False
    return all(end - begin + len(word) >= FULL * width for (begin, end), word in zip(lines[:-1], words, strict=True))


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
