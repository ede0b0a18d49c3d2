"""Teaches an English to German model forms of address, and measures what it learned.

    python -m recipes.formality label EN DE > LABELLED_EN
    python -m recipes.formality check MODEL EN

`label` writes each English line again. Half of the pairs that show how somebody is addressed get `<formal>` or
`<informal>` as their first word, so that a model learns `--formality`; `prepare-bpe --symbol` makes a subword of each.
Only pairs count whose English has "you", whose German has one form of address, and which have no word that may mean
"she" or "they". `check` translates the sentences with "you" in each form and prints the share that has it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import vtrans
from recipes.experiment import lines_of
from vtrans.text.vocabulary import FORMALITY

SHARE = 0.5  # of the labelled pairs: the others teach the model to translate without a label

_YOU = re.compile(r"\b(?:you|your|yours|yourself|yourselves)\b", re.I)
_EITHER = re.compile(r"(?:^|[.!?] )Ihr")
_OTHERS = re.compile(r"\b(?:she|her|hers|they|them|their|theirs)\b", re.I)
_FORMAL = re.compile(r"\b(?:Sie|Ihnen|Ihre?[mnrs]?)\b")
_INFORMAL = re.compile(r"\b(?:du|dich|dir|dein(?:e[mnrs]?)?|ihr|euch|eue?r(?:e[mnrs]?)?|eu(?:re[mnrs]?))\b", re.I)


def label_of(src: str, tgt: str) -> str:
    """Returns `<formal>` or `<informal>`, or nothing for a pair that does not show it."""
    if not _YOU.search(src) or _OTHERS.search(src) or _EITHER.search(tgt):
        return ""
    forms = forms_in(tgt)
    return forms.pop() if len(forms) == 1 else ""


def forms_in(tgt: str) -> set[str]:
    """Returns the labels of the forms of address that a German text may have."""
    found = {FORMALITY["more"]: _FORMAL.search(tgt), FORMALITY["less"]: _INFORMAL.search(_FORMAL.sub("", tgt))}
    return {label for label, match in found.items() if match}


def labelled(sources: Sequence[str], targets: Sequence[str]) -> Iterator[str]:
    """Yields the sources, a SHARE of those that have a label with it."""
    owed = 0.0
    for src, tgt in zip(sources, targets, strict=True):
        label = label_of(src, tgt)
        owed += SHARE if label else 0.0
        if label and owed >= 1:
            owed -= 1
            yield f"{label} {src}"
        else:
            yield src


def check(model: str, sources: Sequence[str]) -> Iterator[str]:
    """Yields a row for each form of address: the translations that have it, the other one, and none."""
    asked = [line for line in sources if _YOU.search(line) and not _OTHERS.search(line)]
    translator = vtrans.load(model)
    yield f"{len(asked):,} sentences   this form   the other   neither"
    for formality, wanted in FORMALITY.items():
        found = [label_of(*pair) for pair in zip(asked, translator.translate(asked, formality=formality), strict=True)]
        counts = found.count(wanted), len(found) - found.count(wanted) - found.count(""), found.count("")
        yield f"{formality:14} " + "".join(f"{count / len(asked):12.1%}" for count in counts)


def main(task: str, *given: str) -> None:
    """Runs one of the two tasks."""
    texts = [lines_of(Path(path)) for path in (given if task == "label" else given[1:])]
    sys.stdout.writelines(f"{line}\n" for line in (labelled(*texts) if task == "label" else check(given[0], *texts)))


if __name__ == "__main__":
    main(*sys.argv[1:])
