"""Data files beside a model file, which users can edit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vtrans.errors import FileError
from vtrans.text.case import lower
from vtrans.wording.glossary import Glossary, read_glossary


@dataclass(frozen=True)
class Beside:
    """The glossary of a model, and the usual spelling of each lowercase word."""

    glossary: Glossary | None = None
    spellings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Path) -> Beside:
        """Returns the contents of `glossary.tsv` and `spellings.tsv` beside a model. Raises FileError for damage."""
        terms, words = model.with_name("glossary.tsv"), model.with_name("spellings.tsv")
        glossary = read_glossary(terms) if terms.exists() else None
        spellings = read_glossary(words).pairs if words.exists() else ()
        for word, forms in spellings:
            if len(forms) > 1 or len(word.split()) > 1:
                raise FileError(f"a line of {words} must be a word, a tab and its usual spelling, got {word!r}.")
        return cls(glossary, {lower(word): form for word, (form,) in spellings})


NOTHING = Beside()
