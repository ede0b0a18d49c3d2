"""The characters that the vocabularies of a model have."""

from __future__ import annotations

import unicodedata

from vtrans.text.piece_table import split_language
from vtrans.text.vocabulary import Vocabulary

_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")  # categories of control characters, surrogates and spaces


class VocabularyCoverage:
    """The characters that two vocabularies have."""

    def __init__(self, src_vocab: Vocabulary, tgt_vocab: Vocabulary) -> None:
        self.vocabs = (src_vocab, tgt_vocab)
        self._unknown: tuple[dict[str, bool], ...] = ({}, {})

    def may_change(self, line: str) -> bool:
        """Returns whether a line may be changed; one that names its target language itself is for the model as it
        is."""
        vocab = self.vocabs[0]
        tag, _ = split_language(line) if vocab.table else ([], line)
        return not (tag and tag[0] in vocab.tags)

    def knows(self, text: str) -> bool:
        """Returns whether the source vocabulary has pieces for all characters of a text."""
        return not any(self.is_unknown(0, character) for character in set(text))

    def lacks(self, side: int, character: str) -> bool:
        """Returns whether a vocabulary has pieces neither for a character nor for its small form."""
        return self.is_unknown(side, character) and any(self.is_unknown(side, small) for small in character.lower())

    def lacks_any(self, text: str) -> bool:
        """Returns whether the source vocabulary lacks a character of a text and its small form."""
        return any(self.lacks(0, character) for character in set(text))

    def knows_control(self, character: str) -> bool:
        """Returns whether the source vocabulary has a piece for a control or format character, or reads over it."""
        return self.vocabs[0].covers(character)

    def is_unknown(self, side: int, character: str) -> bool:
        """Returns whether a vocabulary has no piece for a character."""
        unknown = self._unknown[side]
        if character not in unknown:
            is_visible = unicodedata.category(character) not in _INVISIBLE
            unknown[character] = is_visible and not self.vocabs[side].covers(character)
        return unknown[character]
