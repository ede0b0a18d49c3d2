"""Codes that a model places by itself are not required of the search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from translators import learned

import vtrans
from vtrans.config import SearchConfig
from vtrans.engines.engine import Source
from vtrans.lines.line import Line, Piece
from vtrans.lines.requirements import PlaceFreely
from vtrans.search.lexical import Form, Phrase
from vtrans.search.loop import Hypothesis
from vtrans.text.vocabulary import EOS_ID

FREE = {"A1": "Raum A1", "A1 B2": "B2 und", "A1 A1": "A1 und A1 und A1", "A12": "Raum A1"}
"""What the search finds without phrases."""


def test_only_pieces_whose_codes_are_lost_or_repeated_are_searched_with_phrases() -> None:
    vocab = learned([*FREE, *FREE.values(), "mit"])
    searches: list[list[tuple[str, bool]]] = []

    def search(pieces: Sequence[Piece], config: SearchConfig) -> Iterator[Piece]:
        searches.append([(piece.line.text, bool(piece.source.phrases)) for piece in pieces])
        for piece in pieces:
            text = f"mit {piece.line.text}" if piece.source.phrases else FREE[piece.line.text]
            tokens = tuple(vocab.encode(text))
            piece.hypotheses = [Hypothesis(tokens, -1.0, -1.0, finished=True, token_logprobs=(-1.0,) * len(tokens))]
            yield piece

    def piece(text: str, *, exactly: bool = True) -> Piece:
        codes = text.split()
        forms = {code: (Form(tuple(vocab.encode(code))),) for code in codes}
        phrases = tuple(Phrase(form, codes.count(code), exactly=exactly) for code, form in forms.items())
        return Piece(Line(1, text), Source([*vocab.encode(text), EOS_ID], 20, "line 1", phrases=phrases))

    pieces = [*map(piece, FREE), piece("A1", exactly=False)]
    found = list(PlaceFreely(vocab).around(search)(pieces, SearchConfig()))
    assert searches == [[*((text, False) for text in FREE), ("A1", True)], [(text, True) for text in [*FREE][1:]]]
    assert (
        [vocab.decode(piece.hypotheses[0].tokens) for piece in found]
        == [
            "Raum A1",
            "mit A1",  # a term, which is always required
            *(f"mit {text}" for text in [*FREE][1:]),
        ]
    )
    assert all(piece.source.phrases for piece in found)


def test_a_model_that_has_learned_codes_keeps_them() -> None:
    lines = ["Open https://example.com/a?b=1 and press Ctrl+C.", "My address is kim@example.org.", "{name}, {name}!"]
    for line, translation in zip(lines, vtrans.load("en-de").translate(lines), strict=True):
        for copied in ("https://example.com/a?b=1", "Ctrl+C", "kim@example.org", "{name}"):
            assert translation.count(copied) == line.count(copied)
