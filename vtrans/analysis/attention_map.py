"""Cross-attention as a picture: where a translation looks in its source, as SVG or in characters.

One row for each word of the translation, one column for each of the source. As in alignments.py a source word
takes the sum over its subwords and a translated word the mean over its own; what goes to the source's EOS has a
column, so that every row adds up to one.

Legend: S source length with EOS, T target length, H heads, I columns, J rows.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vtrans.console import STEERING, joins, text_width
from vtrans.data.vocabulary import EOS_ID, SPECIAL_PIECES
from vtrans.decoding.alignments import mean_attention, source_words, target_words, upper_half
from vtrans.decoding.forced import ForcedBatch, forced_batches
from vtrans.decoding.translator import EXTRA_LENGTH, Translator
from vtrans.errors import InputError
from vtrans.model import Transformer
from vtrans.text import one_line

EOS = SPECIAL_PIECES[EOS_ID]
AXES = "Down: the translation, across: the source"
SHADES = ((0.7, "██"), (0.4, "▓▓"), (0.2, "▒▒"), (0.05, "░░"))
"""Of a cell of characters: the first whose number its share reaches."""


@dataclass(frozen=True)
class Attention:
    """What each word of `target` takes from each of `source`, [J, I]; a word may be a subword, and EOS is the last
    of `source`. A row adds up to 1, of a decoder-only model to less: the rest goes to the translation itself.
    `which` says of what attention, layers and heads it is."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    shares: NDArray[np.float64]
    which: str

    def as_dict(self) -> dict[str, Any]:
        rows = self.shares.tolist()
        return {"which": self.which, "source": list(self.source), "target": list(self.target), "attention": rows}


def attention(
    translator: Translator,
    sentence: str,
    target: str | None = None,
    *,
    layer: int | None = None,
    head: int | None = None,
    subwords: bool = False,
) -> Attention:
    """The cross-attention of the (first) model, of a decoder-only one what its target positions give to the source,
    as it translates the sentence, or is made to say `target`.

    Of a layer, 0 the lowest, and of one of its heads, or their mean; without a layer what alignments are read
    off, the mean of the upper half of the layers. InputError for a layer or head that is not there, a sentence or
    target without words, or one too long to be taken in one piece.
    """
    loaded = translator.models[0]
    _check("--layer", layer, loaded.model.config.decoder_layers, "layers of the decoder")
    _check("--head", head, loaded.model.config.heads, "heads")
    if head is not None and layer is None:
        raise InputError(f"--head {head} is a head of one layer; name the layer with --layer.")
    sentence = one_line(sentence)
    source = translator.one_piece(sentence)
    tokens = _target(translator, sentence, target)
    with torch.inference_mode():
        (batch,) = forced_batches([(source, tokens)], 1, loaded.model.device)
        shares_TS, of = _shares(loaded.model, batch, layer, head)
    one_stack = loaded.model.config.architecture == "decoder-only"
    which = f"{'attention to the source' if one_stack else 'cross-attention'}, {of}"
    real = [token for token in tokens if token != EOS_ID]
    if subwords:
        columns, rows = list(range(len(source))), list(range(len(real)))
        names = [loaded.src_vocab.piece(i) for i in source], [loaded.tgt_vocab.piece(i) for i in real]
    else:
        columns, rows = source_words(sentence, source, loaded.src_vocab), target_words(real, loaded.tgt_vocab)
        names = sentence.split(), loaded.tgt_vocab.decode(real).split()
    columns.append(len(names[0]))
    rows += [len(names[1])] * (len(tokens) - len(real))
    sums_TI = shares_TS @ np.eye(len(names[0]) + 1)[columns]
    labels = (*names[1], EOS)
    said = sorted(set(rows))  # a translation may hold a word that no subword is of, such as a byte's
    means_JI = np.stack([sums_TI[np.array(rows) == row].mean(0) for row in said])
    return Attention((*names[0], EOS), tuple(labels[row] for row in said), means_JI, which)


def _check(option: str, number: int | None, count: int, what: str) -> None:
    if number is not None and not 0 <= number < count:
        raise InputError(f"{option} must be from 0 to {count - 1}, as the model has {count} {what}, but is {number}.")


def _target(translator: Translator, sentence: str, target: str | None) -> Sequence[int]:
    """The subwords of the translation that is looked at, EOS with them if it ends so."""
    if target is None:
        ((best,),) = translator.translate_window([sentence])
        return best.tokens
    tokens = [*translator.tgt_vocab.encode(one_line(target)), EOS_ID]
    if len(tokens) == 1:
        raise InputError("--target is blank; give a translation, or leave it out for the model's own.")
    if len(tokens) > translator.max_source + EXTRA_LENGTH:
        raise InputError(
            f"--target has {len(tokens):,} subwords with EOS, over {translator.max_source + EXTRA_LENGTH:,}."
        )
    return tokens


def _shares(
    model: Transformer, batch: ForcedBatch, layer: int | None, head: int | None
) -> tuple[NDArray[np.float64], str]:
    """[T, S] of the batch's one pair, and what it is of."""
    heads, layers = model.config.heads, model.config.decoder_layers
    of = f"mean of {heads} heads" if heads > 1 else "the one head"
    if layer is None:
        first = upper_half(model)
        where = f"layers {first}-{layers - 1}" if first < layers - 1 else f"layer {first}"
        return mean_attention(model, batch)[0], f"{of} of {where}"
    shares_HTS = (
        model.attentions(batch.src_BS, batch.keep_BS, batch.tgt_in_BT, layer)[0][0].float().cpu().double().numpy()
    )
    if head is None:
        return shares_HTS.mean(0), f"{of} of layer {layer}"
    return shares_HTS[head], f"head {head} of layer {layer}"


