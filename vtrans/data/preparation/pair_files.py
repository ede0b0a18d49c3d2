"""Files of pairs: TSV, whose lines are a source, a tab and its translation; and CSV with two columns."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path, PurePath

from vtrans.system.errors import InputError
from vtrans.text.languages import Languages, languages_in
from vtrans.text.lines import LineReport, OnBadUtf8, lines_in

ENDINGS = (".tsv", ".csv")
LONGEST_FIELD = 1 << 30  # characters


class PairFile:
    """A file of pairs, which may be compressed. If a language is "", it is taken from the file name, such as
    `news.en-de.tsv`."""

    def __init__(self, path: Path, languages: Languages, on_bad_utf8: OnBadUtf8) -> None:
        self._path, self._on_bad_utf8 = path, on_bad_utf8
        named = languages_in(_unpacked(path).stem.rpartition(".")[2]) or ("", "")
        self.languages = Languages(*(given or name for given, name in zip(languages, named, strict=True)))
        self.counts = {path.name: {"pairs": 0, "replacements": 0}}
        """The numbers of pairs and of U+FFFD that replace invalid UTF-8, complete once `pairs` is exhausted."""

    @staticmethod
    def has_name(path: Path) -> bool:
        """Returns whether a file is a file of pairs, by its name."""
        return _unpacked(path).suffix.lower() in ENDINGS

    def __str__(self) -> str:
        (counts,) = self.counts.values()
        replaced = f", with {n:,} U+FFFD in place of bytes that are not UTF-8" if (n := counts["replacements"]) else ""
        return f"{counts['pairs']:,} pairs{replaced}"

    @property
    def pairs(self) -> Iterator[tuple[str, str]]:
        """Reads the file and yields its pairs; a blank line is a pair without text. Raises InputError for a line that
        is not a pair, and if no pair has text on both sides."""
        path, report, number, usable = self._path, LineReport(), 0, 0
        is_tsv = _unpacked(path).suffix.lower() == ".tsv"
        lines = lines_in(path, self._on_bad_utf8, report)
        csv.field_size_limit(LONGEST_FIELD)
        reader = csv.reader((f"{line}\n" for line in lines), strict=True)
        rows = (line.split("\t") for line in lines) if is_tsv else reader
        try:
            for line, row in enumerate(rows, 1):
                place = line if is_tsv else reader.line_num
                if len(row) != 2 and any(map(str.strip, row)):
                    raise InputError(
                        f"{path}: line {place} must be a source, a {'tab' if is_tsv else 'comma'} and its translation, "
                        f"got {len(row)} column{'s' if len(row) > 1 else ''}; correct the line."
                    )
                if any("\0" in text for text in row):
                    raise InputError(f"{path}: line {place} contains a NUL byte; give a text file in UTF-8.")
                src, tgt = row if len(row) == 2 else ("", "")
                number += 1
                usable += bool(src.strip() and tgt.strip())
                yield src, tgt
        except csv.Error as error:
            raise InputError(f"{path}: line {reader.line_num} cannot be read: {error}; correct the line.") from None
        if not usable:
            raise InputError(f"{path} has no pair with text on both sides; give a file with one pair per line.")
        self.counts[path.name] = {"pairs": number, "replacements": report.replacements}


def _unpacked(path: Path) -> PurePath:
    """Returns the name of a file without its compression suffix."""
    return PurePath(path.stem if path.suffix in (".gz", ".xz", ".bz2") else path.name)
