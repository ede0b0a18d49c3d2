"""Cross-attention maps: the attention of one translation to its source, as a table of shares, as text or as HTML.

A map has a row for each word of the translation and a column for each word of the source. As in alignments.py, shares
are summed over the subwords of a source word and averaged over the subwords of a translated word. EOS has a column
too, so every row of an encoder-decoder model adds up to 1.

Legend: S source length with EOS, T target length, H heads, I columns, J rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import regex
import torch
from numpy.typing import NDArray

from vtrans.data.batches import Batch
from vtrans.engines.forced import cross_attention, forced_batches, mean_attention, upper_half
from vtrans.model.network import Transformer
from vtrans.system.console import STEERING, text_width
from vtrans.system.errors import InputError
from vtrans.text.lines import one_line
from vtrans.text.vocabulary import EOS_ID, SPECIAL_PIECES
from vtrans.text.words import sharing, words_in, words_of_ids, words_of_line
from vtrans.translate.steps.line import Line
from vtrans.translate.steps.split import EXTRA_LENGTH, SourceReader
from vtrans.translate.translation import TranslateOptions
from vtrans.translate.translator import Translator

EOS = SPECIAL_PIECES[EOS_ID]
AXES = "Rows: the translation. Columns: the source."
SHADES = ((0.7, "██"), (0.4, "▓▓"), (0.2, "▒▒"), (0.05, "░░"))
"""The minimum share for each shade, the darkest first."""


@dataclass(frozen=True)
class AttentionMap:
    """Shares of attention [J, I] from each word of `target` to each word of `source`.

    The words may be subwords; the last of `source` is EOS, and the first may be the tag of the target language. A row
    adds up to 1, or to less in a decoder-only model, where the rest goes to the translation itself. `which` names the
    layers and heads.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    shares: NDArray[np.float64]
    which: str

    @property
    def title(self) -> str:
        return f"{self.which[0].upper()}{self.which[1:]}."

    def as_dict(self) -> dict[str, Any]:
        rows = self.shares.tolist()
        return {"which": self.which, "source": list(self.source), "target": list(self.target), "attention": rows}


def attention_map(
    translator: Translator,
    sentence: str,
    target: str | None = None,
    *,
    to: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    subwords: bool = False,
) -> AttentionMap:
    """Returns the attention of the (first) model to the source while it translates `sentence`, or produces `target`.

    Layers and heads count from 1; layer 1 is the lowest. The default is the attention that alignments use: the
    alignment head if there is one, else the mean over the upper half of the decoder's layers. Without `head`, the
    heads are averaged. Raises InputError for a layer or head that does not exist, and for a sentence or target that
    is blank or too long to be translated in one piece.
    """
    loaded = translator.engine.models[0]
    config = loaded.model.config
    for name, number, count in (("layer", layer, config.decoder_layers), ("head", head, config.heads)):
        if number is not None and not 1 <= number <= count:
            raise InputError(f"`{name}` must be from 1 to {count} for this model, got {number}.")
    if head is not None and layer is None:
        raise InputError("`head` needs `layer`, because each layer has its own heads.")
    sentence = loaded.src_vocab.as_source(one_line(sentence))
    tag, source = translator.reader.beginning(to), _one_piece(translator.reader, sentence, to)
    tokens = _target_tokens(translator, sentence, target, to)
    with torch.inference_mode():
        ((_, batch),) = forced_batches([([*tag, *source], tokens)], 1, loaded.model.device)
        shares_TS, of = _shares(loaded.model, batch, layer, head)
    kind = "attention to the source" if config.architecture == "decoder-only" else "cross-attention"
    real = [token for token in tokens if token != EOS_ID]
    if subwords:
        src_names = [loaded.src_vocab.piece(i) for i in source]
        tgt_names = [loaded.tgt_vocab.piece(i) for i in real]
        columns, rows = list(range(len(source))), list(range(len(real)))
    else:
        src_names, columns = _words(sentence, words_of_line(sentence, source, loaded.src_vocab))
        tgt_names, rows = _words(loaded.tgt_vocab.decode(real), words_of_ids(real, loaded.tgt_vocab))
    src_names = [*map(loaded.src_vocab.piece, tag), *src_names]
    columns = [*range(len(tag)), *(len(tag) + column for column in columns), len(src_names)]
    rows += [len(tgt_names)] * (len(tokens) - len(real))
    sums_TI = shares_TS @ np.eye(len(src_names) + 1)[columns]
    used = sorted(set(rows))  # some words of a translation have no subword, such as one made of single bytes
    means_JI = np.stack([sums_TI[np.array(rows) == row].mean(0) for row in used])
    labels = (*tgt_names, EOS)
    return AttentionMap((*src_names, EOS), tuple(labels[row] for row in used), means_JI, f"{kind}, {of}")


def _one_piece(reader: SourceReader, sentence: str, to: str | None) -> list[int]:
    """Returns the subword ids of a sentence, without tag and EOS. Raises InputError if it is blank or too long for one
    piece."""
    ids = reader.encode(sentence, 1, to=to)
    if not sentence.strip() or not ids:
        raise InputError("the sentence is blank; give one with words in it.")
    if len(ids) > reader.max_source:
        raise InputError(f"the sentence must have at most {reader.max_source:,} subwords, got {len(ids):,}.")
    return ids


