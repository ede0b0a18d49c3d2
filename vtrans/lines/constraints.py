"""Reads the constraints of lines, and checks whether translations obey them."""

from __future__ import annotations

from collections.abc import Sequence

from vtrans.lines.line import Line, Stage
from vtrans.wording.phrases import wording_of


class CheckConstraints(Stage):
    """Counts the lines whose best translation does not obey their constraints, and warns of them."""

    def before(self, lines: Sequence[Line]) -> None:
        for line in lines:
            line.wording = wording_of(line.constraints, line.text, line.number)

    def after(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if unmet := line.wording.unmet(line.translations[0].text):
                line.counts.unmet = 1
                line.warnings.append(f"line {line.number}: its translation does not obey the constraint {unmet[0]!r}")
