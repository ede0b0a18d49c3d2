"""Copies names that the model cannot know, in the way of protected text, or writes their translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import regex

from vtrans.lines.line import Kept, Line, Stage
from vtrans.wording.german_articles import ENDING, with_article
from vtrans.wording.glossary import Glossary
from vtrans.wording.name_lists import gender_of
from vtrans.wording.names import Names

_NAMED = Kept[dict[str, str]]()
"""The names of a line whose translation differs from them."""


class CopyNames(Stage):
    """Protects names, which may have protected words in them but lie outside of other protected text and of terms of a
    glossary, and writes those translations that a table has. A line whose translation must have a prefix or phrases is
    left to the model."""

    def __init__(self, names: Names, glossary: Glossary | None) -> None:
        self._names, self._glossary = names, glossary

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if line.prefix or line.wording.phrases or line.match:
                continue
            text, names = line.seen.text, list(self._names.of(line.seen.text))
            terms = self._glossary.terms_in(text) if names and self._glossary else ()
            for begin, end in line.protected:
                names = [name for name in names if name.holds(begin, end) or name.is_outside(begin, end)]
            for term in terms:
                names = [name for name in names if name.is_outside(term.begin, term.end)]
            if names:
                others = [span for span in line.protected if not any(name.holds(*span) for name in names)]
                line.protected = sorted([*others, *((name.begin, name.end) for name in names)])
                found = {text[name.begin : name.end]: name.translation for name in names}
                _NAMED.put(line, {name: form for name, form in found.items() if form != name or gender_of(form)})

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if forms := _NAMED.get(line):
                line.translations = [t.rewritten(_written(t.text, forms)) for t in line.translations]


def _written(text: str, forms: Mapping[str, str]) -> str:
    """Returns a text with these forms in the place of names, and with the articles that they have."""
    longest_first = "|".join(map(regex.escape, sorted(forms, key=len, reverse=True)))
    matches = list(regex.finditer(rf"(?<!\w)(?:{longest_first})(?!\w)", text))
    ends, begins = [0, *(match.end() for match in matches)], [*(match.start() for match in matches), len(text)]
    after, parts = text[ends[-1] :], list[str]()  # from the last to the first
    for k, match in reversed(list(enumerate(matches))):
        form, between = forms[match[0]], text[ends[k] : begins[k]]
        after = after.removeprefix(".") if form.endswith(".") else after
        if gender := gender_of(form):
            is_sentence = k == 0 and text.endswith((".", "!", "?"))
            between, form, after = with_article(between, form, gender, after, begins=is_sentence and not between)
        parts += [after, form.replace(ENDING, "en")]
        after = between
    return "".join(reversed([*parts, after]))