def as_text(found: Attention, width: int | None = None) -> str:
    """For a terminal: a block of characters a cell, the words of the source written downwards above them. What
    `width` columns have no room for goes on below; None: all in one."""
    names = [_safe(word) for word in found.target]
    left = max(map(text_width, names))
    letters = [_letters(_safe(word)) for word in found.source]
    count = len(letters) if width is None else max(1, (width - left - 1) // 2)
    lines = []
    for first in range(0, len(letters), count):
        lines += _band(names, left, letters[first : first + count], found.shares[:, first : first + count])
    legend = "  ".join(f"{shade} {least:.0%}" for least, shade in reversed(SHADES))
    return "\n".join([*lines, f"{_title(found)}.", f"{AXES}; from {legend}"])


def _band(names: Sequence[str], left: int, letters: Sequence[list[str]], shares: NDArray[np.float64]) -> list[str]:
    """The lines of some of the columns, and a blank one; `left` is the room for the names of the rows."""
    height = max(map(len, letters))
    lines = []
    for i in range(height):
        cells = (word[i - height] if i >= height - len(word) else " " for word in letters)
        lines.append(" " * left + " " + "".join(cell + " " * (2 - text_width(cell)) for cell in cells))
    for name, row in zip(names, shares, strict=True):
        cells = (next((shade for least, shade in SHADES if share >= least), "  ") for share in row)
        lines.append(" " * (left - text_width(name)) + name + " " + "".join(cells))
    return [*(line.rstrip() for line in lines), ""]


def _title(found: Attention) -> str:
    return found.which[0].upper() + found.which[1:]


def _letters(word: str) -> list[str]:
    """A word's characters, accents and vowel signs of their own with the letter that they stand on."""
    letters: list[str] = []
    for character in word:
        if letters and (joins(character) or unicodedata.category(character) == "Mc"):
            letters[-1] += character
        else:
            letters.append(character)
    return letters


def _safe(word: str) -> str:
    """With U+FFFD, which takes a column, for what would steer a terminal."""
    return word.translate(_STANDS_IN)


_STANDS_IN = dict.fromkeys((*STEERING, *b"\t\n"), "\ufffd")


# The picture, in pixels. Letters are of a fixed width, so that it is known what room a word takes: 0.6 of the size
# in most such fonts, never more than this.
FONT, CELL, LETTER, GAP = 14, 26, 0.64, 8
SLOPE = 60  # degrees by which the words of the source rise

STYLE = """\
  text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1b1f24; }
  .page { fill: #ffffff; }
  .cell { fill: #0b5cad; }
  .grid { fill: none; stroke: #d0d4da; }
  .note { font-size: 12px; fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6e9ed; }
    .page { fill: #14171c; }
    .cell { fill: #6cb2ff; }
    .grid { stroke: #343a43; }
    .note { fill: #9aa4b0; }
  }"""


def as_svg(found: Attention) -> str:
    """The picture: a grid of cells, the darker (on a dark page the lighter) the larger the share; the pointer on a
    cell shows its figure."""
    sine, cosine = np.sin(np.radians(SLOPE)), np.cos(np.radians(SLOPE))
    rise = max(_room(word) * sine + FONT * cosine for word in found.source)
    left, top = GAP + max(map(_room, found.target)) + GAP, GAP + rise + GAP
    columns, rows = len(found.source), len(found.target)
    right, bottom = left + columns * CELL, top + rows * CELL
    # The last words of the source lean out over the grid.
    reach = max(left + (i + 0.5) * CELL + FONT / 2 + _room(word) * cosine for i, word in enumerate(found.source))
    notes = [_title(found), AXES]
    width = max(right, reach, *(GAP + len(note) * 12 * LETTER for note in notes)) + GAP
    height = bottom + GAP + 2 * 18 + GAP
    title = _xml(f"{_title(found)}. {AXES}.")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>',
    ]
    for i, word in enumerate(found.source):
        x, y = left + (i + 0.5) * CELL + FONT / 2 - 2, top - GAP / 2
        lines.append(f'<text transform="translate({x:.1f} {y:.1f}) rotate(-{SLOPE})">{_xml(word)}</text>')
    for j, word in enumerate(found.target):
        y = top + (j + 0.5) * CELL + 0.35 * FONT
        lines.append(f'<text x="{left - GAP:.1f}" y="{y:.1f}" text-anchor="end">{_xml(word)}</text>')
    for j, (word, shares) in enumerate(zip(found.target, found.shares, strict=True)):
        for i, (other, share) in enumerate(zip(found.source, shares, strict=True)):
            place = f'x="{left + i * CELL:.1f}" y="{top + j * CELL:.1f}" width="{CELL}" height="{CELL}"'
            figure = f"<title>{_xml(word)}, {_xml(other)}: {share:.1%}</title>"
            lines.append(f'<rect class="cell" {place} fill-opacity="{share:.3f}">{figure}</rect>')
    across = "".join(f"M{left:.1f} {top + j * CELL:.1f}H{right:.1f}" for j in range(rows + 1))
    down = "".join(f"M{left + i * CELL:.1f} {top:.1f}V{bottom:.1f}" for i in range(columns + 1))
    lines.append(f'<path class="grid" d="{across}{down}"/>')
    for number, note in enumerate(notes, 1):
        lines.append(f'<text class="note" x="{GAP}" y="{bottom + GAP + number * 18 - 4:.1f}">{_xml(note)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _room(word: str) -> float:
    """Pixels that a label takes at most."""
    return text_width(word) * FONT * LETTER


# What XML can't hold, not even escaped.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _xml(text: str) -> str:
    return escape(_NO_XML.sub("\ufffd", text))
