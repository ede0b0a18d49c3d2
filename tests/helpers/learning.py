"""Vocabularies that tests learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vtrans.data.options import PrepareOptions
from vtrans.data.preparation.learn_vocabulary import learn
from vtrans.text.vocabulary import Vocabulary


def learned(text: Sequence[str], size: int | None = None, *, tags: Sequence[str] = (), **settings: Any) -> Vocabulary:
    """Learns from all characters of the text, with digits inside subwords unless `settings` say otherwise."""
    options = {"character_coverage": 1.0, "split_digits": False, **settings}
    return learn(text, size, PrepareOptions(**options), tags=tags)
