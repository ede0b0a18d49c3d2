"""Says in the source how the German of a pair addresses people: `python recipes/tatoeba/formality.py EN DE OUT_EN`.

Writes each English line again. In half of the pairs that address somebody, it begins with `<formal>` or `<informal>`,
so that a model learns to obey `vtrans translate --formality`. Only pairs are labelled whose English has "you", whose
German has one form of address, and which have no word that may mean "she" or "they".
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SHARE = 0.5  # of the labelled pairs: the others teach the model to translate without a label

_YOU = re.compile(r"\b(?:you|your|yours|yourself|yourselves)\b", re.I)
_EITHER = re.compile(r"(?:^|[.!?] )Ihr")
_OTHERS = re.compile(r"\b(?:she|her|hers|they|them|their|theirs)\b", re.I)
_FORMAL = re.compile(r"\b(?:Sie|Ihnen|Ihre?[mnrs]?)\b")
_INFORMAL = re.compile(r"\b(?:du|dich|dir|dein(?:e[mnrs]?)?|ihr|euch|eue?r(?:e[mnrs]?)?|eu(?:re[mnrs]?))\b", re.I)


def label(src: str, tgt: str) -> str:
    """Returns `<formal>` or `<informal>`, or nothing for a pair that does not show it."""
    if not _YOU.search(src) or _OTHERS.search(src) or _EITHER.search(tgt):
        return ""
    formal, informal = bool(_FORMAL.search(tgt)), bool(_INFORMAL.search(_FORMAL.sub("", tgt)))
    return "" if formal == informal else "<formal>" if formal else "<informal>"


def main(src: str, tgt: str, out: str) -> None:
    """Writes the sources with their labels."""
    owed, lines = 0.0, []
    sides = (Path(path).read_text(encoding="utf-8").splitlines() for path in (src, tgt))
    for english, german in zip(*sides, strict=True):
        found = label(english, german)
        owed += SHARE if found else 0.0
        labelled = bool(found) and owed >= 1
        owed -= labelled
        lines.append(f"{found} {english}\n" if labelled else f"{english}\n")
    Path(out).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