def _words(text: str, numbers: Sequence[int]) -> tuple[list[str], list[int]]:
    """Returns the words of a text, and the index of the word for each number. Words with a common subword count as
    one. A text whose subwords spell no word has one word, the empty string."""
    names = dict[int, str]()
    for word, number in zip(words_in(text), sharing(text, {*numbers}), strict=True):
        names[number] = names.get(number, "") + word
    if not names:
        names = dict.fromkeys(numbers, "")
    places = {number: place for place, number in enumerate(names)}
    return [*names.values()], [places[number] for number in numbers]


def _target_tokens(translator: Translator, sentence: str, target: str | None, to: str | None) -> Sequence[int]:
    """Returns the subword ids of the translation, with EOS if it ends with EOS."""
    if target is None:
        ((best,),) = translator.translate_window([Line(1, sentence)], TranslateOptions(to=to, raw=True))
        return best.tokens
    tokens, most = translator.tgt_vocab.encode(one_line(target)), translator.reader.max_source + EXTRA_LENGTH
    if not tokens:
        raise InputError("`target` must not be blank; leave it out for the model's own translation.")
    tokens = [*translator.reader.begin, *tokens, EOS_ID]
    if len(tokens) > most:
        raise InputError(f"`target` must have at most {most:,} subwords with EOS, got {len(tokens):,}.")
    return tokens


def _shares(model: Transformer, batch: Batch, layer: int | None, head: int | None) -> tuple[NDArray[np.float64], str]:
    """Returns the attention [T, S] in a batch of one pair, and a description of its heads and layers."""
    heads, layers = model.config.heads, model.config.decoder_layers
    of = f"mean of {heads} heads" if heads > 1 else "the one head"
    if layer is None and (aligning := model.config.alignment_layer):
        return mean_attention(model, batch)[0], f"head 1 of layer {aligning}, which aligns words"
    if layer is None:
        first = upper_half(model) + 1
        where = f"layers {first}-{layers}" if first < layers else f"layer {first}"
        return mean_attention(model, batch)[0], f"{of} of {where}"
    shares_HTS = cross_attention(model, batch, layer - 1)[0][0].float().cpu().double().numpy()
    if head is None:
        return shares_HTS.mean(0), f"{of} of layer {layer}"
    return shares_HTS[head - 1], f"head {head} of layer {layer}"


def as_text(attention: AttentionMap, width: int | None = None) -> str:
    """Returns the map as text for a terminal. Each source word is written vertically, in a column of two characters.

    Words that do not fit into `width` columns continue below; None puts all words side by side.
    """
    names = [_printable(word) for word in attention.target]
    left = max(map(text_width, names))
    letters = [regex.findall(r"\X", _printable(word)) for word in attention.source]
    count = len(letters) if width is None else max(1, (width - left - 1) // 2)
    lines = []
    for first in range(0, len(letters), count):
        lines += _band(names, left, letters[first : first + count], attention.shares[:, first : first + count])
    legend = "  ".join(f"{shade} {least:.0%}" for least, shade in reversed(SHADES))
    return "\n".join([*lines, attention.title, AXES, f"Shares of at least {legend}"])


def _band(names: Sequence[str], left: int, letters: Sequence[list[str]], shares: NDArray[np.float64]) -> list[str]:
    """Returns the lines for some columns and a blank line; row names are `left` characters wide."""
    height = max(map(len, letters))
    lines = []
    for i in range(height):
        cells = (word[i - height] if i >= height - len(word) else " " for word in letters)
        lines.append(" " * left + " " + "".join(cell + " " * (2 - text_width(cell)) for cell in cells))
    for name, row in zip(names, shares, strict=True):
        cells = (next((shade for least, shade in SHADES if share >= least), "  ") for share in row)
        lines.append(" " * (left - text_width(name)) + name + " " + "".join(cells))
    return [*(line.rstrip() for line in lines), ""]


def _printable(word: str) -> str:
    """Returns the word with U+FFFD, which is one column wide, for each character that controls the terminal."""
    return word.translate(_REPLACED)


_REPLACED = dict.fromkeys((*STEERING, *b"\t\n"), "\ufffd")


PAGE = """\
<!doctype html>
<meta charset="utf-8">
<title>{title}</title>
<style>
  :root {{ color-scheme: light dark; font: 14px ui-monospace, monospace; }}
  th {{ font-weight: normal; text-align: end; }}
  thead th {{ writing-mode: vertical-rl; }}
  td {{ min-width: 26px; height: 26px; border: 1px solid #8884; }}
</style>
<table>
<thead><tr><th></th>{head}</tr></thead>
{rows}
</table>
<p>{title} {axes}</p>
"""


def as_html(attention: AttentionMap) -> str:
    """Returns the map as an HTML page: a table of cells whose shade and tooltip show the share."""
    head = "".join(f'<th scope="col">{escape(word)}</th>' for word in attention.source)
    rows = []
    for word, shares in zip(attention.target, attention.shares, strict=True):
        cells = [
            f'<td style="background: rgb(30 110 200 / {share:.1%})" title="{escape(other)}: {share:.1%}"></td>'
            for other, share in zip(attention.source, shares, strict=True)
        ]
        rows.append(f'<tr><th scope="row">{escape(word)}</th>{"".join(cells)}</tr>')
    return PAGE.format(title=escape(attention.title), head=head, rows="\n".join(rows), axes=AXES)
