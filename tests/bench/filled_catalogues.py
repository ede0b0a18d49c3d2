"""Scores PO files that vtrans has filled: BLEU, chrF, tags and `msgfmt --check`.

    python tests/bench/filled_catalogues.py TEST EMPTY            # copy PO files without their translations
    vtrans translate EMPTY -o FILLED --model run
    python tests/bench/filled_catalogues.py TEST FILLED TRAIN     # TRAIN: what the model has learned from

Only entries that have words and a translation that is not fuzzy are scored, with their tags, and white space as one
blank. Entries that the training files translate in the same way, or otherwise, are scored apart from new ones, and new
ones of one sentence by the similarity of their fuzzy match in the training files.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polib
import sacrebleu

from vtrans.command_line.documents import remembered
from vtrans.documents.document import MarkedDocument
from vtrans.documents.inline import items_of
from vtrans.documents.remembered import Lookup
from vtrans.documents.sentences import PROTECTION, has_words
from vtrans.text.languages import Languages

_TAG = re.compile(r"C[BIRW]<|[BCEFILRSX]<|</?[A-Za-z][^<>]*>|>|%(?:\d\$|\(\w+\))?[sd](?![a-z])|\{\w*\}")


def empty(source: Path, out: Path) -> None:
    """Copies catalogues without their translations, fuzzy flags and obsolete entries."""
    out.mkdir()
    for path in sorted(source.glob("*.po")):
        catalogue = polib.pofile(str(path))
        for entry in list(catalogue):
            if entry.obsolete:
                catalogue.remove(entry)
            entry.msgstr, entry.flags = "", [flag for flag in entry.flags if flag != "fuzzy"]
            entry.msgstr_plural = dict.fromkeys(entry.msgstr_plural, "")
        catalogue.save(str(out / path.name))


def structure(text: str) -> Counter[str] | None:
    """Returns how often a text has each tag, or None if an element of a man page has no end."""
    opened, tags = list[str](), Counter[str]()
    for tag in _TAG.findall(text):
        if tag == ">" and not opened:
            return None
        if tag[-1] == "<":
            opened.append(tag)
        else:
            tags[opened.pop() + tag if tag == ">" else tag] += 1
    return None if opened else tags


def entries(folder: Path) -> Iterator[tuple[tuple[str, str], polib.POEntry]]:
    for path in sorted(folder.glob("*.po")):
        yield from (((path.name, f"{e.msgctxt}|{e.msgid}"), e) for e in polib.pofile(str(path)) if not e.obsolete)


def similarity(text: str, lookup: Lookup) -> str | None:
    """Returns the class of an entry of one sentence by its fuzzy match."""
    lines = MarkedDocument(items_of(text), "en", str).lines
    match = lookup(lines[0]) if len(lines) == 1 else None
    if match is None:
        return "new, below 60%" if len(lines) == 1 else None
    return next(f"new, {least}% and more" for least in (90, 70, 60) if match[1] * 100 > least - 1e-6)


def score(references: Path, filled: Path, train: Path) -> None:
    lookup = Lookup(remembered(train, Languages("en", "")).sentences(), PROTECTION)
    known = {entry.msgid: entry.msgstr for _, entry in entries(train) if entry.translated()}
    wanted = {key: entry for key, entry in entries(references) if entry.translated()}
    groups: dict[str, list[tuple[str, str]]] = {"all": [], "learned": [], "learned otherwise": [], "new": []}
    tags = Counter[str]()
    for key, entry in entries(filled):
        before, after = structure(entry.msgid), structure(entry.msgstr)
        tags["empty" if not entry.msgstr else "odd source" if before is None else str(before == after)] += 1
        reference = wanted.get(key)
        if reference is None or not has_words(re.sub(r"[A-Z]<|>", " ", entry.msgid)):
            continue
        same = known.get(entry.msgid)
        group = "new" if same is None else "learned" if same == reference.msgstr else "learned otherwise"
        for name in ("all", group, similarity(entry.msgid, lookup) if same is None else None):
            groups.setdefault(name or "", []).append(
                (" ".join(entry.msgstr.split()), " ".join(reference.msgstr.split()))
            )
    for name, pairs in groups.items():
        if name and pairs:
            hypotheses, texts = map(list, zip(*pairs, strict=True))
            bleu, chrf = sacrebleu.corpus_bleu(hypotheses, [texts]), sacrebleu.corpus_chrf(hypotheses, [texts])
            same = sum(a == b for a, b in pairs) / len(pairs)
            print(f"{name}: {len(pairs):,} entries, BLEU {bleu.score:.2f}, chrF {chrf.score:.2f}, equal {same:.1%}")
    print(f"tags complete and nested: {tags['True']:,} of {tags['True'] + tags['False']:,} entries; {dict(tags)}")
    files = sorted(filled.glob("*.po"))
    command = ["msgfmt", "--check", "--use-fuzzy", "-o", "/dev/null"]
    refused = [path.name for path in files if subprocess.run([*command, path], capture_output=True).returncode]
    print(f"msgfmt --check accepts {len(files) - len(refused):,} of {len(files):,} files; not {refused}")


if __name__ == "__main__":
    folders = [Path(word) for word in sys.argv[1:]]
    if len(folders) == 2:
        empty(*folders)
    elif len(folders) == 3:
        score(*folders)
    else:
        sys.exit(__doc__)
